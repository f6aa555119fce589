"""Latency: from publish() in one process to the callback of a listener in another."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import headrace as hr
from bench.measure import Aim, Figure, Run, Table, percentile
from headrace.stream import Entry

_PAUSE_S = 0.001


def run(run: Run) -> Iterator[Table]:
    run.say("latency to another process")
    count = run.scaled(2_000, 300)
    figures = []
    for durability in ("os", "fsync"):
        with run.fresh() as path:
            late_us = _measure(path, durability, count)
        aim = Aim(value=2_000) if durability == "os" else None
        figures.append(
            Figure(f"publish to callback, {durability}, p50", percentile(late_us, 50), "µs", aim=aim)
        )
        figures.append(Figure(f"publish to callback, {durability}, p99", percentile(late_us, 99), "µs"))
    yield Table(
        "Latency to a listener in another process",
        f"{count:,} entries, one about every millisecond; each carries the time of its publish().",
        figures,
    )


def _measure(path: Path, durability: str, count: int) -> list[float]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with hr.open(path) as store:
        settings = hr.Settings(durability=durability)  # type: ignore[arg-type]
        stream = store.stream("times", bytes, settings=settings)
        listener = context.Process(target=_listen, args=(path, count, theirs))
        listener.start()
        assert ours.recv() == "ready"
        with stream.publisher() as publisher:
            for _ in range(count):
                publisher.publish(time.monotonic_ns().to_bytes(8, "little"))
                time.sleep(_PAUSE_S)
        late: list[float] = ours.recv()
        listener.join()
    return late


def _listen(path: Path, count: int, results: Connection) -> None:
    late: list[float] = []

    def callback(entry: Entry) -> None:
        late.append((time.monotonic_ns() - int.from_bytes(entry.value, "little")) / 1000)

    with hr.open(path) as store:
        listener = store.stream("times").listener(callback, count=count)
        while listener.state != "caught_up":
            time.sleep(_PAUSE_S)
        results.send("ready")
        listener.join()
    results.send(late)
