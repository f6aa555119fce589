"""Publishing: one object a call, and ready Arrow tables."""

from __future__ import annotations

from collections.abc import Iterator

import headrace as hr
from bench.measure import Aim, Figure, Run, Table, best, timed
from bench.stream import peers
from bench.stream.data import Event, events, open_stream, table


def run(run: Run) -> Iterator[Table]:
    run.say("publishing entries")
    count = run.scaled(300_000, 50_000)
    entries = events(count)
    times = best(
        run.rounds,
        {
            "headrace": lambda: _one_by_one(run, entries, "os"),
            "headrace, fsync": lambda: _one_by_one(run, entries, "fsync"),
            "SQLite": lambda: _sqlite(run, entries),
            "JSON lines": lambda: _lines(run, entries),
        },
    )
    rate = {name: count / spent for name, spent in times.items()}
    aim = Aim(value=700_000)
    rows = run.scaled(2_500_000, 1_000_000)
    batches = best(run.rounds, {"headrace": lambda: _batches(run, rows)})["headrace"]
    yield Table(
        "Publishing a 5-field entry (until flushed)",
        "publish: one dataclass object a call. SQLite: msgspec JSON, 1,000 a transaction, never synced. "
        "JSON lines: msgspec, never synced. publish_batch: Arrow tables of 65,536 rows, in one segment "
        "(finalizing one syncs 128 MiB, whatever the durability: then the disk sets the pace).",
        [
            Figure("publish, durability os", rate["headrace"], "entries/s", "SQLite", rate["SQLite"], aim),
            Figure("publish, durability os", rate["headrace"], "entries/s", "JSON lines", rate["JSON lines"]),
            Figure("publish, fsync", rate["headrace, fsync"], "entries/s", "SQLite", rate["SQLite"], aim),
            Figure("publish_batch, durability os", rows / batches / 1e6, "M rows/s", aim=Aim(value=20)),
        ],
    )


def _one_by_one(run: Run, entries: list[Event], durability: str) -> float:
    with (
        run.fresh() as path,
        hr.open(path) as store,
        open_stream(store, durability).publisher() as publisher,
        timed() as spent,
    ):
        publish = publisher.publish
        for entry in entries:
            publish(entry)
        publisher.flush()
    return spent[0]


def _batches(run: Run, rows: int) -> float:
    whole = table(rows)
    parts = [whole.slice(at, 65_536) for at in range(0, rows, 65_536)]
    with (
        run.fresh() as path,
        hr.open(path) as store,
        open_stream(store).publisher() as publisher,
        timed() as spent,
    ):
        for part in parts:
            publisher.publish_batch(part)
        publisher.flush()
    return spent[0]


def _sqlite(run: Run, entries: list[Event]) -> float:
    with run.fresh() as path:
        path.mkdir()
        with timed() as spent:
            peers.write_sqlite(path / "events.sqlite", entries)
    return spent[0]


def _lines(run: Run, entries: list[Event]) -> float:
    with run.fresh() as path:
        path.mkdir()
        with timed() as spent:
            peers.write_lines(path / "events.jsonl", entries)
    return spent[0]
