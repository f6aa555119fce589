"""Unique ids: exact after restarts, kills, and the loss of their index; within and across batches."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.kernel.errors import BadSettings, Fenced, KeyOrder
from headrace.log import Log
from headrace.log.appender import Appender
from headrace.log.framing import Frames
from headrace.stream import DuplicateId, Publisher
from headrace.stream.id_index import IDS_FILE, DiskIds, open_ids

from .samples import T0, Named, child, life, line_of, publish_all, temporary_store, values


@dataclass(frozen=True)
class Row:
    id: int
    at: int = 0


def named(word: str) -> Named:
    return Named(word, 0)


def ids_of(stream: hr.Stream) -> list[Any]:
    return [value.id for value in values(stream)]


def index_file(store: hr.Store, name: str = "s") -> Path:
    return store.path / "streams" / name / IDS_FILE


def other_zone(moment: dt.datetime) -> dt.datetime:
    return moment.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=45)))


IDS: dict[str, tuple[Any, Callable[[int], Any], Callable[[Any], Any]]] = {
    "int": (int, lambda n: n - (1 << 62), lambda value: value),
    "str": (str, lambda n: f"ä\0{n}", lambda value: value),
    "bytes": (bytes, lambda n: bytes([0, n]), lambda value: bytearray(value)),
    "UUID": (uuid.UUID, lambda n: uuid.UUID(int=n), lambda value: uuid.UUID(str(value))),
    "datetime": (dt.datetime, lambda n: T0 + dt.timedelta(microseconds=n), other_zone),
    "date": (dt.date, lambda n: T0.date() - dt.timedelta(days=n * 10000), lambda value: value),
    "datetime in ms": (
        Annotated[dt.datetime, pa.timestamp("ms", "UTC")],
        lambda n: T0 + dt.timedelta(milliseconds=n),
        other_zone,
    ),
    "unsigned": (Annotated[int, pa.uint64()], lambda n: (1 << 64) - 1 - n, lambda value: value),
}


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("kind", IDS)
def test_ids_of_every_type_are_unique_for_ever(store: hr.Store, kind: str, lost: bool) -> None:
    annotation, make, otherwise = IDS[kind]
    Thing = make_dataclass("Thing", [("id", annotation)])
    stream = store.stream("s", Thing, unique_by="id")
    publish_all(stream, [Thing(make(n)) for n in range(5)])
    if lost:
        index_file(store).unlink()
    with stream.publisher() as publisher:
        for n in range(5):
            with pytest.raises(DuplicateId) as refused:
                publisher.publish(Thing(otherwise(make(n))))
            assert refused.value.index == n
        table = pa.Table.from_batches(batch.records for batch in stream.listen_batches())
        assert publisher.publish_batch(table).duplicates == (0, 1, 2, 3, 4)
        assert publisher.publish(Thing(make(5))) == 5
        with pytest.raises(DuplicateId):
            publisher.publish(Thing(otherwise(make(5))))
    assert ids_of(stream) == [make(n) for n in range(6)]


Step = tuple[str, list[int]]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.lists(st.integers(0, 9), min_size=1, max_size=1)),
        st.tuples(st.just("batch"), st.lists(st.integers(0, 9), max_size=6)),
        st.tuples(st.just("flush"), st.just([])),
        st.tuples(st.just("reopen"), st.just([])),
        st.tuples(st.just("lose the index"), st.just([])),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(STEPS, st.none() | st.integers(1, 6))
def test_an_id_is_refused_if_and_only_if_it_is_among_the_last_entries(
    steps: list[Step], window: int | None
) -> None:
    kept: list[int] = []
    with temporary_store() as store:
        stream = store.stream("s", Row, unique_by="id", unique_window=window)
        publisher = stream.publisher()
        for step, ids in steps:
            if step == "flush":
                publisher.flush()
            elif step in ("reopen", "lose the index"):
                publisher.close()
                if step == "lose the index":
                    index_file(store).unlink()
                publisher = stream.publisher()
            else:
                refused, base = [], len(kept)
                for at, value in enumerate(ids):
                    if value in (kept if window is None else kept[-window:]):
                        refused.append(at)
                    else:
                        kept.append(value)
                if step == "batch":
                    table = pa.table(
                        {"id": pa.array(ids, pa.int64()), "at": pa.array([0] * len(ids), pa.int64())}
                    )
                    made = publisher.publish_batch(table)
                    assert made.duplicates == tuple(refused)
                    assert (made.base_index, made.next_index) == (base, len(kept))
                elif refused:
                    with pytest.raises(DuplicateId):
                        publisher.publish(Row(ids[0]))
                else:
                    assert publisher.publish(Row(ids[0])) == base
        publisher.close()
        assert ids_of(stream) == kept


def test_with_a_window_what_is_pending_counts_before_what_is_indexed(place: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with Log.open(place / "log", schema) as log:
        log.append(pa.record_batch({"id": list(range(100))}, schema=schema))
        unique = open_ids(log, "id", window=10)
        unique.check(5, 100)  # index 5 is out of the window: 5 may come again, and is pending now
        assert unique.duplicates([5], 101) == [0]
        with pytest.raises(DuplicateId):
            unique.check(5, 101)
        unique.close()


def test_a_refused_entry_or_batch_does_not_use_up_its_ids(store: hr.Store) -> None:
    stream = store.stream("s", Row, order_by="at", unique_by="id")
    with stream.publisher() as publisher:
        publisher.publish(Row(0, 10))
        with pytest.raises(KeyOrder):
            publisher.publish(Row(1, 9))
        with pytest.raises(KeyOrder):
            publisher.publish_batch(pa.table({"id": [2, 3], "at": [11, 9]}))
        with pytest.raises(hr.Refused):
            publisher.publish_batch(pa.table({"id": [2, None], "at": [11, 12]}))
        publisher.publish(Row(1, 10))
        publisher.publish(Row(2, 10))
        assert publisher.publish_batch(pa.table({"id": [3], "at": [10]})).duplicates == ()
    assert ids_of(stream) == [0, 1, 2, 3]


def test_a_duplicate_moves_neither_index_nor_order_key(store: hr.Store) -> None:
    stream = store.stream("s", Row, order_by="at", unique_by="id")
    with stream.publisher() as publisher:
        publisher.publish(Row(0, 10))
        with pytest.raises(DuplicateId):
            publisher.publish(Row(0, 50))
        assert publisher.publish(Row(1, 11)) == 1


def test_a_batch_of_duplicates_only_publishes_nothing(store: hr.Store) -> None:
    stream = store.stream("s", Row, unique_by="id")
    with stream.publisher() as publisher:
        publisher.publish(Row(7))
        made = publisher.publish_batch(pa.table({"id": [7, 7], "at": [1, 2]}))
        assert (made.base_index, made.next_index, made.duplicates) == (1, 1, (0, 1))
        assert publisher.publish(Row(8)) == 1


@pytest.mark.parametrize(
    "annotation", [str | None, float, decimal.Decimal, list[int], bool, dict[str, int]], ids=str
)
def test_what_cannot_be_an_id_is_refused_when_declared(store: hr.Store, annotation: Any) -> None:
    with pytest.raises(BadSettings, match="id"):
        store.stream("s", make_dataclass("Thing", [("id", annotation)]), unique_by="id")
    with pytest.raises(BadSettings):
        store.stream("s", Row, unique_by="nothing")
    with pytest.raises(BadSettings):
        store.stream("s", Row | make_dataclass("Other", [("x", int)]), unique_by="id")
    assert store.streams() == []


@pytest.mark.parametrize("window", [0, -1])
def test_a_window_that_sees_nothing_is_refused(store: hr.Store, window: int) -> None:
    with pytest.raises(BadSettings, match="window"):
        store.stream("s", Row, unique_by="id", unique_window=window)


def test_times_without_a_zone_and_in_any_unit_are_ids(store: hr.Store) -> None:
    for unit in ("s", "ms", "us"):
        schema = pa.schema([pa.field("id", pa.timestamp(unit), nullable=False)])
        stream = store.stream(unit, schema, unique_by="id")
        with stream.publisher() as publisher:
            publisher.publish({"id": dt.datetime(2024, 1, 1)})
            with pytest.raises(DuplicateId):
                publisher.publish({"id": dt.datetime(2024, 1, 1)})
            days = pa.table([pa.array([dt.datetime(2024, 1, day) for day in (1, 2)])], schema=schema)
            assert publisher.publish_batch(days).duplicates == (0,)
            with pytest.raises(DuplicateId):
                publisher.publish({"id": dt.datetime(2024, 1, 2)})


def test_an_index_in_which_units_of_time_were_mixed_is_made_again(store: hr.Store) -> None:
    schema = pa.schema([pa.field("id", pa.timestamp("ms"), nullable=False)])
    stream = store.stream("s", schema, unique_by="id")
    publish_all(stream, [{"id": dt.datetime(2024, 1, 1)}])
    with Log.open(index_file(store).parent, read_only=True) as log:
        its_log = log.meta.id
    with closing(sqlite3.connect(index_file(store))) as database, database:  # as it was before
        database.execute("UPDATE ids SET id = id * 1000")
        database.execute("UPDATE state SET log = ?", (its_log,))
    with stream.publisher() as publisher, pytest.raises(DuplicateId):
        publisher.publish({"id": dt.datetime(2024, 1, 1)})


def test_ids_are_unique_in_a_union_and_in_rows(store: hr.Store) -> None:
    Other = make_dataclass("Other", [("id", int), ("x", str)])
    union = store.stream("union", Row | Other, unique_by="id")
    with union.publisher() as publisher:
        publisher.publish(Row(1))
        with pytest.raises(DuplicateId):
            publisher.publish(Other(1, "x"))
    rows = store.stream("rows", pa.schema([("id", pa.string())]), unique_by="id")
    with rows.publisher() as publisher:
        publisher.publish({"id": "a"})
        with pytest.raises(DuplicateId):
            publisher.publish({"id": "a"})
        with pytest.raises(hr.Refused):
            publisher.publish({"id": None})
        with pytest.raises(hr.Refused):
            publisher.publish_batch(pa.table({"id": pa.array([None, "b"])}))
        publisher.publish({"id": "b"})
    assert [value["id"] for value in values(rows)] == ["a", "b"]


def test_a_stream_opened_without_its_type_keeps_ids_unique_too(store: hr.Store) -> None:
    publish_all(store.stream("s", Named, unique_by="id"), [named("a")])
    with store.stream("s").publisher() as publisher, pytest.raises(DuplicateId):
        publisher.publish({"id": "a", "n": 1})


def test_a_publisher_that_was_taken_over_does_not_use_up_ids(store: hr.Store) -> None:
    stream = store.stream("s", Named, unique_by="id")
    old = stream.publisher()
    old.publish(named("a"))
    old.flush()
    new = stream.publisher(take_over=True)
    old.publish(named("b"))
    with pytest.raises(Fenced):
        old.flush()
    with pytest.raises(Fenced):
        old.publish_batch(pa.table({"id": ["c"], "n": [1]}))
    assert new.publish(named("b")) == 1
    assert new.publish_batch(pa.table({"id": ["a", "c"], "n": [1, 1]})).duplicates == (0,)
    with pytest.raises(Fenced):
        old.close()
    new.close()
    with stream.publisher() as publisher:
        assert publisher.publish_batch(pa.table({"id": ["a", "b", "c", "d"], "n": [1] * 4})).duplicates == (
            0,
            1,
            2,
        )
    assert ids_of(stream) == ["a", "b", "c", "d"]


def test_a_publisher_that_is_taken_over_in_the_middle_of_a_write_does_not_use_up_ids(
    store: hr.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = store.stream("s", Named, unique_by="id")
    old = stream.publisher(background=False)
    old.publish(named("a"))
    write, taken = Appender.write, list[Publisher]()

    def hang(appender: Appender, frames: Frames) -> None:
        monkeypatch.undo()
        taken.append(stream.publisher(take_over=True))
        write(appender, frames)

    monkeypatch.setattr(Appender, "write", hang)
    with pytest.raises(Fenced):
        old.flush()
    (new,) = taken
    assert new.publish_batch(pa.table({"id": ["a"], "n": [1]})).duplicates == ()
    with pytest.raises(Fenced):
        old.close()
    new.close()
    assert ids_of(stream) == ["a"]


def test_a_writer_that_was_taken_over_leaves_an_index_that_it_cannot_read(place: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    old = Log.open(place / "log", schema)
    ids = DiskIds(old, "id")
    with Log.open(place / "log", take_over=True) as new, closing(DiskIds(new, "id")) as theirs:
        ids._database.execute("DROP TABLE ids")  # as damage would show
        there = (place / "log" / IDS_FILE).stat().st_ino
        with pytest.raises(Fenced):
            ids.known([1])
        assert (place / "log" / IDS_FILE).stat().st_ino == there
        assert theirs.known([1]) == {}  # made again by whose it is
    ids.close()
    old.close()


# --- the index is lost, damaged, old or in use


def damaged(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "text":
        path.write_text("these are not the ids that you are looking for" * 200)
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif how == "zeros inside":
        content[4096:] = bytes(len(content) - 4096)
        path.write_bytes(content)
    elif how.startswith("noise"):
        first = 5000 if how == "noise inside" else len(content) * 2 // 3
        content[first : first + 15000] = os.urandom(15000)
        path.write_bytes(content)
    elif how == "another database":
        path.unlink()
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE ids (junk)")


@pytest.mark.parametrize(
    "how",
    ["gone", "empty", "text", "cut", "zeros inside", "noise inside", "noise behind", "another database"],
)
def test_a_lost_or_damaged_index_is_made_again_from_the_log(store: hr.Store, how: str) -> None:
    stream = store.stream("s", Named, unique_by="id")
    publish_all(stream, [named(f"id-{n}") for n in range(3000)])
    damaged(index_file(store), how)
    with stream.publisher() as publisher:
        for n in range(0, 3000, 7):
            with pytest.raises(DuplicateId):
                publisher.publish(named(f"id-{n}"))
        words = [f"id-{n}" for n in range(2990, 3010)]
        assert publisher.publish_batch(pa.table({"id": words, "n": [0] * 20})).duplicates == tuple(range(10))
    assert ids_of(stream) == [f"id-{n}" for n in range(3010)]


def test_an_old_copy_of_the_index_is_caught_up(store: hr.Store, place: Path) -> None:
    stream = store.stream("s", Named, unique_by="id")
    publish_all(stream, [named("a")])
    shutil.copy(index_file(store), place / "old")
    publish_all(stream, [named("b")])
    shutil.copy(place / "old", index_file(store))
    with stream.publisher() as publisher:
        for word in ("a", "b"):
            with pytest.raises(DuplicateId):
                publisher.publish(named(word))


def test_entries_that_were_cut_off_the_log_free_their_ids(store: hr.Store) -> None:
    stream = store.stream("s", Named, unique_by="id")
    publish_all(stream, [named("a"), named("b"), named("c")])
    with Log.open(store.path / "streams" / "s") as log:
        log.truncate(1)
    with stream.publisher() as publisher:
        assert publisher.publish(named("c")) == 1
        with pytest.raises(DuplicateId):
            publisher.publish(named("a"))


def test_the_index_of_another_stream_is_not_believed(store: hr.Store) -> None:
    for name, word in (("s", "a"), ("t", "b")):
        publish_all(store.stream(name, Named, unique_by="id"), [named(word)])
    shutil.copy(index_file(store, "t"), index_file(store, "s"))
    with store.stream("s", Named, unique_by="id").publisher() as publisher:
        assert publisher.publish(named("b")) == 1
        with pytest.raises(DuplicateId):
            publisher.publish(named("a"))


def test_a_dropped_stream_takes_its_ids_along(store: hr.Store) -> None:
    stream = store.stream("s", Named, unique_by="id")
    publish_all(stream, [named("a")])
    stream.close()
    store.drop("s")
    publish_all(store.stream("s", Named, unique_by="id"), [named("a")])


# --- kill -9


def test_ids_are_exact_after_many_kills_in_the_middle_of_publishing(store: hr.Store) -> None:
    """A process publishes some 4000 ids again and again, singly and in batches, until it is killed."""
    stream = store.stream("s", Named, unique_by="id")
    durable: set[str] = set()
    for seed in range(20):
        said = life(5 + 37 * seed % 211, "publish_ids", store.path, "s", seed)
        durable |= {words[1] for words in said if len(words) == 2 and words[0] == "durable"}
        there = ids_of(stream)
        assert len(there) == len(set(there)), "an id is there twice"
        assert durable <= set(there), "an acknowledged id is gone"
        refused = {words[1] for words in said if len(words) == 2 and words[0] == "refused"}
        assert refused <= set(there), "an id was refused that is not there"
    assert len(durable) > 100
    with stream.publisher() as publisher:
        before = set(ids_of(stream))
        words = [f"id-{n}" for n in range(4000)]
        made = publisher.publish_batch(pa.table({"id": words, "n": [0] * 4000}))
        assert {words[row] for row in made.duplicates} == before


# --- memory


@pytest.mark.skipif("HEADRACE_CAMPAIGN" not in os.environ, reason="minutes: set HEADRACE_CAMPAIGN=1")
def test_ten_million_ids_need_at_most_200_mb(tmp_path: Path) -> None:
    process = child("many_ids", tmp_path / "data", "s", 10_000_000)
    grown_mb, resident_mb, refused = map(int, line_of(process).split())
    process.communicate()
    print(f"10 million ids: {resident_mb} MB resident, {grown_mb} MB more than before")
    assert refused == 1000
    assert resident_mb <= 200
