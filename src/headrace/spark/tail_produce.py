"""TailProduce: producers over several streams, joined in the order of their keys.

    job = hr.spark.tail_produce(spark, inputs={"quotes": Quote, "trades": Trade}, output="fills",
                                output_type=Fill, partition_by="sym", store="data")

    @job.producer
    class Fills:
        State = LastQuote                                  # remembered for each `sym`; dict by default

        def on_entry(self, stream, entry, state): ...      # outputs, or None
        def on_head(self, key, state): ...                 # optional: time has passed, see `head_every`

    query = job.start("checkpoints/fills")                 # goes on for ever
    job.run("checkpoints/fills")                           # works off what is there, and ends
    job.locally(quotes=[...], trades=[...])                # plain Python over lists: what Spark gives

Spark does the work: the merging source cuts the streams into batches (`merge`), Spark groups them by bucket
and keeps the states (`processor`), and the sink lands the outputs exactly once (`packed_sink`). What a
producer does is decided by the entries alone (`engine`), so the output is the same under any batch sizes,
restarts and failures.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.kernel.errors import BadSettings, Closed
from headrace.spark.conf import ROCKSDB, SHUFFLE_PARTITIONS, STATE_STORE, settings_for
from headrace.spark.datasource import MERGE_OPTION, PACKED_OPTION
from headrace.spark.engine import Arrived, Interval, Output, in_order, to_records
from headrace.spark.explain import plain_words
from headrace.spark.job import NodeOptions, StorePlace, place_of
from headrace.spark.merge import MergePlan, bucket_of
from headrace.spark.place import Place
from headrace.spark.portable import send_by_value
from headrace.spark.processor import PRODUCED_SCHEMA, Arriving, Processor
from headrace.spark.produce_spec import (
    JobSpec,
    Typed,
    check_partitions,
    common_key,
    distance,
    make_output,
    make_portable,
    open_input,
    open_output,
)
from headrace.spark.states import States, check_state_kind
from headrace.stream.declaration import KEY
from headrace.stream.entry import EntryMaker
from headrace.stream.gather import Gathered

_NODE_OPTIONS: tuple[Literal["url", "token", "ca"], ...] = ("url", "token", "ca")


def tail_produce(
    spark: SparkSession | None,
    *,
    inputs: str | Sequence[str] | Mapping[str, Any],
    output: str,
    output_type: Any = None,
    partition_by: str | Mapping[str, str] | None = None,
    store: StorePlace = None,
    **options: Any,
) -> TailProduce:
    """A job that reads `inputs` in the order of their keys and publishes to `output`.

    `inputs` are names, or names with types; entries of inputs without a type are dicts. `partition_by`
    names the field whose values have states of their own; entries without it share one more. The output
    stream is made if it is not there, of `output_type`, ordered by the inputs' order key. `store` may be
    left out if the session says where it is (`session`); or `url`, with `token` and `ca`, names a node.

    The other options are those of `JobOptions`.
    """
    node: NodeOptions = {}
    for name in _NODE_OPTIONS:
        node[name] = options.pop(name, None)
    try:
        chosen = JobOptions(**options)
    except TypeError as error:
        known = ", ".join((*_NODE_OPTIONS, *JobOptions.__slots__))
        raise BadSettings(f"{error}: the options are {known}") from None
    place = place_of(spark, store, node)
    types = _named(inputs, output)
    fields = partition_by if isinstance(partition_by, Mapping) else dict.fromkeys(types, partition_by)
    if unknown := set(fields) - set(types):
        raise BadSettings(f"partition_by names {unknown.pop()!r}, which is not an input")
    with place.opened() as opened:
        typed = tuple(open_input(opened, name, kind, fields.get(name)) for name, kind in types.items())
        made = open_output(opened, output, output_type, typed)
        job = TailProduce(spark, place, typed, made, chosen)
        make_output(opened, made)
    return job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """How a job runs."""

    buckets: int = 8
    """How many parts the partition keys fall into, fixed for the job's life."""
    batch_entries: int = 250_000
    """Entries of a micro-batch, about, at most."""
    start_key: Any = None
    """Begin at this order key instead of the oldest entry."""
    window: Any = None
    """Read this much before `start_key` first, to build the states, and publish nothing of it."""
    head_every: Any = None
    """Call on_head at every multiple of this: a timedelta, or a number."""
    heartbeat_s: float = 5.0
    """While there are no entries, tell the output's readers so often that time has passed."""
    writer: str = "default"
    """A name, if several jobs publish to one output."""
    take_over: bool = False
    """Publish to an output that another query, whose checkpoint is lost, has published to."""


class TailProduce:
    """A job: see `tail_produce`."""

    def __init__(
        self,
        spark: SparkSession | None,
        place: Place,
        inputs: tuple[Typed, ...],
        output: Typed,
        options: JobOptions,
    ) -> None:
        """Use `tail_produce`."""
        if options.buckets < 1 or options.batch_entries < 1:
            raise BadSettings("buckets and batch_entries are numbers from 1 on")
        self._spark = spark
        self._place = place
        self._inputs = inputs
        self._output = output
        self._options = options
        self._key = common_key(inputs)
        check_partitions(inputs)
        self._buckets = options.buckets if any(each.partition_by for each in inputs) else 1
        every = options.head_every
        self._every = None if every is None else distance(every, self._key, "head_every")
        self._start, self._emit_from = self._beginning(options.start_key, options.window)
        self._producer: type | None = None

    def producer(self, cls: type) -> type:
        """Say which class produces: a decorator."""
        if not callable(getattr(cls, "on_entry", None)):
            raise BadSettings(f"{cls.__name__} has no method on_entry(self, stream, entry, state)")
        if hasattr(cls, "on_head") and self._every is None:
            raise BadSettings(
                f"{cls.__name__} has on_head: say how often it is called, tail_produce(..., head_every=...)"
            )
        check_state_kind(getattr(cls, "State", dict))
        self._producer = cls
        return cls

    # --- on Spark

    def start(
        self, checkpoint: str | os.PathLike[str], *, available_now: bool = False, **trigger: Any
    ) -> StreamingQuery:
        """Start the job; it goes on from its checkpoint. `processingTime="10 seconds"` sets a pace."""
        spec, spark = self._spec(), self._spark
        if spark is None:
            raise Closed("this job was made without a Spark session: it can only run `locally`")
        for each in (
            spec.producer,
            spec.state_kind,
            *(typed.kind for typed in (*self._inputs, self._output)),
        ):
            for cls in make_portable(each) | {spec.producer}:
                send_by_value(cls)
        plan = MergePlan(
            streams=[each.name for each in self._inputs],
            partition_by=[each.partition_by for each in self._inputs],
            buckets=self._buckets,
            entries=self._options.batch_entries,
            start=self._start,
            every=self._every if hasattr(spec.producer, "on_head") else None,
            heartbeat_s=self._options.heartbeat_s,
            position=f"tail-{self._output.name}-{self._options.writer}",
        )
        merged = (
            spark.readStream.format("headrace")
            .options(**self._place.options)
            .option(MERGE_OPTION, msgspec.json.encode(plan).decode())
            .load()
        )
        produced = merged.groupBy("bucket").transformWithState(
            Processor(spec), PRODUCED_SCHEMA, "Append", "None"
        )
        writing = (
            produced.repartition(1)  # one task has the outputs of all buckets, and puts them in their order
            .writeStream.format("headrace")
            .options(**self._place.options, stream=self._output.name, writer=self._options.writer)
            .options(**{PACKED_OPTION: "true", "takeOver": str(self._options.take_over).lower()})
            .option("checkpointLocation", _absolute(os.fspath(checkpoint)))
            .outputMode("append")
        )
        if available_now:
            writing = writing.trigger(availableNow=True)
        elif trigger:
            writing = writing.trigger(**trigger)
        parallel = min(self._buckets, spark.sparkContext.defaultParallelism)
        with settings_for(spark, {SHUFFLE_PARTITIONS: str(parallel), STATE_STORE: ROCKSDB}):
            return writing.start()

    def run(self, checkpoint: str | os.PathLike[str]) -> StreamingQuery:
        """Work off everything that is there, and end; what goes wrong is told in plain words."""
        with plain_words():
            query = self.start(checkpoint, available_now=True)
            query.awaitTermination()
        return query

    # --- in plain Python

    def locally(self, *, head: Any = None, **inputs: Sequence[Any]) -> list[Any]:
        """Run the producer over lists of entries; the outputs that Spark would publish, in their order.

        `head` is how far HEAD of all inputs has come; without it, just behind the last entry.
        """
        spec = self._spec()
        arrived: list[Arrived] = []
        for at, typed in enumerate(self._inputs):
            records = _gathered(typed, inputs.pop(typed.name, ()))
            arrived += Arriving(at, typed).arrived(records, list(range(records.num_rows)))
        if inputs:
            raise BadSettings(f"{next(iter(inputs))!r} is not an input of this job")
        arrived.sort()
        first = self._key.number(self._start) if self._start else None
        last = max((each.number for each in arrived), default=None)
        if last is None and head is None:
            return []
        end = self._key.encode(head) if head is not None else self._key.sortable(last) + 1
        stop = self._key.number(end)
        arrived = [each for each in arrived if each.number < stop and (first is None or each.number >= first)]
        outputs: list[Output] = []
        buckets: dict[int, list[Arrived]] = {}
        for each in arrived:
            buckets.setdefault(_bucket(each, self._buckets), []).append(each)
        for mine in buckets.values():
            states = States(spec.state_kind, lambda page: None, lambda page, raw: None)
            outputs += spec.engine().run(Interval(first, stop), mine, states)
            states.store()
        return self._as_published(in_order(outputs))

    # --- inside

    def _as_published(self, outputs: list[Any]) -> list[Any]:
        """The outputs as a listener of the output stream gets them."""
        records = to_records(outputs, self._output.columns(), self._key)
        plain = records.select(self._output.schema.names)
        return EntryMaker(self._output.declaration()).values(plain)

    def _spec(self) -> JobSpec:
        if self._producer is None:
            raise Closed("this job has no producer yet: decorate a class with @job.producer")
        return JobSpec(self._producer, self._inputs, self._output, self._every, self._emit_from)

    def _beginning(self, start_key: Any, window: Any) -> tuple[int, Any]:
        """The first cut, as sortable bits, and the key number from which outputs are published."""
        if start_key is None:
            if window is not None:
                raise BadSettings("a window is read before start_key: give that too")
            return 0, None
        emit_from = self._key.number(self._key.encode(start_key))
        if window is None:
            return self._key.encode(start_key), emit_from
        begin = emit_from - distance(window, self._key, "window")
        return max(0, self._key.sortable(begin)), emit_from


def _absolute(path: str) -> str:
    """A path of this process, not of the JVM's; addresses such as s3a://… stay as they are."""
    return path if "://" in path else os.path.abspath(path)


def _named(inputs: str | Sequence[str] | Mapping[str, Any], output: str) -> dict[str, Any]:
    """The inputs by name, each with its type or None."""
    names = [inputs] if isinstance(inputs, str) else list(inputs)
    if not names:
        raise BadSettings("a job needs at least one input stream")
    for name in names:
        if names.count(name) > 1:
            raise BadSettings(f"the input {name!r} is named twice")
    if output in names:
        raise BadSettings(f"{output!r} is an input and the output: a job cannot read what it publishes")
    return dict(inputs) if isinstance(inputs, Mapping) else dict.fromkeys(names)


def _gathered(typed: Typed, entries: Sequence[Any]) -> pa.RecordBatch:
    if typed.kind is not None and typed.order_by == KEY:
        raise BadSettings(
            f"the order keys of {typed.name!r} are made by a function, which is not stored: declare it "
            f"without a type, and give dicts with {KEY!r}"
        )
    gathered = Gathered(typed.declaration(), typed.schema)
    for entry in entries:
        gathered.take(entry)
    return gathered.records()


def _bucket(arrived: Arrived, buckets: int) -> int:
    return bucket_of(msgspec.msgpack.decode(arrived.partition), buckets)
