"""Latency: from when an entry was due to be published to when a follower in another process has it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

from bench.measure import Aim, Run, Table, percentile
from bench.node.contender import Contender, Pace, late_us
from bench.node.contenders import Contenders, beside
from bench.node.entries import RAW, fresh_name

_PAUSE_S = 0.001
_AIM = Aim(ratio=1)


def run(run: Run, there: Contenders) -> Iterator[Table]:
    run.say("latency from a publisher over the node to a follower")
    count = run.scaled(5_000, 1_000)
    found: dict[str, list[list[float]]] = {each.name: [] for each in there.all}
    for at in range(run.rounds):
        turn = at % len(there.all)
        for each in (*there.all[turn:], *there.all[:turn]):
            found[each.name].append(_late(each, count))
    table = Table(
        "Latency through a node at 1,000 entries a second",
        f"{count:,} entries of 100 bytes, one due every millisecond, from one process over the server to "
        "another; from when it was due. Each client sends what is due together, as soon as it may: Redis in "
        "a pipeline, NATS by publish_async. The median of all rounds.",
    )
    for percent in (50, 99):
        values = {
            name: percentile([percentile(late, percent) for late in rounds], 50)
            for name, rounds in found.items()
        }
        table.figures += beside(f"publish to follower, p{percent}", values, "µs", _AIM)
    yield table


def _late(contender: Contender, count: int) -> list[float]:
    stream, context = fresh_name(), multiprocessing.get_context("spawn")
    contender.make(stream, RAW)
    begin = context.Event()
    publisher = context.Process(target=_publish, args=(contender, stream, count, begin))
    publisher.start()
    late: list[float] = []
    contender.follow(stream, RAW, count, begin.set, lambda entry: late.append(late_us(entry)))
    publisher.join()
    return late[count // 10 :]  # without the first, in which connections and processes warm up


def _publish(contender: Contender, stream: str, count: int, begin: Any) -> None:
    begin.wait()
    contender.publish_paced(stream, Pace(count, _PAUSE_S))
