"""One suite over a journal in a directory and one on a node: what values do, wherever they are."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from headrace.journal.errors import (
    BadRequest,
    KeyTaken,
    Locked,
    MemoryFull,
    NoSuchKey,
    OutOfRange,
    WrongType,
)
from headrace.journal.value import Type
from headrace.kernel.durations import BadDuration
from headrace.kernel.errors import TooLarge

from .journals import WAYS, Journals, journals_of
from .test_journals import quick, same, texts, values


@pytest.fixture(scope="module", params=WAYS)
def journals(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journals]:
    with journals_of(request.param, tmp_path_factory.mktemp("journals") / "store") as made:
        yield made


@pytest.fixture
def kept(journals: Journals) -> Any:
    return journals.new()


@quick
@given(key=texts.filter(lambda key: not key.startswith("\0")), value=values)
def test_a_value_is_kept_exactly(kept: Any, key: str, value: Any) -> None:
    assert kept.set(key, value) is True
    found = kept.get(key)
    assert found.key == key
    assert same(found.value, value)
    assert next(kept.range(key, key)).key == key
    assert kept.delete(key) is True
    assert kept.get(key) is None


def test_what_is_known_of_a_value(kept: Any) -> None:
    kept.set("k", "text", ttl="1h", timestamp_us=5)
    value = kept.get("k", touch=True)
    assert (value.value, value.type, value.ttl_us, value.timestamp_us) == (
        "text",
        Type.STRING,
        3_600_000_000,
        5,
    )
    assert value.created_us <= value.modified_us < value.expires_us
    probed = kept.probe("k")
    assert (probed.value, probed.type, probed.keys, probed.locked, probed.persist) == (
        None, Type.STRING, (), False, True
    )  # fmt: skip
    assert kept.probe("none") is None
    kept.get("k", lease="1h")
    assert kept.probe("k").locked
    kept.set("memory", 1, persist=False)
    assert not kept.get("memory").persist
    assert kept.stats().values == 2


def test_the_latest_write_wins_whoever_comes_last(kept: Any) -> None:
    assert kept.set("k", "new", timestamp_us=10)
    assert not kept.set("k", "old", timestamp_us=5)
    assert not kept.delete("k", timestamp_us=5)
    assert kept.delete("k", timestamp_us=20)
    assert not kept.set("k", "late", timestamp_us=15)
    assert kept.get("k") is None
    kept.set("k", "again", timestamp_us=30)
    assert kept.delete("k", now=True, timestamp_us=30)
    assert kept.set("k", "old", timestamp_us=1)


def test_a_value_ends(kept: Any) -> None:
    kept.set("k", 1, ttl="1ms")
    while kept.get("k") is not None:
        pass
    assert list(kept.range()) == []


def test_numbers_are_added_and_booleans_turned_over(kept: Any) -> None:
    kept.set("n", 5)
    kept.set("f", 0.5)
    kept.set("b", False)
    assert kept.add("n", -7) == -2
    assert kept.add("f", 1.25) == 1.75
    assert kept.add("f", float("inf")) == float("inf")
    assert (kept.flip("b"), kept.flip("b")) == (True, False)


def test_a_value_is_cut_or_filled_up(kept: Any) -> None:
    kept.set("k", b"abc")
    kept.resize("k", 1)
    assert kept.get("k").value == b"a"
    kept.resize("k", 3)
    assert kept.get("k").value == b"a\0\0"


def test_a_value_has_several_keys(kept: Any) -> None:
    kept.set("a", 1)
    kept.link("a", "b")
    kept.rename("a", "c")
    assert sorted(kept.get("c").keys) == ["b", "c"]
    kept.add("b", 1)
    assert kept.get("c").value == 2
    assert kept.get("a") is None
    kept.delete("c")
    assert kept.get("b") is None


@pytest.mark.parametrize(
    "me", ["me", 5, ("some", "thing"), object()], ids=["text", "number", "tuple", "object"]
)
def test_a_lock_belongs_to_its_owner(kept: Any, me: Any) -> None:
    kept.set("k", 1)
    kept.lock("k", me, until="1h")
    kept.lock("k", me, until="1h")
    assert kept.probe("k").locked
    others = [
        lambda: kept.set("k", 2),
        lambda: kept.set("k", 2, owner="other"),
        lambda: kept.add("k", 1),
        lambda: kept.flip("k"),
        lambda: kept.resize("k", 1, owner="other"),
        lambda: kept.delete("k"),
        lambda: kept.rename("k", "l"),
        lambda: kept.link("k", "l"),
        lambda: kept.lock("k", "other"),
        lambda: kept.unlock("k", "other"),
    ]
    for change in others:
        with pytest.raises(Locked):
            change()
    assert kept.add("k", 1, owner=me) == 2
    kept.link("k", "l", owner=me)
    kept.rename("l", "m", owner=me)
    kept.unlock("k", me)
    assert kept.delete("k", owner="other")


def test_a_lock_ends_by_itself(kept: Any) -> None:
    kept.set("k", 1)
    kept.lock("k", "me", until="1ms")
    while kept.probe("k").locked:
        pass
    kept.set("k", 2)


def test_values_are_read_in_order_and_by_pattern(kept: Any) -> None:
    for number in range(12):
        kept.set(f"k{number:02}", number)
    assert [value.value for value in kept.range("k03", "k05")] == [3, 4, 5]
    assert [value.value for value in kept.range(count=2)] == [0, 1]
    assert list(kept.range(count=0)) == []
    assert [value.key for value in kept.match("[29]$")] == ["k02", "k09"]
    assert [value.key for value in kept.match("^k1", count=1)] == ["k10"]
    assert len(list(kept.match(""))) == 12


def test_a_range_may_be_long(journals: Journals) -> None:
    kept = journals.new(durability="os")
    for number in range(1003):
        kept.set(f"{number:05}", number, persist=False)
    assert [value.value for value in kept.range()] == list(range(1003))
    assert [value.value for value in kept.range("00500", count=503)] == list(range(500, 1003))
    assert len(list(kept.match("3$"))) == 100


def test_whoever_listens_is_told(kept: Any) -> None:
    told: queue.Queue[tuple[str, Type]] = queue.Queue()
    stop = kept.listen("k\udcff", lambda key, kind: told.put((key, kind)))
    kept.set("other", 1)
    kept.set("k\udcff", 1)
    assert told.get(timeout=30) == ("k\udcff", Type.INTEGER)
    kept.set("k\udcff", "text")
    assert told.get(timeout=30) == ("k\udcff", Type.STRING)
    kept.delete("k\udcff")
    assert told.get(timeout=30) == ("k\udcff", Type.VOID)
    stop()
    assert told.empty()


@pytest.mark.parametrize(
    ("verb", "arguments", "named", "error"),
    [
        ("set", ("", 1), {}, BadRequest),
        ("set", ("\0k", 1), {}, BadRequest),
        ("set", ("k" * 70_000, 1), {}, TooLarge),
        ("set", ("new", ...), {}, BadRequest),
        ("set", ("new", 1 << 63), {}, OutOfRange),
        ("set", ("new", b"x" * 1001), {}, TooLarge),
        ("set", ("new", b"x" * 900), {"persist": False}, MemoryFull),
        ("set", ("new", 1), {"ttl": "soon"}, BadDuration),
        ("set", ("new", 1), {"timestamp_us": -1}, BadRequest),
        ("set", ("n", 1), {"overwrite": False}, KeyTaken),
        ("get", (5,), {}, BadRequest),
        ("get", ("n",), {"lease": "soon"}, BadDuration),
        ("probe", ("",), {}, BadRequest),
        ("delete", ("none",), {}, NoSuchKey),
        ("delete", ("n",), {"timestamp_us": "now"}, BadRequest),
        ("add", ("none", 1), {}, NoSuchKey),
        ("add", ("n", "one"), {}, (BadRequest, WrongType)),
        ("add", ("t", 1), {}, WrongType),
        ("add", ("n", (1 << 63) - 1), {}, OutOfRange),
        ("flip", ("n",), {}, WrongType),
        ("flip", ("none",), {}, NoSuchKey),
        ("resize", ("n", -1), {}, BadRequest),
        ("resize", ("none", 1), {}, NoSuchKey),
        ("resize", ("t", 5000), {}, BadRequest),
        ("lock", ("none", "me"), {}, NoSuchKey),
        ("lock", ("n", None), {}, BadRequest),
        ("lock", ("n", "me", "soon"), {}, BadDuration),
        ("rename", ("none", "x"), {}, NoSuchKey),
        ("rename", ("n", "t"), {}, KeyTaken),
        ("link", ("n", "t"), {}, KeyTaken),
        ("range", (5,), {}, BadRequest),
        ("range", (), {"count": -1}, BadRequest),
        ("match", ("(",), {}, BadRequest),
        ("listen", ("", print), {}, BadRequest),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_wrong_is_refused_and_changes_nothing(
    small: Any, verb: str, arguments: Any, named: Any, error: Any
) -> None:
    before = list(small.range())
    with pytest.raises(error):
        getattr(small, verb)(*arguments, **named)
    assert list(small.range()) == before


@pytest.fixture(scope="module")
def small(journals: Journals) -> Any:
    kept = journals.new(value_bytes=1000, volatile_bytes=900)
    kept.set("n", 1)
    kept.set("t", "text")
    return kept
