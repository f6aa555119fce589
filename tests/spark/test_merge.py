"""The merging source, asked by hand as Spark asks it: every entry once, in intervals, never too early."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import headrace as hr
from headrace.kernel.errors import Refused, Trimmed, Truncated
from headrace.log.keys import decode_int, encode_int
from headrace.log.settings import Finalize
from headrace.spark.merge import INTERVAL, MergePlan, MergeReader, bucket_of, unpacked
from headrace.spark.place import Place

NEVER_S = 1e9


@dataclass
class Tick:
    at: int
    who: str | None
    n: int


def plan(store: hr.Store, *streams: str, **options: Any) -> tuple[Place, MergePlan]:
    names = list(streams) or ["a", "b"]
    told = {
        "partition_by": [None] * len(names),
        "buckets": 1,
        "entries": 1000,
        "start": 0,
        "every": None,
        "heartbeat_s": NEVER_S,
        "position": "job",
        **options,
    }
    return Place(str(store.path)), MergePlan(streams=names, **told)


class Batch:
    """What a reader gives for two offsets."""

    def __init__(self, reader: MergeReader, start: Any, end: Any) -> None:
        self.intervals: list[tuple[int, int, int]] = []
        self.entries: list[tuple[int, int, int, int, str | None]] = []
        for part in reader.partitions(start, end):
            for records in reader.read(part):
                for row in records.to_pylist():
                    self._take(**row)
        self.entries.sort()

    def _take(self, bucket: int, stream: int, packed: bytes) -> None:
        if stream == INTERVAL:
            told = json.loads(packed)
            self.intervals.append((bucket, told["start"], told["stop"]))
            return
        for row in unpacked(packed).to_pylist():
            self.entries.append((row["at"], stream, row["_index"], bucket, row["who"]))


class Query:
    """Asks as Spark does: offsets go through JSON, and a new reader goes on from the last one."""

    def __init__(self, plan: tuple[Place, MergePlan], offset: Any = None) -> None:
        self.reader = MergeReader(*plan)
        self.offset = _through_json(self.reader.initialOffset()) if offset is None else offset

    def ask(self) -> Batch | None:
        """The next batch; None if Spark would wait."""
        end = _through_json(self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit()))
        if json.dumps(end) == json.dumps(self.offset):
            return None
        batch = Batch(self.reader, self.offset, end)
        self.reader.commit(self.offset)
        self.offset = end
        return batch

    def again(self, plan: tuple[Place, MergePlan]) -> Query:
        """As after a restart."""
        self.reader.stop()
        return Query(plan, self.offset)

    def all(self) -> Iterator[Batch]:
        while (batch := self.ask()) is not None:
            yield batch

    @property
    def cut(self) -> int:
        return decode_int(self.offset["cut"])


def _through_json(offset: Any) -> Any:
    return json.loads(json.dumps(offset))


def publish(store: hr.Store, name: str, keys: list[int], head: int | None = None) -> None:
    with store.stream(name, Tick, order_by="at").publisher() as publisher:
        for number, at in enumerate(keys):
            publisher.publish(Tick(at, "abc"[number % 3], number))
        if head is not None:
            publisher.head(head)


def keys_of(batches: Any) -> list[tuple[int, int]]:
    return [(at, stream) for batch in batches for at, stream, *_ in batch.entries]


@pytest.mark.parametrize("seed", range(6))
def test_every_entry_comes_once_while_streams_grow_and_readers_are_replaced(
    store: hr.Store, seed: int
) -> None:
    rnd = random.Random(seed)
    names = ["a", "b", "c"][: rnd.randint(1, 3)]
    options = {
        "entries": rnd.choice([1, 2, 3, 7, 50]),
        "buckets": rnd.choice([1, 4]),
        "partition_by": ["who"] * len(names),
        "every": rnd.choice([None, 2]),
    }
    publishers = {name: store.stream(name, Tick, order_by="at").publisher() for name in names}
    written: list[tuple[int, int, int]] = []
    heads, counts = dict.fromkeys(names, 0), dict.fromkeys(names, 0)
    query, got, last = Query(plan(store, *names, **options)), [], 0
    for _ in range(60):
        name = rnd.choice(names)
        heads[name] += rnd.choice([0, 0, 1, 3])
        for _ in range(rnd.choice([0, 1, 2, 9])):
            publishers[name].publish(Tick(heads[name], rnd.choice(["x", "y", "z", None]), 0))
            written.append((heads[name], names.index(name), counts[name]))
            counts[name] += 1
        publishers[name].head(heads[name])
        publishers[name].flush()
        if rnd.random() < 0.2:
            query = query.again(plan(store, *names, **options))
        batch = query.ask() if rnd.random() < 0.5 else None
        if batch is not None:
            last = check(batch, last, options["buckets"])
            assert query.cut <= min(heads.values())
            got += batch.entries
    for name in names:
        publishers[name].head(1000)
        publishers[name].close()
    for batch in query.all():
        last = check(batch, last, options["buckets"])
        got += batch.entries
    assert [each[:3] for each in got] == sorted(written)


def check(batch: Batch, last: int, buckets: int) -> int:
    """The batch tells every bucket of one interval, which begins at `last`; where it ends."""
    assert len(batch.intervals) == buckets
    assert {bucket for bucket, *_ in batch.intervals} == set(range(buckets))
    ((start, stop),) = {(start, stop) for _, start, stop in batch.intervals}
    assert start == last < stop
    assert all(start <= encode_int(at) < stop for at, *_ in batch.entries)
    assert all(bucket == (bucket_of(who, buckets)) for *_, bucket, who in batch.entries)
    return stop


@pytest.mark.parametrize("entries", [1, 2, 5, 100])
def test_a_key_is_never_split_however_many_entries_it_has(store: hr.Store, entries: int) -> None:
    publish(store, "a", [1] * 10 + [2] + [7] * 10, head=20)
    publish(store, "b", [1] * 4 + [7] * 30 + [8], head=20)
    batches = list(Query(plan(store, entries=entries)).all())
    assert keys_of(batches) == sorted([(at, 0) for at in [1] * 10 + [2] + [7] * 10] + keys_b())
    seen: set[int] = set()
    for batch in batches:
        keys = {at for at, *_ in batch.entries}
        assert not keys & seen
        seen |= keys
    assert all(batch.entries for batch in batches[:-1])


def keys_b() -> list[tuple[int, int]]:
    return [(at, 1) for at in [1] * 4 + [7] * 30 + [8]]


def test_batches_have_about_as_many_entries_as_asked(store: hr.Store) -> None:
    publish(store, "a", list(range(1000)), head=2000)
    publish(store, "b", list(range(0, 1000, 10)), head=2000)
    sizes = [len(batch.entries) for batch in Query(plan(store, entries=100)).all()]
    assert sum(sizes) == 1100
    assert max(sizes) <= 100
    assert len(sizes) <= 2 * 1100 / 100 + 2


def test_the_entries_of_the_smallest_head_itself_wait(store: hr.Store) -> None:
    publish(store, "a", [1, 2, 3, 3], head=3)
    publish(store, "b", [1, 9])
    query = Query(plan(store))
    assert keys_of(query.all()) == [(1, 0), (1, 1), (2, 0)]
    publish(store, "a", [3, 4])
    assert keys_of(query.all()) == [(3, 0), (3, 0), (3, 0)]


def test_a_stream_that_has_never_promised_anything_holds_all_others(store: hr.Store) -> None:
    publish(store, "a", [1, 2, 3], head=50)
    publish(store, "b", [])
    query = Query(plan(store))
    assert query.ask() is None
    publish(store, "b", [], head=3)
    assert keys_of(query.all()) == [(1, 0), (2, 0)]


def test_head_alone_makes_no_batch(store: hr.Store) -> None:
    publish(store, "a", [1], head=5)
    query = Query(plan(store, "a"))
    assert keys_of(query.all()) == [(1, 0)]
    publish(store, "a", [], head=100)
    assert query.ask() is None
    publish(store, "a", [200], head=300)
    assert keys_of(query.all()) == [(200, 0)]


def test_head_alone_makes_a_batch_if_a_tick_is_due(store: hr.Store) -> None:
    publish(store, "a", [1], head=5)
    query = Query(plan(store, "a", every=10))
    assert keys_of(query.all()) == [(1, 0)]
    publish(store, "a", [], head=10)
    assert query.ask() is None  # the tick at 10 comes when HEAD has passed it
    publish(store, "a", [], head=11)
    batch = query.ask()
    assert batch is not None
    assert batch.entries == []
    assert batch.intervals == [(0, encode_int(5), encode_int(11))]
    publish(store, "a", [], head=20)
    assert query.ask() is None


def test_head_alone_makes_a_batch_for_a_heartbeat(store: hr.Store) -> None:
    publish(store, "a", [1], head=5)
    query = Query(plan(store, "a", heartbeat_s=0.0))
    assert keys_of(query.all()) == [(1, 0)]
    assert query.ask() is None  # HEAD has not moved
    publish(store, "a", [], head=7)
    assert query.ask() is not None
    assert query.ask() is None


def test_available_now_goes_to_where_head_was_and_ends(store: hr.Store) -> None:
    publish(store, "a", [1, 2], head=5)
    query = Query(plan(store, "a", entries=1))
    query.reader.prepareForTriggerAvailableNow()
    publish(store, "a", [5, 6], head=50)
    assert keys_of(query.all()) == [(1, 0), (2, 0)]
    assert query.cut == 5
    query = query.again(plan(store, "a"))
    query.reader.prepareForTriggerAvailableNow()
    assert keys_of(query.all()) == [(5, 0), (6, 0)]
    assert query.cut == 50  # also without entries a run ends where HEAD is


def test_a_batch_asked_for_again_is_the_same(store: hr.Store) -> None:
    publish(store, "a", [1, 1, 2, 5], head=5)
    publish(store, "b", [1, 3], head=4)
    query = Query(plan(store))
    start, batch = query.offset, query.ask()
    assert batch is not None
    publish(store, "a", [5, 6, 7], head=50)
    publish(store, "b", [4, 6], head=50)
    again = Batch(MergeReader(*plan(store)), start, query.offset)
    assert again.entries == batch.entries
    assert again.intervals == batch.intervals


def test_a_start_key_leaves_out_what_is_before_it(store: hr.Store) -> None:
    publish(store, "a", [1, 3, 3, 4], head=9)
    publish(store, "b", [2, 3], head=9)
    query = Query(plan(store, start=encode_int(3)))
    assert keys_of(query.all()) == [(3, 0), (3, 0), (3, 1), (4, 0)]


def test_empty_streams_with_head_give_an_interval(store: hr.Store) -> None:
    publish(store, "a", [], head=9)
    query = Query(plan(store, "a", buckets=3, heartbeat_s=0.0))
    batch = query.ask()
    assert batch is not None
    assert (batch.entries, len(batch.intervals)) == ([], 3)


def test_another_number_of_buckets_is_refused(store: hr.Store) -> None:
    publish(store, "a", [1], head=9)
    old = Query(plan(store, "a", buckets=4)).offset
    with pytest.raises(Refused, match=r"started with 4 buckets.*cannot go on with 5"):
        Query(plan(store, "a", buckets=5), old).ask()


def test_a_stream_that_was_made_anew_is_refused(store: hr.Store) -> None:
    publish(store, "a", [1], head=9)
    old = Query(plan(store, "a")).offset
    store.drop("a")
    publish(store, "a", [1], head=9)
    with pytest.raises(Truncated, match="made anew"):
        Query(plan(store, "a"), old).ask()


def test_streams_in_another_order_are_refused(store: hr.Store) -> None:
    publish(store, "a", [1], head=9)
    publish(store, "b", [1], head=9)
    old = Query(plan(store, "a", "b")).offset
    with pytest.raises(Truncated, match="another order"):
        Query(plan(store, "b", "a"), old).ask()


def test_a_stream_that_was_cut_off_is_refused(store: hr.Store, place: Path) -> None:
    publish(store, "a", [1, 2, 3, 4, 5], head=6)
    query = Query(plan(store, "a"))
    assert len(keys_of(query.all())) == 5
    with store.stream("a", Tick, order_by="at") as stream, hr_log(stream) as log:
        log.truncate(2)
    publish(store, "a", [3, 4, 7, 8, 9], head=20)
    with pytest.raises(Truncated, match="cut off"):
        list(query.all())


def test_entries_that_were_removed_before_they_were_read_are_missed_loudly(store: hr.Store) -> None:
    small = hr.Settings(finalize=Finalize(entries=1000))
    with store.stream("a", Tick, order_by="at", settings=small).publisher() as publisher:
        for at in range(20_000):
            publisher.publish(Tick(at, "x" * 20, at))
        publisher.head(30_000)
    query = Query(plan(store, "a", entries=100))
    assert query.ask() is not None
    with store.stream("a") as stream, hr_log(stream) as log:
        log.trim(15_000)
        assert log.first_index > 200
    with pytest.raises(Trimmed, match="removed"):
        list(query.all())


def hr_log(stream: hr.Stream) -> Any:
    from headrace.log.log import Log

    return Log.open(stream.log.path)


def test_entries_travel_packed_in_parts_of_a_limited_size(store: hr.Store) -> None:
    schema = pa.schema([pa.field("at", pa.int64(), nullable=False), ("who", pa.string())])
    with store.stream("a", schema, order_by="at").publisher() as publisher:
        publisher.publish_batch(
            pa.table({"at": list(range(200_000)), "who": ["x", None] * 100_000}, schema=schema)
        )
        publisher.head(1 << 40)
    reader = MergeReader(*plan(store, "a", buckets=3, partition_by=["who"], entries=1 << 20))
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    assert len(parts) > 1
    rows = [row for part in parts for records in reader.read(part) for row in records.to_pylist()]
    told = [msgspec.json.decode(row["packed"]) for row in rows if row["stream"] == INTERVAL]
    assert len(told) == 3
    sizes = [unpacked(row["packed"]).num_rows for row in rows if row["stream"] != INTERVAL]
    assert sum(sizes) == 200_000
    assert max(sizes) <= 1 << 14
