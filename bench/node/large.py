"""Ready Arrow tables through a node, beside the same in a directory: what the way over the network costs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pyarrow as pa

import headrace as hr
from bench.measure import Aim, Figure, Run, Table, best, timed
from bench.node.entries import EVENT, RAW, Kind, entries, fresh_name
from bench.node.ours import Headrace
from bench.stream.data import table as event_table
from headrace.log.queue import RAW_SCHEMA

_ROWS = 65_536


def run(run: Run, node: Headrace) -> Iterator[Table]:
    shown = Table(
        "publish_batch of Arrow through a node",
        f"Tables of {_ROWS:,} rows, each durable when the call returns. In a directory: the same by hr.open, "
        "flushed after each table.",
    )
    for kind in (RAW, EVENT):
        run.say(f"Arrow tables of {kind.what} through a node")
        tables = _tables(kind, run.scaled(60, 15))
        size = sum(each.nbytes for each in tables)
        times = best(
            run.rounds,
            {"node": partial(_remote, node, kind, tables), "directory": partial(_local, run, kind, tables)},
        )
        rate = {name: size / spent / 1e6 for name, spent in times.items()}
        figure = Figure(
            f"publish_batch, {kind.what}", rate["node"], "MB/s", "in a directory", rate["directory"], Aim(200)
        )
        shown.figures.append(figure)
    yield shown


def _tables(kind: Kind, number: int) -> list[pa.Table]:
    if kind is RAW:
        data = pa.array(entries(RAW.what, _ROWS), pa.binary())
        return [pa.Table.from_arrays([data], schema=RAW_SCHEMA)] * number
    whole = event_table(_ROWS * number)
    return [whole.slice(at * _ROWS, _ROWS) for at in range(number)]


def _remote(node: Headrace, kind: Kind, tables: list[pa.Table]) -> float:
    with hr.connect(node.url) as store:
        return _publish(store, kind, tables)


def _local(run: Run, kind: Kind, tables: list[pa.Table]) -> float:
    with run.fresh() as path, hr.open(path) as store:
        return _publish(store, kind, tables)


def _publish(store: Any, kind: Kind, tables: list[pa.Table]) -> float:
    stream = store.stream(fresh_name(), kind.type, order_by=kind.order_by)
    publisher: AbstractContextManager[Any] = stream.publisher()
    with publisher as opened, timed() as spent:
        for table in tables:
            opened.publish_batch(table)
            opened.flush()
    return spent[0]
