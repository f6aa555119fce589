"""A line that is slow is not a dead one: each piece of what is sent has its own time."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.client.conduits import drive
from headrace.client.loop_conduit import LoopConduit
from headrace.client.node_line import NodeLine
from headrace.client.plain_conduit import PlainConduit
from headrace.client.upgrade import Handshake

PARTS = (b"head", memoryview(bytes(5_000_000)), bytes(100))
PIECE_BYTES_MAX = 1 << 20


class Slow:
    """A socket or a transport: takes one piece after the other, and remembers how large they were."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def sendall(self, data: Any) -> None:
        self.taken.append(len(data))

    def is_closing(self) -> bool:
        return False


def test_a_blocking_client_waits_for_each_piece() -> None:
    line: Any = Slow()
    drive(PlainConduit(line, NodeLine("http://localhost:1"), Handshake()).send(*PARTS))
    assert sum(line.taken) == sum(map(len, PARTS))
    assert max(line.taken) <= PIECE_BYTES_MAX


def test_a_client_of_a_loop_waits_for_each_piece() -> None:
    async def send() -> list[int]:
        line: Any = Slow()
        conduit = LoopConduit(NodeLine("http://localhost:1"))
        conduit._transport = line

        def write(data: Any) -> None:
            line.taken.append(len(data))
            conduit.pause_writing()  # until this one has left
            asyncio.get_running_loop().call_soon(conduit.resume_writing)

        line.write = write
        await conduit.send(*PARTS)
        taken: list[int] = line.taken
        return taken

    taken = asyncio.run(send())
    assert sum(taken) == sum(map(len, PARTS))
    assert max(taken) <= PIECE_BYTES_MAX
