"""What idle followers cost a server: its resident memory before and after."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from bench.measure import Aim, Run, Table
from bench.node.contender import Contender
from bench.node.contenders import Contenders, beside
from bench.node.entries import RAW, entries, fresh_name
from bench.node.jetstream import in_loop

_FOLLOWERS = 1000
_ENTRIES = 100
_SETTLE_S = 2.0


def run(run: Run, there: Contenders) -> Iterator[Table]:
    run.say(f"{_FOLLOWERS:,} followers that have nothing to do")
    table = Table(
        f"{_FOLLOWERS:,} idle followers",
        f"What the server's resident memory has grown by, once {_FOLLOWERS:,} clients follow a stream of "
        f"{_ENTRIES} entries, each over a connection of its own, and have all of them; and once {_ENTRIES} "
        "more have come to each. Redis: XREAD BLOCK; NATS: push consumers.",
    )
    idle, served = dict[str, float](), dict[str, float]()
    for each in there.all:
        if each.name in there.serving:
            process = there.serving[each.name].process
            idle[each.name], served[each.name] = in_loop(_cost(each, process))
    table.figures += beside("waiting from the beginning", idle, "MB", Aim(value=100))
    table.figures += beside("after more entries have come", served, "MB", Aim(value=100))
    yield table


async def _cost(contender: Contender, process: int) -> tuple[float, float]:
    stream = fresh_name()
    some = entries(RAW.what, _ENTRIES)
    await asyncio.to_thread(contender.make, stream, RAW)
    await asyncio.to_thread(contender.publish, stream, RAW, some)
    async with AsyncExitStack() as stack:
        await contender.follower(stack, stream, _ENTRIES)  # what the first costs is not for each
        before = _resident_mb(process)
        waiting = [await contender.follower(stack, stream, _ENTRIES) for _ in range(_FOLLOWERS)]
        await asyncio.sleep(_SETTLE_S)
        idle = _resident_mb(process) - before
        await asyncio.to_thread(contender.publish, stream, RAW, some)
        await asyncio.gather(*waiting)
        await asyncio.sleep(_SETTLE_S)
        served = _resident_mb(process) - before
    return idle, served


def _resident_mb(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024
