"""Listening: entries as objects, as Arrow, and one column of ten."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import headrace as hr
from bench.measure import Aim, Figure, Run, Table, best, timed
from bench.stream import peers
from bench.stream.data import Event, events, fill, ten_columns


def run(run: Run) -> Iterator[Table]:
    run.say("listening to entries")
    count = run.scaled(300_000, 50_000)
    rows = run.scaled(4_000_000, 500_000)
    with run.fresh() as path:
        path.mkdir()
        entries = events(count)
        peers.write_sqlite(path / "events.sqlite", entries)
        peers.write_lines(path / "events.jsonl", entries)
        del entries
        fill(path / "store", count)
        fill(path / "large", rows)
        _fill_wide(path / "wide", rows)
        times = best(
            run.rounds,
            {
                "objects": lambda: _objects(path / "store"),
                "SQLite": lambda: _spent(peers.read_sqlite(path / "events.sqlite")),
                "JSON lines": lambda: _spent(peers.read_lines(path / "events.jsonl")),
                "Arrow": lambda: _arrow(path / "large", "events", None),
                "ten": lambda: _arrow(path / "wide", "wide", None),
                "one": lambda: _arrow(path / "wide", "wide", ["c4"]),
            },
        )
    rate = {name: count / times[name] for name in ("objects", "SQLite", "JSON lines")}
    arrow = {name: rows / times[name] / 1e6 for name in ("Arrow", "ten", "one")}
    yield Table(
        "Listening to a 5-field entry",
        "As objects: dataclasses in a for loop. Arrow batches are checked (every checksum), not decoded. "
        "Everything is in the page cache.",
        [
            Figure(
                "listen, objects",
                rate["objects"],
                "entries/s",
                "SQLite",
                rate["SQLite"],
                Aim(value=1_000_000),
            ),
            Figure("listen, objects", rate["objects"], "entries/s", "JSON lines", rate["JSON lines"]),
            Figure("listen_batches", arrow["Arrow"], "M rows/s", aim=Aim(value=50)),
            Figure("one column of ten", arrow["one"], "M rows/s", "all ten", arrow["ten"], Aim(ratio=3)),
        ],
    )


def _objects(path: Path) -> float:
    with hr.open(path) as store:
        return _spent(store.stream("events", Event, order_by="at").listen())


def _spent(entries: Iterable[object]) -> float:
    with timed() as spent:
        deque(entries, maxlen=0)
    return spent[0]


def _arrow(path: Path, name: str, columns: list[str] | None) -> float:
    with hr.open(path) as store, timed() as spent:
        deque(store.stream(name).listen_batches(columns=columns), maxlen=0)
    return spent[0]


def _fill_wide(path: Path, rows: int) -> None:
    table = ten_columns(rows)
    with hr.open(path) as store:
        stream = store.stream("wide", table.schema, settings=hr.Settings(durability="os"))
        with stream.publisher() as publisher:
            for at in range(0, rows, 65_536):
                publisher.publish_batch(table.slice(at, 65_536))
