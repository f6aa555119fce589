"""States: what a producer remembers is there again in the next batch, and nothing else is."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernel.errors import SchemaMismatch
from headrace.spark.engine import partition_key
from headrace.spark.states import PAGES, States, page_of


@dataclass
class Point:
    x: float = 0.0
    seen: list[int] = field(default_factory=list)


class Last(msgspec.Struct):
    x: float = 0.0
    of: tuple[int, str] | None = None
    by: dict[int, Point] = {}


class Kept:
    """Pages as Spark keeps them, counting what is asked."""

    def __init__(self) -> None:
        self.pages: dict[int, bytes] = {}
        self.loaded: list[int] = []
        self.saved: list[int] = []

    def batch(self, kind: Any = dict) -> States:
        self.loaded, self.saved = [], []
        return States(kind, self._load, self._save)

    def _load(self, page: int) -> bytes | None:
        self.loaded.append(page)
        return self.pages.get(page)

    def _save(self, page: int, raw: bytes | None) -> None:
        self.saved.append(page)
        if raw is None:
            del self.pages[page]
        else:
            self.pages[page] = raw


def test_a_state_is_there_in_the_next_batch_as_its_type() -> None:
    kept = Kept()
    states = kept.batch(Last)
    state = states.get(b"k")
    state.x, state.of, state.by = 1.5, (3, "three"), {7: Point(2.0, [1, 2])}
    states.store()
    again = kept.batch(Last).get(b"k")
    assert again == state
    assert again is not state
    assert isinstance(again.by[7], Point)


def test_a_state_as_new_is_not_kept() -> None:
    kept = Kept()
    states = kept.batch(Point)
    states.get(b"k").x = 1.0
    states.store()
    states = kept.batch(Point)
    states.get(b"k").x = 0.0
    assert states.all() == []
    states.store()
    assert kept.pages == {}


def test_looking_at_states_stores_nothing() -> None:
    kept = Kept()
    states = kept.batch(Point)
    states.get(b"k").x = 1.0
    states.store()
    states = kept.batch(Point)
    assert states.get(b"k").x == 1.0
    states.get(b"another")
    states.store()
    assert kept.saved == []


def test_a_page_is_loaded_and_saved_once_however_many_states_are_on_it() -> None:
    kept = Kept()
    states = kept.batch()
    keys = [partition_key(number) for number in range(1000)]
    for key in keys + keys:
        states.get(key)["n"] = states.get(key).get("n", 0) + 1
    states.store()
    assert sorted(kept.saved) == sorted(kept.loaded) == sorted({page_of(key) for key in keys})
    states = kept.batch()
    states.get(keys[0])["n"] = 5
    states.store()
    assert kept.saved == kept.loaded == [page_of(keys[0])]
    assert {page_of(key) for key in keys} == set(range(PAGES))


changes = st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["add", "drop", "look", "batch"])))


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(changes)
def test_states_are_a_map_that_forgets_what_is_as_new(changes: list[tuple[int, str]]) -> None:
    kept, plain = Kept(), dict[bytes, dict[str, int]]()
    states = kept.batch()
    for number, change in changes:
        key = partition_key(number)
        match change:
            case "add":
                state = states.get(key)
                state["n"] = state.get("n", 0) + 1
                plain.setdefault(key, {"n": 0})["n"] += 1
            case "drop":
                states.get(key).clear()
                plain.pop(key, None)
            case "look":
                assert states.get(key) == plain.get(key, {})
                assert states.all() == sorted(plain.items())
            case "batch":
                states.store()
                states = kept.batch()
    states.store()
    assert kept.batch().all() == sorted(plain.items())


@pytest.mark.parametrize("value", [(1, 2), {1, 2}, Point(1.0), 1 << 70, lambda: None, object()])
def test_what_would_not_come_back_as_it_is_is_refused(value: Any) -> None:
    states = Kept().batch()
    states.get(b"k")["v"] = value
    with pytest.raises(
        SchemaMismatch, match=r"the state \{.v.: .*(cannot be stored|would come back as).*State"
    ):
        states.store()


def test_nothing_is_saved_if_one_state_is_refused() -> None:
    kept = Kept()
    states = kept.batch()
    states.get(b"good")["v"] = 1
    states.get(b"bad")["v"] = object()
    with pytest.raises(SchemaMismatch):
        states.store()
    assert kept.saved == []


def test_not_a_number_is_a_state_like_any_other() -> None:
    kept = Kept()
    states = kept.batch(Point)
    states.get(b"k").x = math.nan
    states.store()
    assert math.isnan(kept.batch(Point).get(b"k").x)
