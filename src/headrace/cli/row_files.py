"""Files of rows: which format a file has, and how it is read a block at a time.

    jsonl      one JSON object a line (.jsonl, .ndjson, .json)
    csv        with the names of the fields in the first row (.csv)
    parquet    (.parquet, .pq)
    arrow      Arrow IPC, stream or file (.arrow, .arrows, .ipc, .feather)
    lines      one entry a line, for streams of plain bytes

`-` is stdin. Parquet needs to jump about in its file, so from a pipe it goes through a temporary one.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import typer

from headrace.cli.counted import Counted
from headrace.cli.csv_file import CsvFile
from headrace.cli.inferred import decided
from headrace.cli.line_files import JsonLinesFile, PlainLinesFile
from headrace.cli.rows import BLOCK_BYTES, BLOCK_ROWS_MAX, RowFile, Rows, gathered, read_by_arrow

FileFormat = Literal["jsonl", "csv", "parquet", "arrow", "lines"]

_SUFFIXES: dict[str, FileFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
_FILE_MAGIC = b"ARROW1"


def guess_format(name: str, otherwise: FileFormat | None = None) -> FileFormat:
    """The format that a file's suffix tells; a usage error if it tells none."""
    found = _SUFFIXES.get(Path(name).suffix.lower(), otherwise)
    if found is None:
        raise typer.BadParameter(f"what format {name} has cannot be guessed", param_hint="--format")
    return found


@contextmanager
def opened_file(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as file:
            yield file


def open_rows(file: BinaryIO, name: str, form: FileFormat | None) -> RowFile:
    """The rows of an open file."""
    match form or guess_format(name):
        case "jsonl":
            return JsonLinesFile(file)
        case "lines":
            return PlainLinesFile(file)
        case "csv":
            return CsvFile(file)
        case "parquet":
            return ParquetFile(file, name)
        case "arrow":
            return ArrowFile(file, name)


class ParquetFile:
    unit = "row"

    def __init__(self, file: BinaryIO, name: str) -> None:
        with read_by_arrow(lambda: f"{name} is not a Parquet file"):
            self._file: Any = pq.ParquetFile(file if file.seekable() else _spooled(file))
        self._name = name
        self._done = 0

    def schema(self) -> pa.Schema:
        return decided(self._file.schema_arrow)

    def rows(self, schema: pa.Schema) -> Iterator[Rows]:
        about = self._file.metadata
        size = sum(about.row_group(at).total_byte_size for at in range(about.num_row_groups))
        at_once = max(1, min(BLOCK_ROWS_MAX, about.num_rows * BLOCK_BYTES // max(size, 1)))
        batches = self._file.iter_batches(batch_size=at_once)
        while True:
            with read_by_arrow(lambda: f"{self._name} cannot be read after row {self._done}"):
                records = next(batches, None)
            if records is None:
                return
            start = self._done + 1
            self._done += records.num_rows
            yield Rows(records, range(start, self._done + 1))

    def progress(self) -> tuple[int, int]:
        return self._done, self._file.metadata.num_rows


class ArrowFile:
    """Both formats are read as a stream: a file is one, between a magic number and a footer."""

    unit = "row"

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._name = name
        self._source = Counted(file)
        head = self._source.read(len(_FILE_MAGIC) + 2)
        if not head.startswith(_FILE_MAGIC):
            self._source.put_back(head)
        with read_by_arrow(lambda: f"{name} is not an Arrow IPC stream or file"):
            self._reader = pa.ipc.open_stream(self._source)

    def schema(self) -> pa.Schema:
        return decided(self._reader.schema)

    def rows(self, schema: pa.Schema) -> Iterator[Rows]:
        start = 1
        for records in gathered(self._batches()) if self._source.size else self._batches():
            yield Rows(records, range(start, start + records.num_rows))
            start += records.num_rows

    def _batches(self) -> Iterator[pa.RecordBatch]:
        batches = iter(self._reader)
        while True:
            with read_by_arrow(lambda: f"{self._name} is cut short or damaged"):
                records = next(batches, None)
            if records is None:
                return
            yield records

    def progress(self) -> tuple[int, int]:
        return self._source.done, self._source.size


def _spooled(file: BinaryIO) -> BinaryIO:
    spool: Any = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the reader does)
    shutil.copyfileobj(file, spool, 1 << 20)
    spool.seek(0)
    return spool  # type: ignore[no-any-return]
