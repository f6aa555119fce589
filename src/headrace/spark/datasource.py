"""The data source `headrace`: what Spark asks first.

    spark.read.format("headrace").option("path", "data").option("stream", "orders").load()
    spark.readStream.format("headrace")…          df.write.format("headrace")…     df.writeStream…

`pyspark_headrace` makes it known to Spark by itself. The options are in `options`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.kernel.errors import BadSettings
from headrace.spark.journal_history import JournalOrigin
from headrace.spark.journal_sink import jobs_target
from headrace.spark.journal_view import JobsReader
from headrace.spark.merge import MERGED_SCHEMA, MergeReader, merge_plan
from headrace.spark.options import Options, parse_options
from headrace.spark.origin import FileOrigin, Origin
from headrace.spark.packed_sink import PackedSink, PackedTarget
from headrace.spark.projection import projection, shown_schema
from headrace.spark.reader import BatchReader, MicroBatchReader
from headrace.spark.sink import BatchSink, StreamSink, Target, sink_target
from headrace.spark.through_node import check_for_node, node_origin, node_sink
from headrace.spark.views import SegmentsReader, view_schema

MERGE_OPTION, PACKED_OPTION = "mergePlan", "packedInto"
"""How TailProduce jobs ask for their own source and sink."""

HISTORY_VIEW = "history"
"""The one view that is read like a stream."""


class HeadraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        if MERGE_OPTION in self.options:
            return MERGED_SCHEMA
        options = self._options
        if options.view not in (None, HISTORY_VIEW):
            return view_schema(options)
        return shown_schema(self._origin(options).about(), options)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options
        if options.view == "journal":
            return JobsReader(options, schema)
        if options.view not in (None, HISTORY_VIEW):
            return SegmentsReader(options, schema)
        origin = self._origin(options)
        return BatchReader(origin, options, projection(origin.about(), options, schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        if MERGE_OPTION in self.options:
            return MergeReader(merge_plan(self.options[MERGE_OPTION]))
        options = self._options
        if options.view not in (None, HISTORY_VIEW):
            raise BadSettings(f"the view {options.view!r} is read at once, not as a stream: use spark.read")
        origin = self._origin(options)
        return MicroBatchReader(origin, options, projection(origin.about(), options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise BadSettings("a stream only grows: write with mode('append')")
        return BatchSink(self._target(schema, patient=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise BadSettings("a stream only grows: write with outputMode('append')")
        if PACKED_OPTION in self.options:
            return PackedSink(msgspec.json.decode(self.options[PACKED_OPTION], type=PackedTarget))
        return StreamSink(self._target(schema, patient=True))

    @property
    def _options(self) -> Options:
        options = parse_options(_plain(self.options))
        check_for_node(options)
        return options

    def _target(self, schema: StructType, *, patient: bool) -> Target:
        """Where rows go. `patient`: a query is under way, and waits for a node that is away."""
        options = self._options
        if options.url is not None:
            return node_sink(options, schema, patient=patient)
        if options.journal is not None:
            return jobs_target(options, schema)
        return sink_target(options, schema)

    @staticmethod
    def _origin(options: Options) -> Origin:
        if options.url is not None:
            return node_origin(options)
        if options.view == HISTORY_VIEW:
            return JournalOrigin(options.path, options.journal_name)
        return FileOrigin(options.path, options.stream_name)


def _plain(options: Any) -> dict[str, str]:
    return dict(options.items())
