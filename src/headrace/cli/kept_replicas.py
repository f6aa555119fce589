"""The copies that a node keeps of other nodes' streams and journals, beside serving its own.

    kept = KeptReplicas(node)
    kept.follow(NodeLine(url, token), "orders", local="orders-there")
    kept.follow(NodeLine(url, token), "pages", kind="journals")
    ...
    await kept.stop()

A copy that cannot go on does not end the node: why is logged, told in a stream's info, and counted.
"""

from __future__ import annotations

import asyncio
import logging

from headrace.client.node_line import NodeLine
from headrace.client.replica import Kinds, Replica
from headrace.kernel.errors import HeadraceError
from headrace.server.node import Node

_logger = logging.getLogger("headrace.replica")


class KeptReplicas:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._running: list[tuple[Replica, asyncio.Task[None]]] = []

    def follow(self, line: NodeLine, name: str, local: str | None = None, kind: Kinds = "streams") -> None:
        """Keep a copy of `name` from now on; what is not there yet is waited for."""
        node = self._node
        grown = node.reopen_stream if kind == "streams" else None
        replica = Replica(node.store, line, name, kind=kind, local=local, patient=True, on_grown=grown)
        followed = node.replicas if kind == "streams" else node.journal_replicas
        followed[replica.state.name] = replica.state
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
