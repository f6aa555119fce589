"""Servers: what speaks to other processes. Only here and in `client` is there an event loop."""
