"""The publisher: one at a time, at once, in the background, and safe to lose."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from crash.disks import FailingDisk
from headrace.kernel.errors import DiskFull, Fenced, KeyOrder, TooLarge
from headrace.log import Containers, Finalize
from headrace.stream import DuplicateId, PublisherTaken
from headrace.stream.publisher import FLUSH_BYTES
from waiting import until

from .samples import Named, Number, child, end, in_thread, line_of, publish_all, values


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("headrace")}


def test_there_is_one_publisher_in_a_process(store: hr.Store, place: Path) -> None:
    stream = store.stream("s", Number)
    with hr.open(place / "data") as other, stream.publisher() as publisher:
        for again in (stream, store.stream("s", Number), other.stream("s", Number), other.stream("s")):
            with pytest.raises(PublisherTaken, match="'s'"):
                again.publisher()
        assert publisher.publish(Number(1)) == 0
    with stream.publisher() as publisher:  # released by closing
        assert publisher.publish(Number(2)) == 1


def test_there_is_one_publisher_among_processes(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    holder = child("hold", store.path, "s")
    assert line_of(holder) == "ready"
    with pytest.raises(PublisherTaken, match=f"process {holder.pid}"):
        stream.publisher()
    assert end(holder).split() == ["published"]
    assert values(stream) == [Number(0), Number(1)]


def test_a_publisher_that_was_taken_over_can_publish_nothing_more(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    old = stream.publisher()
    old.publish(Number(0))
    old.flush()
    new = stream.publisher(take_over=True)
    assert new.publish(Number(10)) == 1
    with pytest.raises(Fenced):
        for _ in range(2):  # the first may be taken in, but is never acknowledged
            old.publish(Number(1))
            old.flush()
    with pytest.raises(Fenced):
        old.publish_batch(pa.table({"n": [2]}))
    with pytest.raises(Fenced):
        old.close()
    assert new.publish(Number(11)) == 2
    new.close()
    assert values(stream) == [Number(0), Number(10), Number(11)]


def test_a_publisher_in_another_process_can_be_taken_over(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    holder = child("hold", store.path, "s")
    assert line_of(holder) == "ready"
    with stream.publisher(take_over=True) as publisher:
        publisher.publish(Number(10))
        publisher.flush()
        assert set(end(holder).split()) == {"fenced"}
    assert values(stream) == [Number(0), Number(10)]


def test_the_index_is_known_at_once_and_durability_follows(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    with stream.publisher() as publisher:
        for n in range(1000):
            assert publisher.publish(Number(n)) == n
        assert publisher.durable_index <= 1000
        publisher.flush()
        assert publisher.durable_index == publisher.next_index == 1000
        assert stream.next_index == 1000


@pytest.mark.parametrize("durability", ["fsync", "interval", "os"])
def test_an_entry_is_seen_and_made_durable_without_a_flush(store: hr.Store, durability: Any) -> None:
    stream = store.stream("s", Number, settings=hr.Settings(durability=durability))
    follower = in_thread(lambda: [entry.value for entry in stream.listen(count=2, follow=True)])
    with stream.publisher() as publisher:
        publisher.publish(Number(1))
        until(lambda: stream.next_index == 1)
        publisher.publish(Number(2))
        assert follower.result() == [Number(1), Number(2)]
        if durability != "os":
            until(lambda: publisher.durable_index == 2)


@pytest.mark.parametrize("durability", ["fsync", "interval", "os"])
@pytest.mark.parametrize("unique_by", [None, "id"])
def test_closing_flushes_and_leaves_no_thread(place: Path, durability: Any, unique_by: str | None) -> None:
    before = threads()
    settings = hr.Settings(durability=durability)
    with hr.open(place / "data") as store:
        stream = store.stream("s", Named, unique_by=unique_by, settings=settings)
        publisher = stream.publisher()
        for n in range(500):
            publisher.publish(Named(str(n), n))
        publisher.close()
        publisher.close()
        for call in (
            lambda: publisher.publish(Named("x", 1)),
            lambda: publisher.publish_batch(pa.table({"id": ["x"], "n": [1]})),
            publisher.flush,
        ):
            with pytest.raises(hr.Closed):
                call()
        last = stream.publisher()
        last.publish(Named("last", 501))
    last.close()  # the store has closed it
    until(lambda: threads() <= before, "the end of all threads")
    with hr.open(place / "data") as store:
        assert [value.n for value in values(store.stream("s", Named, unique_by=unique_by))] == [
            *range(500),
            501,
        ]


def test_a_store_closed_inside_a_publishers_block_has_flushed_it(place: Path) -> None:
    with hr.open(place / "data") as store, store.stream("s", Number).publisher() as publisher:
        publisher.publish(Number(1))
        store.close()
    with hr.open(place / "data") as store:
        assert values(store.stream("s", Number)) == [Number(1)]


def test_one_stream_that_cannot_be_flushed_does_not_keep_the_others_open(place: Path) -> None:
    store, other = hr.open(place / "data"), hr.open(place / "data")
    publishers = {name: store.stream(name, Number).publisher() for name in ("a", "b", "c")}
    for publisher in publishers.values():
        publisher.publish(Number(1))
        publisher.flush()
    taken = other.stream("b", Number).publisher(take_over=True)
    for publisher in publishers.values():
        publisher.publish(Number(2))
    with pytest.raises(Fenced):
        store.close()
    for name in ("a", "c"):
        with other.stream(name, Number).publisher():
            pass
        assert values(other.stream(name, Number)) == [Number(1), Number(2)]
    taken.close()
    other.close()


def test_indexes_are_right_while_the_background_writes(store: hr.Store) -> None:
    """Entries and batches in turn, with threads switching as often as they can."""
    stream = store.stream("s", Named, unique_by="id")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with stream.publisher() as publisher:
            n = 0
            for _ in range(400):
                for _ in range(5):
                    assert publisher.publish(Named(f"{n}", n)) == n
                    n += 1
                    assert {publisher.next_index for _ in range(5)} == {n}
                made = publisher.publish_batch(pa.table({"id": [f"{n}", f"{n + 1}"], "n": [n, n + 1]}))
                assert (made.base_index, made.next_index) == (n, n + 2)
                n += 2
    finally:
        sys.setswitchinterval(before)
    assert [entry.value.n for entry in stream.listen()] == list(range(n))


# --- disks that fill up


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Iterator[FailingDisk]:
    """The disk of every log that is opened from here on."""
    disk = FailingDisk(
        None, errno.ENOSPC, kinds=("write",), lasting=True, only=lambda name: ".active" in name
    )
    monkeypatch.setattr("headrace.log.log.Disk", lambda: disk)
    yield disk
    disk.heal()


def fill(disk: FailingDisk) -> None:
    disk.fail_at = disk.count


@pytest.mark.parametrize("unique_by", [None, "id"])
def test_a_full_disk_is_told_and_nothing_is_lost_once_there_is_room(
    store: hr.Store, failing: FailingDisk, unique_by: str | None
) -> None:
    stream = store.stream("s", Named, unique_by=unique_by)
    with stream.publisher() as publisher:
        publisher.publish(Named("0", 0))
        publisher.flush()
        fill(failing)
        assert publisher.publish(Named("1", 1)) == 1  # taken in; the background cannot write it
        with pytest.raises(DiskFull):
            publisher.flush()
        with pytest.raises(DiskFull):
            publisher.publish_batch(pa.table({"id": ["2"], "n": [2]}))
        failing.heal()
        until(lambda: _quiet(publisher), "a flush")
        assert publisher.publish_batch(pa.table({"id": ["2"], "n": [2]})).duplicates == ()
        assert publisher.publish(Named("3", 3)) == 3
    assert values(stream) == [Named(str(n), n) for n in range(4)]


def _quiet(publisher: Any) -> bool:
    """An error of the background is told once; the flush after it has tried again."""
    try:
        publisher.flush()
    except DiskFull:
        return False
    return True


def test_the_entry_whose_publishing_failed_is_not_there_and_can_be_published_again(
    store: hr.Store, failing: FailingDisk
) -> None:
    """A flood is written by the call that fills the buffer: that one is told of the full disk."""
    stream = store.stream("s", Named, order_by="n", unique_by="id")
    text = "x" * (1 << 20)
    with stream.publisher() as publisher:
        fill(failing)
        sent = []
        with pytest.raises(DiskFull):
            for n in range(100):
                publisher.publish(Named(f"{n}{text}", 10 * n))
                sent.append(n)
        refused = len(sent)
        failing.heal()
        with pytest.raises(KeyOrder):
            publisher.publish(Named("back", 10 * (refused - 1) - 1))
        assert (
            publisher.publish(Named(f"{refused}{text}", 10 * refused - 1)) == refused
        )  # its key is free too
        until(lambda: _quiet(publisher), "a flush")
    assert [value.n for value in values(stream)] == [*(10 * n for n in sent), 10 * refused - 1]


# --- in containers


@dataclass(frozen=True)
class Texts:
    n: int
    text: str | None = None
    more: list[str] | None = None


IN_CONTAINERS = hr.Settings(containers=Containers(bytes=1 << 19))


def test_a_flood_of_small_entries_goes_into_containers(store: hr.Store) -> None:
    """More gathers while they are written than a container takes."""
    stream = store.stream("s", Texts, settings=IN_CONTAINERS)
    with stream.publisher() as publisher:
        for n in range(40_000):
            publisher.publish(Texts(n, "x" * 100))
        publisher.flush()
        assert publisher.durable_index == 40_000
    assert [value.n for value in values(stream)] == list(range(40_000))


def test_an_entry_may_be_larger_than_what_is_gathered(store: hr.Store) -> None:
    stream = store.stream("s", Texts)
    sizes = [1, FLUSH_BYTES + 1, 2, FLUSH_BYTES + 1]
    with stream.publisher() as publisher:
        for n, size in enumerate(sizes):
            assert publisher.publish(Texts(n, "x" * size)) == n
    assert [len(value.text) for value in values(stream)] == sizes


LARGE = {
    "text": Texts(1, "x" * 600_000),
    "text of many bytes": Texts(1, "\U0001f600" * 140_000),
    "a list": Texts(1, None, ["x" * 1000] * 600),
}


@pytest.mark.parametrize("what", LARGE)
@pytest.mark.parametrize("unique_by", [None, "n"])
def test_an_entry_that_no_container_takes_is_refused_and_others_are_not(
    store: hr.Store, what: str, unique_by: str | None
) -> None:
    stream = store.stream("s", Texts, order_by="n", unique_by=unique_by, settings=IN_CONTAINERS)
    with stream.publisher() as publisher:
        assert publisher.publish(Texts(0, "small")) == 0
        with pytest.raises(TooLarge):
            publisher.publish(LARGE[what])
        publisher.flush()
        assert publisher.publish(Texts(1, "small")) == 1
        with pytest.raises(TooLarge):
            publisher.publish(replace(LARGE[what], n=2))
    assert [value.n for value in values(stream)] == [0, 1]


@pytest.mark.parametrize(
    "entry", [Texts(1, "x" * 300_000), Texts(1, None, ["x"] * 50_000)], ids=["text", "list"]
)
def test_an_entry_that_is_large_for_a_container_is_taken_in_its_turn(store: hr.Store, entry: Texts) -> None:
    stream = store.stream("s", Texts, order_by="n", unique_by="n", settings=IN_CONTAINERS)
    with stream.publisher() as publisher:
        publisher.publish(Texts(0))
        assert publisher.publish(entry) == 1
        with pytest.raises(DuplicateId) as refused:
            publisher.publish(entry)
        assert refused.value.index == 1
        with pytest.raises(KeyOrder):
            publisher.publish(replace(entry, n=-1))
        assert publisher.publish(Texts(2)) == 2
        assert publisher.publish(replace(entry, n=3)) == 3
    assert values(stream) == [Texts(0), entry, Texts(2), replace(entry, n=3)]


def test_closing_on_a_full_disk_is_told_and_frees_the_stream(store: hr.Store, failing: FailingDisk) -> None:
    stream = store.stream("s", Number, settings=hr.Settings(finalize=Finalize(entries=10)))
    publish_all(stream, [Number(0)])
    publisher = stream.publisher()
    fill(failing)
    publisher.publish(Number(1))
    with pytest.raises(DiskFull):
        publisher.close()
    failing.heal()
    publish_all(stream, [Number(2)])
    assert values(stream)[0] == Number(0)
    assert values(stream)[-1] == Number(2)
