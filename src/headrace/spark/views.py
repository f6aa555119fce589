"""Views: what a store knows of itself, as DataFrames.

    spark.read.format("headrace").option("path", "data").option("view", "segments").load()

`segments` has one row for each file of a stream, or of all streams: its name, what it holds, its size, and a
checksum of all its bytes, which Spark's workers compute beside one another. Leave `checksum` out of the
option `columns`, and nothing but names and footers is read. `journal_view` and `journal_history` have the
views of journals.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import xxhash
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.kernel.errors import BadSettings, NotFound
from headrace.log.disk import Disk
from headrace.log.frame import HEADER_BYTES, decode_header
from headrace.log.keys import KeyColumn
from headrace.log.meta import Meta
from headrace.log.segment_name import FinalName, Listing, parse_name
from headrace.log.table import read_footer
from headrace.log.view import View
from headrace.spark.journal_view import JOBS
from headrace.spark.options import Options
from headrace.spark.origin import existing_store
from headrace.spark.types import arrow_schema, spark_schema

_SEGMENTS = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("first_index", pa.int64(), nullable=False),
        pa.field("last_index", pa.int64()),
        pa.field("first_key", pa.string()),
        pa.field("last_key", pa.string()),
        pa.field("batches", pa.int64()),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("finalized_at", pa.timestamp("us", "UTC")),
        pa.field("checksum", pa.string()),
    ]
)
_VIEWS = {"segments": _SEGMENTS, "journal": JOBS}
_FILES_TOGETHER = 64
_CHUNK = 8 << 20


def view_schema(options: Options) -> StructType:
    """The columns of the view that the options name."""
    if options.view not in _VIEWS:
        raise BadSettings(f"there is no view {options.view!r}: there are {', '.join(_VIEWS)}, history")
    whole = _VIEWS[options.view]
    for name in options.columns or ():
        if name not in whole.names:
            raise BadSettings(f"the view {options.view!r} has no column {name!r}: {', '.join(whole.names)}")
    return spark_schema(pa.schema([whole.field(name) for name in options.columns or whole.names]))


@dataclass(frozen=True, slots=True)
class _Files(InputPartition):
    stream: str
    names: tuple[str, ...]


class SegmentsReader(DataSourceReader):
    """The files of one stream, or of all."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._target = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        parts: list[InputPartition] = []
        with existing_store(self._options.path) as store:
            streams = store.streams() if self._options.stream is None else [self._options.stream]
            for name in streams:
                listing = Listing.of(Disk().names(store.stream(name).log.path))
                files = [str(each) for each in listing.segments]
                for at in range(0, len(files), _FILES_TOGETHER):
                    parts.append(_Files(name, tuple(files[at : at + _FILES_TOGETHER])))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Files):
            return
        with existing_store(self._options.path) as store:
            log = store.stream(partition.stream).log
            rows = []
            for file in partition.names:
                try:
                    rows.append(self._row(partition.stream, log.path / file, log.meta))
                except NotFound:
                    continue  # finalized or trimmed since the plan was made
        if rows:
            yield pa.RecordBatch.from_pylist(rows, schema=self._target)

    def _row(self, stream: str, path: Any, meta: Meta) -> dict[str, Any]:
        name = parse_name(path.name)
        final = isinstance(name, FinalName)
        row: dict[str, Any] = {
            "stream": stream,
            "file": path.name,
            "state": "final" if final else "active",
            "first_index": getattr(name, "first_index", 0),
        }
        with Disk().opened(path) as file:
            row["bytes"] = file.size()
            if isinstance(name, FinalName):
                row["last_index"] = name.last_index
                row["first_key"] = _key_text(meta, name.first_key)
                row["last_key"] = _key_text(meta, name.last_key)
                view = View(
                    file, salt=meta.salt, finalized=True, copying=meta.settings.containers is not None
                )
                footer = read_footer(view)
                row["batches"] = None if footer is None else len(footer)
                trailer = decode_header(
                    file.read(HEADER_BYTES, max(0, file.size() - HEADER_BYTES)), meta.salt
                )
                if trailer is not None:
                    row["finalized_at"] = dt.datetime.fromtimestamp(trailer.time_us / 1e6, dt.UTC)
            if final and "checksum" in self._target.names:
                row["checksum"] = _checksum(file, row["bytes"])
        return {name: row.get(name) for name in self._target.names}


def _key_text(meta: Meta, key: int) -> str:
    if meta.order_by is None:
        return str(key)
    value = KeyColumn(meta.schema, meta.order_by).decode(key)
    return value.isoformat() if isinstance(value, dt.datetime) else str(value)


def _checksum(file: Any, size: int) -> str:
    digest = xxhash.xxh3_64()
    for at in range(0, size, _CHUNK):
        digest.update(file.read(min(_CHUNK, size - at), at))
    return str(digest.hexdigest())
