"""What a TailProduce job is made of: its producer, its streams with their types, and their order key."""

from __future__ import annotations

import datetime as dt
import inspect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import pyarrow as pa

from headrace.kernel.errors import BadSettings, NotFound, SchemaMismatch
from headrace.log.keys import KeyColumn
from headrace.spark.engine import Engine, OutputColumns
from headrace.store import Store
from headrace.stream.declaration import KEY, Declaration, declare
from headrace.stream.evolve import check_evolution
from headrace.stream.plain import arrow_field_type
from headrace.stream.record import is_record
from headrace.stream.stream import Stream

if TYPE_CHECKING:
    from headrace.client.remote_stream import RemoteStream
    from headrace.spark.place import AnyStore

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
        """What its entries are, with the order key, which may have been made by a function and stored."""
        if self.kind is None:
            return declare(self.schema, self.order_by, stored=True)
        if self.order_by != KEY:
            return declare(self.kind, self.order_by)
        plain, key = declare(self.kind), self.schema.field(KEY)
        columns = {**plain.columns, KEY: arrow_field_type(key)}
        return replace(plain, columns=columns, schema=plain.schema.append(key), order_by=KEY)

    def columns(self) -> OutputColumns:
        """How outputs are stored. A key that is made by a function is not part of what a producer gives."""
        if self.kind is None:
            fields = pa.schema([field for field in self.schema if field.name != KEY])
            values = declare(fields, stored=True)
        elif self.order_by == KEY:
            values = declare(self.kind)
        else:  # with its key, so that its columns are those of the stream; order is checked by the cause
            values = replace(declare(self.kind, self.order_by), order_by=None)
        return OutputColumns(values, self.schema, self.order_by)


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


def open_input(store: AnyStore, name: str, kind: Any, partition_by: str | None) -> Typed:
    if name not in store.streams():
        raise NotFound(
            f"there is no stream {name!r} in {_where(store)}: create it first, with store.stream({name!r}, …)"
        )
    stream = _opened(store, name, kind)
    if stream.order_by is None:
        raise BadSettings(f"stream {name!r} has no order key to be merged by: create it with order_by=...")
    if partition_by is not None and partition_by not in stream.schema.names:
        raise SchemaMismatch(f"partition_by names {partition_by!r}, which is not a field of stream {name!r}")
    return Typed(name, kind, stream.order_by, stream.schema, partition_by)


def open_output(store: AnyStore, name: str, kind: Any, inputs: tuple[Typed, ...]) -> Typed:
    """The output as it is, or as it will be made when the job starts."""
    if name in store.streams():
        stream = _opened(store, name, kind)
        output = Typed(name, kind, stream.order_by, stream.schema)
    elif kind is None:
        raise NotFound(f"there is no stream {name!r} in {_where(store)}: give its output_type to create it")
    else:
        order_by = inputs[0].order_by
        output = Typed(name, kind, order_by, declare(kind, order_by).schema)
    key = inputs[0].schema.field(inputs[0].order_by).type
    if output.order_by is not None and output.schema.field(output.order_by).type != key:
        kind_of_key = output.schema.field(output.order_by).type
        raise SchemaMismatch(f"output {name!r} is ordered by {kind_of_key}, the inputs by {key}")
    return output


def make_output(store: AnyStore, output: Typed) -> None:
    """Create the output stream, or let it grow if its type has."""
    if output.name not in store.streams():
        store.stream(output.name, output.kind, output.order_by)
    stream = _opened(store, output.name, output.kind)
    if not stream.schema.equals(store.meta(output.name).schema):
        stream.publisher().close()


def _opened(store: AnyStore, name: str, kind: Any) -> Stream | RemoteStream:
    """The stream, checked against the type if there is one."""
    stream = store.stream(name)
    if kind is None:
        return stream
    meta = store.meta(name)
    if meta.order_by == KEY:
        check_evolution(meta, Typed(name, kind, KEY, stream.schema).declaration(), name)
        return stream
    stored = meta.extra.get("stream", {})
    unique = {"unique_by": stored.get("unique_by"), "unique_window": stored.get("unique_window")}
    return store.stream(name, kind, meta.order_by, **unique)


def _where(store: AnyStore) -> str:
    return str(store.path) if isinstance(store, Store) else store.url


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
    they mean.
    """
    seen: set[type] = set()

    def visit(each: Any) -> None:
        for inner in get_args(each):
            visit(inner)
        if not is_record(each) or each in seen:
            return
        seen.add(each)
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
