"""Taking entries in: the code behind `publish`.

Publishing one object must cost well under a microsecond, so the function that does it is written for each
declaration, as dataclasses do for `__init__`: it checks the entry's class, reads each field into a local
variable, checks that its class is the expected one (or lets the field's type convert and judge it), compares
the order key with the last one, and only then appends each value to its column. An entry that is refused has
changed nothing. The last column is appended to last (see `log.batcher`). An interrupt (Ctrl-C) may come
between two columns: what is half there is taken away, or values of this entry would stand beside those of the
next.

For `Order(at: datetime, user: str)`, ordered by `at`, it is:

    def publish(entry):
        nonlocal index, last_key, prior_key, bytes_left
        at = index + 1
        cls = entry.__class__
        if cls is cls0:
            v0 = entry.at
            if v0.__class__ is not class0 or v0.tzinfo is not UTC: v0 = check0(v0)
            v1 = entry.user
            if v1.__class__ is not class1 or not v1.isascii(): v1 = check1(v1)
        else: refuse_class(entry)
        key = v0
        if last_key is not None and key < last_key: refuse_key(key, last_key)
        prior_key = last_key
        try:
            last_key = key
            add0(v0); add1(v1)
            index = at
        except HeadraceError: raise
        except BaseException: mend(at); raise
        bytes_left -= 32 + len(v1)
        if batcher.idle: batcher.wake()
        if bytes_left <= 0: flush_now(at)
        return at
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from headrace.kernel.errors import HeadraceError, KeyOrder
from headrace.stream.columns import to_array
from headrace.stream.declaration import KEY, Declaration
from headrace.stream.errors import BadEntry
from headrace.stream.field import BadValue, FieldType
from headrace.stream.record import TAG

_VALUE_BYTES = 8
_DOUBTFUL = {
    dt.datetime: " or {v}.tzinfo is not UTC",
    int: f" or not {-(1 << 63)} <= {{v}} < {1 << 63}",
    str: " or not {v}.isascii()",
}
"""Values of the right class that must be looked at all the same: they may not be storable."""


class Waking(Protocol):
    """Who writes what is taken: a `Batcher`, or nobody."""

    idle: bool

    def wake(self) -> None: ...

    def overflow(self) -> None: ...

    def take_back(self) -> bool: ...

    def mend(self, index: int) -> bool:
        """Taking an entry in was interrupted: take away what is half there; whether `index` is whole."""
        ...


@dataclass(frozen=True, slots=True)
class Room:
    """How much is gathered before it must be written, and what is too large to be gathered with others.

    An entry that may be refused for its size must not be taken in: it would be in the way of all behind it.
    So one that has more than `entry_bytes`, where characters of text count as bytes, is given to `alone`.
    """

    flush_bytes: int
    entry_bytes: int | None = None
    alone: Callable[[Any], int] | None = None


@dataclass(frozen=True, slots=True)
class Taking:
    """`publish` takes one entry; `restart` counts bytes anew; `resume` sets index and last key.

    The last key may be HEAD only, without an entry: then even a strictly increasing key may equal it.
    """

    publish: Callable[[Any], int]
    restart: Callable[[], None]
    resume: Callable[[int, Any, bool], None]


def make_taking(
    declaration: Declaration,
    columns: Sequence[list[Any]],
    batcher: Waking,
    room: Room,
    *,
    strict: bool,
    check_id: Callable[[Any, int], None] | None = None,
    forget_id: Callable[[int], None] = lambda index: None,
    unique_by: str | None = None,
) -> Taking:
    """The functions of a publisher whose columns are the given lists, in the declaration's order."""
    names = list(declaration.columns)
    scope: dict[str, Any] = {
        "batcher": batcher,
        "flush_bytes": room.flush_bytes,
        "alone": room.alone,
        "UTC": dt.UTC,
        "refuse_class": _refuser(declaration),
        "refuse_key": _refuse_key if not strict else _refuse_equal_key,
        "check_id": check_id,
        "forget_id": forget_id,
        "names": set(declaration.columns),
        "key_of": declaration.key_function,
        "HeadraceError": HeadraceError,
    }
    for at, name in enumerate(names):
        kind = declaration.columns[name]
        scope[f"add{at}"] = columns[at].append
        scope[f"check{at}"] = _checker(name, kind)
        scope[f"class{at}"] = kind.quick
        scope[f"weigh{at}"] = partial(_weigh, kind)
    for number, variant in enumerate(declaration.variants):
        scope[f"cls{number}"] = variant.cls
        for name, kind in variant.fields.items():  # a variant's field may be stricter than its column
            if name == declaration.order_by:
                kind = kind.required("the order key")
            scope[f"check{names.index(name)}_{number}"] = _checker(name, kind)
            scope[f"class{names.index(name)}_{number}"] = kind.quick
    source = _source(declaration, names, strict, unique_by if check_id else None, room.entry_bytes)
    exec(compile(source, f"<publish {', '.join(names)}>", "exec"), scope)
    return Taking(*scope["make"]())


def _source(
    declaration: Declaration, names: list[str], strict: bool, unique_by: str | None, entry_bytes: int | None
) -> str:
    lines: list[str] = []
    if declaration.variants:
        lines.append("cls = entry.__class__")
        for at in range(len(declaration.variants)):
            lines.append(f"{'if' if at == 0 else 'elif'} cls is cls{at}:")
            lines += ["    " + line for line in _fields(declaration, names, at)]
        lines.append("else: refuse_class(entry)")
    elif declaration.raw:
        lines += ["v0 = entry", *_check(0, declaration.columns[names[0]])]
    else:
        lines.append("if entry.__class__ is not dict or not entry.keys() <= names: refuse_class(entry)")
        for at, name in enumerate(names):
            if name != KEY or declaration.key_function is None:
                key = name == declaration.order_by
                lines += [f"v{at} = entry.get({name!r})", *_check(at, declaration.columns[name], key=key)]
    if declaration.key_function is not None:
        at = names.index(KEY)
        lines += [f"v{at} = key_of(entry)", *_check(at, declaration.columns[KEY], key=True)]
    kinds = list(enumerate(declaration.columns.values()))
    size = f"{_VALUE_BYTES * len(names)}"
    size += "".join(f" + len(v{at} or '')" for at, kind in kinds if kind.sized)
    if entry_bytes is not None:
        hidden = "".join(f" + weigh{at}(v{at})" for at, kind in kinds if _is_hidden(kind))
        lines.append(f"if {size}{hidden} > {entry_bytes}: return alone(entry)")
    if declaration.order_by is not None:
        lines.append(f"key = v{names.index(declaration.order_by)}")
        backwards = "key < last_key or (key == last_key and not at_head)" if strict else "key < last_key"
        lines.append(f"if last_key is not None and ({backwards}): refuse_key(key, last_key)")
    if declaration.order_by is not None:
        lines.append("prior_key = last_key" + ("; prior_head = at_head" if strict else ""))
    lines.append("try:")
    if unique_by is not None:
        lines.append(f"    check_id(v{names.index(unique_by)}, at)")
    if declaration.order_by is not None:
        lines.append("    last_key = key" + ("; at_head = False" if strict else ""))
    lines += [
        *(f"    add{at}(v{at})" for at in range(len(names))),
        "    index = at",
        "except HeadraceError: raise",
        "except BaseException: mend(at); raise",
        f"bytes_left -= {size}",
        "if batcher.idle: batcher.wake()",
        "if bytes_left <= 0: flush_now(at)",
        "return at",
    ]
    return _MAKE.format(body="\n        ".join(lines))


_MAKE = """
def make():
    index, last_key, at_head, bytes_left = -1, None, False, flush_bytes
    prior_key, prior_head = None, False
    def publish(entry):
        nonlocal index, last_key, prior_key, at_head, prior_head, bytes_left
        at = index + 1
        {body}
    def flush_now(at):
        try:
            batcher.overflow()
        except HeadraceError:
            if batcher.take_back():
                untake(at)
                raise
    def mend(at):
        nonlocal index
        if batcher.mend(at): index = at
        else: untake(at)
    def untake(at):
        nonlocal index, last_key, at_head
        index, last_key, at_head = at - 1, prior_key, prior_head
        forget_id(at)
    def restart():
        nonlocal bytes_left
        bytes_left = flush_bytes
    def resume(next_index, key, only_head):
        nonlocal index, last_key, at_head
        index, last_key, at_head = next_index - 1, key, only_head
    return publish, restart, resume
"""


def _fields(declaration: Declaration, names: list[str], number: int) -> list[str]:
    variant, lines = declaration.variants[number], []
    for at, name in enumerate(names):
        if name in variant.fields:
            key = name == declaration.order_by
            check = _check(at, variant.fields[name], f"_{number}", key=key)
            lines += [f"v{at} = entry.{name}", *check]
        elif name == TAG:
            lines.append(f"v{at} = {variant.tag!r}")
        elif name != KEY:
            lines.append(f"v{at} = None")
    return lines


def _check(at: int, kind: FieldType, suffix: str = "", *, key: bool = False) -> list[str]:
    check = f"v{at} = check{at}{suffix}(v{at})"
    if kind.quick is None:
        return [check]
    more = _DOUBTFUL.get(kind.quick, "").format(v=f"v{at}")
    if key and kind.quick is float:
        more += f" or v{at} != v{at}"
    return [f"if v{at}.__class__ is not class{at}{suffix}{more}: {check}"]


def _is_hidden(kind: FieldType) -> bool:
    """Whether values differ in size, and only Arrow can tell."""
    if kind.sized or kind.choices is not None:
        return False
    try:
        return not kind.arrow.bit_width
    except ValueError:
        return True


def _weigh(kind: FieldType, value: Any) -> int:
    size: int = to_array([value], kind).nbytes
    return size


def _checker(name: str, kind: FieldType) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        try:
            return kind.to_plain(value)
        except BadValue as error:
            raise BadEntry(f"field {name!r}: {error}") from None

    return check


def _refuser(declaration: Declaration) -> Callable[[Any], None]:
    def refuse(entry: Any) -> None:
        if not declaration.variants and isinstance(entry, dict):
            unknown = sorted(str(name) for name in set(entry) - set(declaration.columns))
            if unknown:
                raise BadEntry(f"the stream has no field {unknown[0]!r}")
            raise BadEntry(f"this stream takes dicts, not their kind {type(entry).__name__}")
        wanted = " or ".join(variant.tag for variant in declaration.variants) or "dict"
        raise BadEntry(f"this stream takes {wanted}, not {type(entry).__name__}")

    return refuse


def _refuse_key(key: Any, last: Any) -> None:
    raise KeyOrder(f"the order key goes from {last} to {key}: it must not go back")


def _refuse_equal_key(key: Any, last: Any) -> None:
    raise KeyOrder(f"the order key goes from {last} to {key}: it must increase")
