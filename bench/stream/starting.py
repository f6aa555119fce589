"""Starting to listen at an order key in the middle of a stream of 1,000 segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import headrace as hr
from bench.measure import Aim, Figure, Run, Table, percentile, timed
from bench.stream.data import START, Event, table
from headrace.log import Finalize

_ROWS = 100


def run(run: Run) -> Iterator[Table]:
    run.say("starting in the middle of 1,000 segments")
    segments = 1_000
    with run.fresh() as path:
        _fill(path, segments)
        key = START + (segments * _ROWS // 2) * (START.resolution)
        with hr.open(path) as store:
            stream = store.stream("events", Event, order_by="at")
            times = [_first(stream, key) for _ in range(run.scaled(50, 10))]
    middle = percentile(times, 50) * 1e3
    figure = Figure(f"listen(at_key) in {segments:,} segments, p50", middle, "ms", aim=Aim(value=20))
    yield Table("Starting at an order key", "Until the first entry is there.", [figure])


def _fill(path: Path, segments: int) -> None:
    settings = hr.Settings(durability="os", finalize=Finalize(entries=_ROWS))
    rows = table(segments * _ROWS)
    with hr.open(path) as store:
        stream = store.stream("events", Event, order_by="at", settings=settings)
        with stream.publisher() as publisher:
            for at in range(0, rows.num_rows, _ROWS):
                publisher.publish_batch(rows.slice(at, _ROWS))


def _first(stream: hr.Stream, key: object) -> float:
    with timed() as spent:
        next(iter(stream.listen(hr.at_key(key))))
    return spent[0]
