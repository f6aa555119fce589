"""Reading what is there, and following what is being published by another process."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from bench.measure import Aim, Figure, Run, Table, best
from bench.node.contender import Contender
from bench.node.contenders import OURS, UNSYNCED, Contenders, beside, entry_count, entry_rates
from bench.node.entries import BYTES, EVENT, KINDS, RAW, Kind, entries, fresh_name
from bench.node.jetstream import JetStream


def run(run: Run, there: Contenders) -> Iterator[Table]:
    yield _reads(run, there)
    yield _follows(run, there)


def _reads(run: Run, there: Contenders) -> Table:
    table = Table(
        "Reading through a node",
        "From the first entry to the last, as objects: headrace by listen; Redis by XREAD of 1,000; "
        "NATS by fetch of 1,000, and pushed to a callback, without acknowledgements. 5 fields: the peers' "
        "JSON is decoded into the same objects. Batches: Arrow, as they are.",
    )
    for kind in KINDS.values():
        run.say(f"reading {kind.what} through a node")
        streams = {each.name: _filled(run, each, kind) for each in there.all if each.name != UNSYNCED}
        work = {
            each.name: partial(_read, run, each, kind, streams[each.name])
            for each in there.all
            if each.name in streams
        }
        for each in there.peers:
            if isinstance(each, JetStream) and each.name in streams:
                pushed = replace(each, push=True)
                work[f"{each.name}, pushed"] = partial(_read, run, pushed, kind, streams[each.name])
        work["batches"] = partial(there.node.read_batches, streams[OURS])
        times = best(run.rounds, work)
        batches_s = times.pop("batches")
        rate = {name: 1 / spent for name, spent in times.items()}
        table.figures += beside(f"listen, {kind.what}", rate, "entries/s", Aim(ratio=10))
        count = _count(run, OURS)
        table.figures.append(Figure(f"listen_batches, {kind.what}", count / batches_s / 1e6, "M rows/s"))
        if kind is RAW:
            table.figures.append(Figure("listen_batches, 100 bytes", count * BYTES / batches_s / 1e6, "MB/s"))
    return table


def _count(run: Run, name: str) -> int:
    return run.scaled(2_000_000, 500_000) if name == OURS else run.scaled(50_000, 10_000)


def _filled(run: Run, contender: Contender, kind: Kind) -> str:
    stream = fresh_name()
    contender.make(stream, kind)
    contender.publish(stream, kind, entries(kind.what, _count(run, contender.name)))
    return stream


def _read(run: Run, contender: Contender, kind: Kind, stream: str) -> float:
    """Seconds an entry."""
    count = _count(run, contender.name)
    return contender.read(stream, kind, count) / count


def _follows(run: Run, there: Contenders) -> Table:
    table = Table(
        "Following through a node while another process publishes",
        "From the first publish to the last entry with the follower, as objects; published one entry a call, "
        "as quickly as it goes. Redis: XREAD BLOCK. NATS: a push consumer.",
    )
    for kind in KINDS.values():
        run.say(f"following {kind.what} through a node")
        rate = entry_rates(run, there, partial(_follow, run, kind))
        table.figures += beside(f"follow, {kind.what}", rate, "entries/s", Aim(ratio=10))
    return table


def _follow(run: Run, kind: Kind, contender: Contender) -> float:
    """Seconds an entry."""
    count = entry_count(run, contender)
    stream, context = fresh_name(), multiprocessing.get_context("spawn")
    contender.make(stream, kind)
    begin, began = context.Event(), context.Value("d", 0.0)
    prepared = context.Event()
    publisher = context.Process(
        target=_publish, args=(contender, stream, kind is EVENT, count, prepared, begin, began)
    )
    publisher.start()
    prepared.wait()
    contender.follow(stream, kind, count, begin.set, None)
    over = time.monotonic()
    publisher.join()
    spent: float = over - began.value
    return spent / count


def _publish(
    contender: Contender, stream: str, typed: bool, count: int, prepared: Any, begin: Any, began: Any
) -> None:
    """In a process of its own: make the entries, connect, and wait for the follower."""
    kind = EVENT if typed else RAW
    made = entries(kind.what, count)

    def ready() -> None:
        prepared.set()
        begin.wait()
        began.value = time.monotonic()

    contender.publish(stream, kind, made, ready)
