"""What a TailProduce job is made of: its producer, its streams with their types, and their order key."""

from __future__ import annotations

import datetime as dt
import inspect
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

import pyarrow as pa

from headrace.kernel.errors import BadSettings, NotFound, SchemaMismatch
from headrace.log.keys import KeyColumn
from headrace.spark.engine import Engine
from headrace.stream.declaration import Declaration, declare
from headrace.stream.record import is_record
from headrace.stream.store import Store
from headrace.stream.stream import Stream

_MSGSPEC_CACHE = "__msgspec_cache__"
_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Typed:
    """A stream as a job declares it: workers make the declaration anew from this."""

    name: str
    kind: Any
    order_by: Any
    schema: pa.Schema
    partition_by: str | None = None

    def declaration(self) -> Declaration:
        return declare(
            self.schema if self.kind is None else self.kind, self.order_by, stored=self.kind is None
        )


@dataclass(frozen=True)
class JobSpec:
    """All that a worker must know of a job."""

    producer: type
    inputs: tuple[Typed, ...]
    output: Typed
    every: Any = None
    emit_from: Any = None

    @property
    def key(self) -> KeyColumn:
        first = self.inputs[0]
        declaration = first.declaration()
        assert declaration.order_by is not None
        return KeyColumn(first.schema, declaration.order_by)

    @property
    def state_kind(self) -> type:
        return getattr(self.producer, "State", dict)

    def engine(self) -> Engine:
        names = [each.name for each in self.inputs]
        return Engine(self.producer(), names, self.key, self.every, self.emit_from)


def open_input(store: Store, name: str, kind: Any, partition_by: str | None) -> Typed:
    if name not in store.streams():
        raise NotFound(
            f"there is no stream {name!r} in {store.path}: create it first, with store.stream({name!r}, …)"
        )
    stream = _opened(store, name, kind)
    if stream.order_by is None:
        raise BadSettings(f"stream {name!r} has no order key to be merged by: create it with order_by=...")
    if partition_by is not None and partition_by not in stream.schema.names:
        raise SchemaMismatch(f"partition_by names {partition_by!r}, which is not a field of stream {name!r}")
    return Typed(name, kind, stream.order_by, stream.schema, partition_by)


def open_output(store: Store, name: str, kind: Any, inputs: tuple[Typed, ...]) -> Typed:
    if name not in store.streams() and kind is None:
        raise NotFound(f"there is no stream {name!r} in {store.path}: give its output_type to create it")
    if name in store.streams():
        stream = _opened(store, name, kind)
    else:
        order_by = inputs[0].order_by
        stream = store.stream(name, kind, order_by)
    if kind is not None and not stream.schema.equals(stream.log.schema):
        stream.publisher().close()  # the type has grown since: so does the stream
    key = inputs[0].schema.field(inputs[0].order_by).type
    if stream.order_by is not None and stream.schema.field(stream.order_by).type != key:
        raise SchemaMismatch(
            f"output {name!r} is ordered by {stream.schema.field(stream.order_by).type}, the inputs by {key}"
        )
    return Typed(name, kind, stream.order_by, stream.schema)


def _opened(store: Store, name: str, kind: Any) -> Stream:
    """The stream, checked against the type if there is one."""
    stream = store.stream(name)
    return stream if kind is None else store.stream(name, kind, stream.order_by, **_unique(stream))


def _unique(stream: Stream) -> dict[str, Any]:
    stored = stream.log.meta.extra.get("stream", {})
    return {"unique_by": stored.get("unique_by"), "unique_window": stored.get("unique_window")}


def common_key(inputs: tuple[Typed, ...]) -> KeyColumn:
    kinds = {str(each.schema.field(each.order_by).type) for each in inputs}
    if len(kinds) > 1:
        raise SchemaMismatch(f"the inputs are ordered by keys of different types: {', '.join(sorted(kinds))}")
    return KeyColumn(inputs[0].schema, inputs[0].order_by)


def check_partitions(inputs: tuple[Typed, ...]) -> None:
    """Keys of different types would never meet."""
    kinds = {str(each.schema.field(each.partition_by).type) for each in inputs if each.partition_by}
    if len(kinds) > 1:
        raise SchemaMismatch(f"partition_by names fields of different types: {', '.join(sorted(kinds))}")


def make_portable(kind: Any) -> set[type]:
    """Make a type fit to travel to Spark's workers, with all the records in it; which are those?

    There the module that it was written in is not known: so annotations that are text are replaced by what
    they mean. And what msgspec remembers of a dataclass, in the class itself, cannot be pickled.
    """
    seen: set[type] = set()

    def visit(each: Any) -> None:
        for inner in get_args(each):
            visit(inner)
        if not is_record(each) or each in seen:
            return
        seen.add(each)
        if _MSGSPEC_CACHE in each.__dict__:
            delattr(each, _MSGSPEC_CACHE)
        own = inspect.get_annotations(each)
        try:
            hints = get_type_hints(each, include_extras=True)
        except NameError:
            return  # whoever uses it says so, with its name
        each.__annotations__ = {name: hints[name] for name in own}
        for other in (*each.__mro__[1:], *hints.values()):
            visit(other)

    visit(kind)
    return seen


def distance(given: Any, key: KeyColumn, what: str) -> Any:
    """A distance of keys as a number: timedeltas count in the key's own unit."""
    floating = pa.types.is_floating(key.type)
    if isinstance(given, dt.timedelta) and pa.types.is_timestamp(key.type):
        per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[key.type.unit]
        number = given // _MICROSECOND * per_second // 1_000_000
    elif isinstance(given, dt.timedelta) or pa.types.is_timestamp(key.type):
        raise BadSettings(f"{what} is a timedelta if, and only if, the order key is a time; not {given!r}")
    elif isinstance(given, bool) or not isinstance(given, int | float if floating else int):
        raise BadSettings(f"{what} is {'a number' if floating else 'a whole number'}, not {given!r}")
    else:
        number = given
    if not 0 < number < float("inf"):
        raise BadSettings(f"{what} must be positive, not {given!r}")
    return number
