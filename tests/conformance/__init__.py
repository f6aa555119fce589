"""One suite over a directory, a node's blocking client and its client for asyncio."""
