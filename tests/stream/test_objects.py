"""Objects made of columns again: every shape of class by its own way, in pieces, without its own code."""

from __future__ import annotations

import dataclasses
import gc
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from headrace.log.segment_reader import Batch
from headrace.stream.declaration import Declaration, declare
from headrace.stream.entry import EntryMaker, OnUnknown
from headrace.stream.objects import PIECE_ROWS, builder, dict_builder, pieces

ROWS = 10_000
"""More than one run, and not a whole number of pieces."""


@dataclass(frozen=True, slots=True)
class Slots:
    n: int
    text: str


@dataclass(slots=True)
class OpenSlots:
    n: int
    text: str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class WeakSlots:
    n: int
    text: str


@dataclass(frozen=True)
class Frozen:
    n: int
    text: str


@dataclass(frozen=True)
class Inherited(Frozen):
    more: int = 0


@dataclass
class Plain:
    n: int
    text: str


class Positions(msgspec.Struct, frozen=True):
    n: int
    text: str


class Keywords(msgspec.Struct, kw_only=True):
    n: int
    text: str


SHAPES = [Slots, OpenSlots, WeakSlots, Frozen, Inherited, Plain, Positions, Keywords]


def columns_of(cls: type) -> list[list[Any]]:
    columns: list[list[Any]] = [list(range(ROWS)), [f"text {n}" for n in range(ROWS)]]
    return [*columns, [7] * ROWS] if cls is Inherited else columns


def names_of(cls: type) -> tuple[str, ...]:
    if issubclass(cls, msgspec.Struct):
        return cls.__struct_fields__
    return tuple(field.name for field in dataclasses.fields(cls))


@pytest.mark.parametrize("cls", SHAPES)
def test_objects_are_of_their_class_and_as_if_it_had_made_them(cls: type) -> None:
    columns, names = columns_of(cls), names_of(cls)
    made = [each for piece in map(builder(cls, names), pieces(columns)) for each in piece]
    assert {type(each) for each in made} == {cls}
    assert made == [cls(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize("cls", [Slots, Frozen, Inherited, WeakSlots])
def test_objects_of_a_frozen_class_are_frozen(cls: Any) -> None:
    made = builder(cls, names_of(cls))([column[:1] for column in columns_of(cls)])[0]
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        made.n = 2


def test_dicts_have_any_names() -> None:
    names = ("it's", 'a "name"', "{n}", "class", "ä\n")
    assert dict_builder(names)([[1, 2]] * 5) == [dict.fromkeys(names, 1), dict.fromkeys(names, 2)]


def test_columns_that_are_not_equally_long_are_no_objects() -> None:
    with pytest.raises(ValueError):
        builder(Plain, ("n", "text"))([[1, 2], ["a"]])


def test_a_class_is_not_touched_by_what_makes_its_objects() -> None:
    told: list[str] = []

    @dataclass(frozen=True)
    class Telling:
        n: int

        def __init_subclass__(cls) -> None:
            told.append("a subclass")

        def __post_init__(self) -> None:
            told.append("made")

        def __del__(self) -> None:
            told.append(f"deleted {self.n}")

    build = builder(Telling, ("n",))
    assert told == []
    assert Telling.__subclasses__() == []
    build([[3]]).clear()
    assert told == ["deleted 3"]


def test_a_field_that_is_a_property_is_set_by_it() -> None:
    class Doubled:
        n: int

        def __setattr__(self, name: str, value: Any) -> None:
            raise AttributeError(name)

        @property
        def n(self) -> int:  # type: ignore[no-redef]
            return int(self.__dict__["kept"])

        @n.setter
        def n(self, value: int) -> None:
            self.__dict__["kept"] = 2 * value

    assert [each.n for each in builder(Doubled, ("n",))([[1, 2]])] == [2, 4]


# --- entries


def batch_of(declaration: Declaration, **columns: list[Any]) -> Batch:
    arrays = [pa.array(columns[field.name], field.type) for field in declaration.schema]
    return Batch(100, pa.RecordBatch.from_arrays(arrays, schema=declaration.schema), 0, 0, 0, 0)


@pytest.mark.parametrize("cls", [Slots, Frozen, Plain, Positions, Keywords])
def test_entries_come_in_order_over_all_pieces(cls: Any) -> None:
    declaration = declare(cls, "n")
    n, text = columns_of(cls)
    entries = list(EntryMaker(declaration).entries(batch_of(declaration, n=n, text=text)))
    assert [(entry.index, entry.key, entry.value) for entry in entries] == [
        (100 + at, at, cls(n=at, text=f"text {at}")) for at in range(ROWS)
    ]


@pytest.mark.parametrize("on_unknown", ["error", "skip"])
def test_entries_of_several_classes_come_in_order_over_all_pieces(on_unknown: OnUnknown) -> None:
    union = declare(Slots | Plain, "n")
    n, text = columns_of(Slots)
    classes = [Slots if at % 7 % 3 else Plain for at in range(ROWS)]
    batch = batch_of(union, n=n, text=text, _type=[cls.__name__ for cls in classes])
    entries = list(EntryMaker(union, on_unknown).entries(batch))
    assert [(entry.index, entry.key, entry.value) for entry in entries] == [
        (100 + at, at, classes[at](at, f"text {at}")) for at in range(ROWS)
    ]


def test_entries_of_unknown_classes_are_left_out_of_every_piece() -> None:
    both, one = declare(Slots | Plain, "n"), declare(Slots | Frozen, "n")
    n, text = columns_of(Slots)
    names = ["Plain" if at % 3 == 0 else "Slots" for at in range(ROWS)]
    batch = batch_of(both, n=n, text=text, _type=names)
    entries = EntryMaker(one, "skip").entries(batch)
    assert [entry.index for entry in entries] == [100 + at for at in range(ROWS) if at % 3]


def test_what_a_struct_refuses_is_raised_and_none_before_it_is_skipped() -> None:
    class Small(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            if self.n == 2000:
                raise ValueError("too large")

    declaration, seen = declare(Small), []
    entries = EntryMaker(declaration).entries(batch_of(declaration, n=list(range(ROWS))))
    with pytest.raises(ValueError, match="too large"):
        seen.extend(entry.index for entry in entries)
    assert seen == [100 + at for at in range(2000 - 2000 % PIECE_ROWS)]


@pytest.mark.parametrize("cls", [Slots, Frozen, Plain, Positions, Keywords])
def test_no_garbage_is_looked_for_while_entries_are_read_and_let_go(cls: Any) -> None:
    declaration = declare(cls, "n")
    n, text = columns_of(cls)
    batch, maker = batch_of(declaration, n=n, text=text), EntryMaker(declaration)
    collections: list[str] = []

    def count(phase: str, info: dict[str, int]) -> None:
        collections.append(phase)

    threshold = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    gc.collect()
    gc.callbacks.append(count)
    try:
        for _ in maker.entries(batch):
            pass
    finally:
        gc.callbacks.remove(count)
        gc.set_threshold(*threshold)
    assert collections == []
