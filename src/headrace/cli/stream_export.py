"""`headrace stream export`: a stream, or a range of it, as one file.

The file is written aside and put in its place when it is whole. Only a few batches are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import msgspec
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import typer

from headrace.cli.aside import file_made_aside
from headrace.cli.console import Console, printable
from headrace.cli.csv_file import is_text_for_arrow
from headrace.cli.log_open import SkipDamaged
from headrace.cli.log_read import Damages
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import format_size, plural
from headrace.cli.row_files import guess_format
from headrace.cli.rows import gathered
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, StreamName, is_union, opened_stream
from headrace.cli.stream_range import Columns, Range, chosen_columns, projected
from headrace.kernel.errors import Refused, SchemaMismatch
from headrace.stream import Stream
from headrace.wire.json_rows import column_values, rows_of

ExportFormat = Literal["parquet", "csv", "jsonl", "arrow"]
_GROUP_ROWS, _GROUP_BYTES = 1 << 20, 64 << 20
"""A row group of Parquet: large enough to be compressed well, small enough for memory."""


@with_options
def export(
    name: StreamName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.", show_default=False)],
    range: Range,  # noqa: A002
    columns: Columns = None,
    format: Annotated[  # noqa: A002
        ExportFormat | None, typer.Option(help="What to write.", show_default="by the suffix")
    ] = None,
    skip_damaged: SkipDamaged = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Write entries to a file: Parquet, CSV, JSON lines or Arrow.

    A file that is there is replaced once the new one is whole; a pipe or a device is written to. Parquet is
    compressed with zstd; Arrow is an IPC file. In CSV, bytes and nested values are in the form they have in
    JSON.
    """
    form = format or guess_format(str(file))
    if form == "lines" or file.is_dir():
        raise Refused(f"{file} is a directory: give the name of a file")
    console, damages, count = Console(json), Damages(Console(json)), 0
    with opened_stream(store, name) as stream, file_made_aside(file) as beside:
        chosen = chosen_columns(columns, stream.schema)
        on_damage = damages if skip_damaged else None
        with console.progress("exporting") as advance, _writer(beside, form, stream, chosen) as writer:
            batches = (b.records for b in range.read(stream, chosen, console, advance, on_damage))
            for records in gathered(batches, _GROUP_ROWS, _GROUP_BYTES):
                writer.write(records)
                count += records.num_rows
    size = file.stat().st_size
    facts = {"name": name, "path": printable(file), "format": form, "count": count, "bytes": size}
    text = f"exported {plural(count, 'entry', 'entries')} to {file}, {format_size(size)}"
    console.answer(facts | {"damages": damages.found}, text)
    damages.end()


class Writer(Protocol):
    def write(self, records: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


@contextmanager
def _writer(path: Path, form: ExportFormat, stream: Stream, columns: list[str] | None) -> Iterator[Writer]:
    """What writes batches to a file, which is whole when the block ends."""
    schema = projected(stream.schema, columns)
    makers: dict[ExportFormat, Any] = {"parquet": _Parquet, "csv": _Csv, "arrow": _Arrow}
    with path.open("wb") as file:
        try:
            writer: Writer = (
                _JsonLines(file, is_union(stream)) if form == "jsonl" else makers[form](file, schema)
            )
            try:
                yield writer
            except BaseException:
                with suppress(Exception):  # it wants to end its file, of which nothing will be kept
                    writer.close()
                raise
            writer.close()
        except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
            raise SchemaMismatch(f"stream {stream.name!r} cannot be written as {form}: {error}") from error


class _Parquet:
    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._writer = pq.ParquetWriter(file, schema, compression="zstd")

    def write(self, records: pa.RecordBatch) -> None:
        self._writer.write_batch(records)

    def close(self) -> None:
        self._writer.close()


class _Arrow(_Parquet):
    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._writer = pa.ipc.new_file(file, schema)


class _Csv(_Parquet):
    def __init__(self, file: Any, schema: pa.Schema) -> None:
        self._schema = pa.schema(
            [one if is_text_for_arrow(one.type) else pa.field(one.name, pa.string()) for one in schema]
        )
        self._writer = csv.CSVWriter(file, self._schema)

    def write(self, records: pa.RecordBatch) -> None:
        columns = [
            column if column.type == field.type else pa.array(map(_cell, column_values(column)), pa.string())
            for column, field in zip(records.columns, self._schema, strict=True)
        ]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))


class _JsonLines:
    def __init__(self, file: Any, sparse: bool) -> None:
        self._file = file
        self._sparse = sparse
        self._encoder = msgspec.json.Encoder()

    def write(self, records: pa.RecordBatch) -> None:
        for start in range(0, records.num_rows, 1 << 15):
            part = records.slice(start, 1 << 15)
            self._file.write(self._encoder.encode_lines(rows_of(part, sparse=self._sparse)))

    def close(self) -> None:
        pass


def _cell(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
