"""`headrace stream query`: SQL over a stream, without a server."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Annotated

import pyarrow as pa
import typer

from headrace.cli.console import Console
from headrace.cli.log_open import SkipDamaged
from headrace.cli.log_read import Damages, damage_explained
from headrace.cli.options import Json
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, StreamName, opened_stream
from headrace.cli.stream_output import Format, chosen_format, make_output
from headrace.kernel.errors import SchemaMismatch
from headrace.log import Batch


def query(
    name: StreamName,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One query, as DuckDB understands it.")],
    format: Format = None,  # noqa: A002
    skip_damaged: SkipDamaged = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Run SQL over a stream.

    The stream is a table of its own name (in double quotes if it has dashes or dots) and also `stream`. Only
    the columns that the query needs are read. This needs DuckDB: pip install 'headrace\\[query]'.
    """
    from headrace.stream.query import query as run_query  # its datasets load pandas: half a second

    console, damages = Console(json), Damages(Console(json))
    form = chosen_format(format, json, raw=False)
    with (
        opened_stream(store, name) as stream,
        console.progress("querying") as advance,
        damage_explained(stream.log.path),
    ):
        lock, done, total = threading.Lock(), 0, max(stream.info().entries, 1)

        def read(count: int) -> None:
            nonlocal done
            with lock:  # DuckDB reads with several threads
                done = min(done + count, total)  # a stream that is joined with itself is read twice
                advance(done, total)

        on_damage = damages if skip_damaged else None
        with run_query(stream, sql, on_damage=on_damage, progress=read) as result:
            _check_names(result.schema)
            output = make_output(console, result.schema, form, numbered=False)
            index = 0
            try:
                for records in result:
                    batch = Batch(index, records if form == "arrow" else _with_numbers(records), 0, 0, 0, 0)
                    output.print(batch)
                    index = batch.next_index
            finally:
                output.end()
    damages.end()


def _with_numbers(records: pa.RecordBatch) -> pa.RecordBatch:
    """DuckDB adds integers up in 128 bits, which Arrow calls decimals: as numbers, if they can be."""
    columns = []
    for column in records.columns:
        if pa.types.is_decimal(column.type) and column.type.scale == 0:
            with suppress(pa.ArrowInvalid):
                column = column.cast(pa.int64())
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, records.schema.names)


def _check_names(schema: pa.Schema) -> None:
    for name in schema.names:
        if schema.names.count(name) > 1:
            raise SchemaMismatch(f"the answer has two columns {name!r}: give one another name with AS")
