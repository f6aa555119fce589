"""The stage of a TailProduce job that runs in Spark's workers: packed entries in, packed outputs out."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from headrace.log.keys import KeyColumn
from headrace.spark import engine, portable
from headrace.spark.engine import Arrived, partition_key, to_records
from headrace.spark.merge import INTERVAL, Interval, pack_message, unpacked
from headrace.spark.produce_spec import JobSpec, Typed
from headrace.spark.projection import INDEX
from headrace.spark.states import States
from headrace.stream.entry import Entry, EntryMaker

PRODUCED_SCHEMA = StructType(
    [
        StructField("bucket", IntegerType(), False),
        StructField("cut", StringType(), False),
        StructField("packed", BinaryType(), True),
    ]
)
_PAGE = StructType([StructField("page", IntegerType())])
_STATE = StructType([StructField("state", BinaryType())])


class Arriving:
    """Makes entries of the batches of one input."""

    def __init__(self, stream: int, typed: Typed) -> None:
        declaration = typed.declaration()
        assert declaration.order_by is not None
        self._stream = stream
        self._typed = typed
        self._maker = EntryMaker(declaration)
        self._order_by = declaration.order_by

    def arrived(self, records: pa.RecordBatch, indexes: list[int]) -> list[Arrived]:
        numbers = KeyColumn(records.schema, self._order_by).numbers(records).to_pylist()
        keys, values = self._maker.keys_and_values(records)
        entries = map(Entry, indexes, keys, values)
        return list(
            map(Arrived, numbers, [self._stream] * len(numbers), indexes, self._partitions(records), entries)
        )

    def _partitions(self, records: pa.RecordBatch) -> list[bytes]:
        field = self._typed.partition_by
        if field is None:
            return [_NO_PARTITION] * records.num_rows
        column = records.column(records.schema.get_field_index(field)).dictionary_encode()
        keys = [partition_key(value) for value in column.dictionary.to_pylist()]
        return [_NO_PARTITION if at is None else keys[at] for at in column.indices.to_pylist()]


_NO_PARTITION = partition_key(None)


class Processor(StatefulProcessor):
    """Runs a job's producer for one bucket after another."""

    def __init__(self, spec: JobSpec) -> None:
        self._spec = spec

    def __getstate__(self) -> bytes:
        return portable.dumps(self._spec)

    def __setstate__(self, spec: bytes) -> None:
        self._spec = portable.loads(spec)

    def init(self, handle: Any) -> None:
        self._pages = handle.getMapState("pages", _PAGE, _STATE)
        self._engine = self._spec.engine()
        self._key = self._spec.key
        self._arriving = [Arriving(at, typed) for at, typed in enumerate(self._spec.inputs)]
        self._output = self._spec.output.columns()

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        with _without_collections():
            produced = self._produced(key[0], rows)
        yield produced

    def _produced(self, bucket: int, rows: Iterator[Row]) -> Row:
        interval, arrived = None, list[Arrived]()
        for row in rows:
            if row.stream == INTERVAL:
                interval = msgspec.json.decode(bytes(row.packed), type=Interval)
                continue
            records = unpacked(bytes(row.packed))
            indexes = records.column(records.schema.get_field_index(INDEX)).to_pylist()
            arrived += self._arriving[row.stream].arrived(records.drop_columns([INDEX]), indexes)
        assert interval is not None, "every bucket is told of every interval"
        arrived.sort()  # by key, stream and index, which no two of them share
        states = States(self._spec.state_kind, self._load, self._save)
        start = self._key.number(interval.start) if interval.start else None
        numbers = engine.Interval(start, self._key.number(interval.stop))
        outputs = self._engine.run(numbers, arrived, states)
        records = to_records(outputs, self._output, self._key)
        states.store()
        packed = pack_message(records) if records.num_rows else None
        return Row(bucket=bucket, cut=str(interval.stop), packed=packed)

    def close(self) -> None: ...

    def _load(self, page: int) -> bytes | None:
        found = self._pages.getValue((page,))
        return None if found is None else bytes(found[0])

    def _save(self, page: int, state: bytes | None) -> None:
        if state is None:
            self._pages.removeKey((page,))
        else:
            self._pages.updateValue((page,), (state,))


@contextmanager
def _without_collections() -> Iterator[None]:
    """No garbage collection meanwhile: hundreds of thousands of entries live, none of them in a circle."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
