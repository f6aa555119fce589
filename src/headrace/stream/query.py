"""Queries: SQL over a stream with DuckDB, in this process.

    with query(orders, "SELECT user, sum(amount) FROM orders GROUP BY user") as result:
        for batch in result: ...

DuckDB reads the stream's segments through Arrow, a batch at a time, as often as the query mentions it, and
only the columns that the query needs: it sees a *dataset* whose scanner listens to the stream. What the
stream holds when the query begins is what it sees.

DuckDB is an extra: `pip install 'headrace[query]'`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from headrace.kernel.errors import HeadraceError, MissingExtra, Refused
from headrace.log.cursor import OnDamage
from headrace.stream.stream import Stream

ALIAS = "stream"
"""A stream is a table of its own name, and of this one."""

_ROWS_AT_ONCE = 1 << 16


class BadQuery(Refused):
    """DuckDB does not understand the query, or cannot carry it out."""

    code = "bad_query"


_Explain = Callable[[Exception], Exception]


class Result:
    """The batches that answer a query."""

    def __init__(self, reader: pa.RecordBatchReader, working: _Working, explain: _Explain) -> None:
        self.schema = pa.schema([field.with_type(_in_utc(field.type)) for field in reader.schema])
        self._reader = reader
        self._working = working
        self._explain = explain

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                batch = self._working.do(lambda: next(self._reader, None))
            except Exception as error:
                raise self._explain(error) from error
            if batch is None:
                return
            yield batch.cast(self.schema)


class _Working:
    """A thread that does what may take long in DuckDB, which is deaf to signals meanwhile.

    Who waits for it is not: an interrupt, or any other end, ends the query as well.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, "headrace-query")

    def do(self, work: Callable[[], Any]) -> Any:
        return self._thread.submit(work).result()

    def close(self) -> None:
        self._connection.interrupt()
        self._thread.shutdown()
        self._connection.close()


@contextmanager
def query(
    stream: Stream,
    sql: str,
    *,
    on_damage: OnDamage | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Result]:
    """The answer to one SQL query; BadQuery says what is wrong with it.

    `progress` is called with the number of entries read each time that some were, from DuckDB's threads.
    """
    try:
        duckdb: Any = importlib.import_module("duckdb")
    except ImportError as error:
        raise MissingExtra("queries need DuckDB: pip install 'headrace[query]'") from error
    dataset = StreamDataset(stream, on_damage, progress)

    def explain(error: Exception) -> Exception:
        if dataset.failure is not None:
            return dataset.failure
        # What fails while the answer is read comes through Arrow, as an OSError without a number.
        if isinstance(error, duckdb.Error | pa.ArrowException | OSError):
            return BadQuery(_sentence(str(error)))
        return error

    connection = duckdb.connect(":memory:")
    working = _Working(connection)

    def begin() -> Any:
        relation = connection.sql(sql)
        return None if relation is None else relation.to_arrow_reader(_ROWS_AT_ONCE)

    try:
        for name in {stream.name.lower(): stream.name, ALIAS: ALIAS}.values():
            connection.register(name, dataset)
        try:
            reader = working.do(begin)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise explain(error) from error
        if reader is None:
            raise BadQuery("the statement gives no rows: ask with SELECT")
        yield Result(reader, working, explain)
    finally:
        working.close()


class StreamDataset(ds.Dataset):  # type: ignore[misc]
    """A stream as the kind of table that DuckDB asks for columns and filters.

    Only `schema` and `scanner` are asked for. `failure` is what went wrong while reading: DuckDB would hand
    on no more than its text.
    """

    def __init__(
        self, stream: Stream, on_damage: OnDamage | None, progress: Callable[[int], None] | None
    ) -> None:
        self._stream = stream
        self._stop = stream.next_index
        self._on_damage = on_damage
        self._progress = progress
        self.failure: HeadraceError | None = None

    @property
    def schema(self) -> pa.Schema:
        return self._stream.schema

    def scanner(self, columns: list[str] | None = None, filter: Any = None, **options: Any) -> ds.Scanner:  # noqa: A002
        wanted = self._columns(columns, filter)
        schema = pa.schema([self.schema.field(name) for name in wanted])
        reader = pa.RecordBatchReader.from_batches(schema, self._batches(wanted))
        return ds.Scanner.from_batches(reader, columns=columns, filter=filter, **options)

    def _columns(self, columns: list[str] | None, condition: Any) -> list[str]:
        """The columns to read: those of the answer and those that the filter may look at.

        An expression does not tell its fields, but its text has their names: one too many does no harm.
        """
        names: list[str] = self.schema.names
        if columns is None:
            return names
        text = "" if condition is None else str(condition)
        # Batches without any column have no rows: count them by the first one.
        return [name for name in names if name in columns or name in text] or names[:1]

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._stream.listen_batches(
                until=self._stop, columns=columns, on_damage=self._on_damage
            ):
                yield batch.records
                if self._progress is not None:
                    self._progress(batch.records.num_rows)
        except HeadraceError as error:
            self.failure = error
            raise


def _sentence(message: str) -> str:
    """DuckDB's message on one line, without the picture of the query below it."""
    return " ".join(message.partition("\nLINE ")[0].split())


def _in_utc(kind: pa.DataType) -> pa.DataType:
    """DuckDB gives times in the machine's zone; ours are in UTC."""
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return pa.timestamp(kind.unit, tz="UTC") if zoned else kind
