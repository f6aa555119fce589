"""The copies that a node keeps of other nodes' streams, beside serving its own.

    kept = KeptReplicas(node)
    kept.follow(NodeLine(url, token), "orders", local="orders-there")
    ...
    await kept.stop()

A copy that cannot go on does not end the node: why is logged, told in the stream's info, and counted.
"""

from __future__ import annotations

import asyncio
import logging

from headrace.client.node_line import NodeLine
from headrace.client.replica import Replica
from headrace.kernel.errors import HeadraceError
from headrace.server.node import Node

_logger = logging.getLogger("headrace.replica")


class KeptReplicas:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._running: list[tuple[Replica, asyncio.Task[None]]] = []

    def follow(self, line: NodeLine, name: str, local: str | None = None) -> None:
        """Keep a copy of `name` from now on; a stream that is not there yet is waited for."""
        replica = Replica(
            self._node.store, line, name, local=local, patient=True, on_grown=self._node.reopen_stream
        )
        self._node.replicas[replica.state.name] = replica.state
        self._running.append((replica, asyncio.ensure_future(_run(replica))))

    async def stop(self) -> None:
        """Return when all of them have let their streams go."""
        for replica, _ in self._running:
            replica.stop()
        await asyncio.gather(*(task for _, task in self._running))


async def _run(replica: Replica) -> None:
    try:
        await replica.run()
    except HeadraceError as error:
        state = replica.state
        _logger.error("%s is no longer followed from %s: %s", state.name, state.source.url, error)
