"""The data source `headrace`: what Spark asks first.

    spark.read.format("headrace").option("path", "data").option("stream", "orders").load()
    spark.readStream.format("headrace")…          df.write.format("headrace")…     df.writeStream…

`pyspark_headrace` makes it known to Spark by itself. The options are in `options`.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from headrace.kernel.errors import BadSettings
from headrace.spark.journal_view import JobsReader
from headrace.spark.merge import MERGED_SCHEMA, MergeReader, merge_plan
from headrace.spark.options import Options, parse_options, place_option
from headrace.spark.origin import Origin
from headrace.spark.packed_sink import PackedSink
from headrace.spark.projection import projection, shown_schema
from headrace.spark.reader import BatchReader, MicroBatchReader
from headrace.spark.sink import BatchSink, StreamSink
from headrace.spark.targets import existing_stream, target_of
from headrace.spark.views import SegmentsReader, view_schema

MERGE_OPTION, PACKED_OPTION = "mergePlan", "packed"
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
            return MergeReader(place_option(self._given), merge_plan(self.options[MERGE_OPTION]))
        options = self._options
        if options.view not in (None, HISTORY_VIEW):
            raise BadSettings(f"the view {options.view!r} is read at once, not as a stream: use spark.read")
        origin = self._origin(options)
        return MicroBatchReader(origin, options, projection(origin.about(), options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise BadSettings("a stream only grows: write with mode('append')")
        return BatchSink(target_of(self._options, schema, patient=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if overwrite:
            raise BadSettings("a stream only grows: write with outputMode('append')")
        if PACKED_OPTION in self.options:
            target, ordered = existing_stream(self._options)
            return PackedSink(target, ordered=ordered)
        return StreamSink(target_of(self._options, schema, patient=True))

    @property
    def _given(self) -> Mapping[str, str]:
        return dict(self.options.items())

    @property
    def _options(self) -> Options:
        return parse_options(self._given)

    @staticmethod
    def _origin(options: Options) -> Origin:
        if options.view == HISTORY_VIEW:
            return options.place.history(options.journal_name)
        return options.place.stream(options.stream_name)
