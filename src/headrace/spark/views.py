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
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.kernel.errors import BadSettings
from headrace.log.inventory import SegmentFacts
from headrace.spark.journal_view import JOBS
from headrace.spark.options import Options
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
        inventory, wanted = self._options.place.inventory, self._options.stream
        parts: list[InputPartition] = []
        for name in inventory.streams() if wanted is None else [wanted]:
            files = [str(each) for each in inventory.outset(name).listing.segments]
            for at in range(0, len(files), _FILES_TOGETHER):
                parts.append(_Files(name, tuple(files[at : at + _FILES_TOGETHER])))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, _Files):
            return
        names = self._target.names
        facts = self._options.place.inventory.facts(
            partition.stream, partition.names, checksums="checksum" in names
        )
        if facts:
            rows = [_row(partition.stream, each) for each in facts]
            wanted = [{name: row[name] for name in names} for row in rows]
            yield pa.RecordBatch.from_pylist(wanted, schema=self._target)


def _row(stream: str, facts: SegmentFacts) -> dict[str, Any]:
    finalized = facts.finalized_us
    at = None if finalized is None else dt.datetime.fromtimestamp(finalized / 1e6, dt.UTC)
    return {"stream": stream, **asdict(facts), "finalized_at": at}
