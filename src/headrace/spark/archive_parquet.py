"""The files of an archive: entries of a stream as one Parquet file, written by a task of Spark.

Columns keep their types. Readers that do not know Arrow see durations, which Parquet does not have, as
whole numbers in their own unit. A file is compressed with zstd, and synced before the driver hears of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.kernel.errors import BadSettings, SchemaMismatch
from headrace.log.disk import error_for
from headrace.log.plan import Span
from headrace.spark.archive_folder import ArchiveFile, StagedFile, staged_name
from headrace.spark.origin import About, Origin
from headrace.spark.projection import INDEX

_GROUP_BYTES = 64 << 20


def check_columns(about: About, *, with_index: bool) -> None:
    """Raise SchemaMismatch if there is a column that Parquet cannot hold."""
    if with_index and INDEX in about.schema.names:
        raise BadSettings(f"the stream has a field {INDEX!r} of its own: archive it without with_index")
    schema = _parquet_schema(about.schema, with_index)
    for field in schema:
        try:
            pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([field])).close()
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"the field {field.name!r} is a {field.type}, which Parquet cannot hold: {error}"
            ) from error


def write_file(origin: Origin, about: About, staged: str, with_index: bool, file: ArchiveFile) -> StagedFile:
    """Write one file aside, and sync it. One task."""
    path = Path(staged) / staged_name()
    schema, rows = _parquet_schema(about.schema, with_index), 0
    try:
        with path.open("wb") as out, pq.ParquetWriter(out, schema, compression="zstd") as writer:
            for group in _groups(origin, about, schema, with_index, file):
                writer.write_table(group, row_group_size=group.num_rows)
                rows += group.num_rows
        if not rows:
            path.unlink()
            return StagedFile(None, 0, 0)
        with path.open("rb+") as written:
            os.fsync(written.fileno())
        return StagedFile(str(path), rows, path.stat().st_size)
    except OSError as error:
        raise error_for(error, path) from error


def _groups(
    origin: Origin, about: About, schema: pa.Schema, with_index: bool, file: ArchiveFile
) -> Iterator[pa.Table]:
    """The entries of a file, in tables large enough to be compressed well and small enough for memory."""
    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in origin.read(Span(file.first, file.stop), about.schema.names):
        columns = list(batch.records.columns)
        if with_index:
            columns.append(pa.arange(batch.base_index, batch.next_index))
        waiting.append(pa.RecordBatch.from_arrays(columns, schema=schema))
        size += batch.records.nbytes
        if size >= _GROUP_BYTES:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _parquet_schema(schema: pa.Schema, with_index: bool) -> pa.Schema:
    return schema.append(pa.field(INDEX, pa.int64(), nullable=False)) if with_index else schema
