"""The store: names, what is there, what is expected to be there, and many who open it at once."""

from __future__ import annotations

import dataclasses
import gc
import os
import shutil
import weakref
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.kernel.errors import (
    BadName,
    BadSettings,
    Damaged,
    NewerFormat,
    NotFound,
    SchemaMismatch,
)
from headrace.log import SCAN, SHERLOCK, Finalize
from headrace.log.disk import Disk
from headrace.log.meta import Meta
from headrace.stream import PublisherTaken, StreamExists
from headrace.stream.agreement import Terms
from headrace.stream.declaration import declare

from .samples import Named, Number, Order, child, end, in_thread, line_of, order, publish_all, values


def test_a_store_is_a_directory_that_many_may_open(place: Path) -> None:
    first, second = hr.open(place / "deep" / "data"), hr.open(str(place / "deep" / "data"))
    publish_all(first.stream("s", Number), [Number(1)])
    assert values(second.stream("s", Number)) == [Number(1)]
    publish_all(second.stream("s", Number), [Number(2)])
    assert values(first.stream("s")) == [{"n": 1}, {"n": 2}]
    first.close()
    first.close()
    assert second.streams() == ["s"]
    second.close()


def test_a_closed_store_does_nothing(place: Path) -> None:
    store = hr.open(place / "data")
    stream = store.stream("s", Number)
    store.close()
    config = hr.StreamConfig(Number)
    for call in (
        lambda: store.stream("s"),
        lambda: store.stream("t", Number),
        lambda: store.create("t", config),
        lambda: store.ensure("s", config),
        store.streams,
        lambda: store.drop("s"),
        stream.publisher,
    ):
        with pytest.raises(hr.Closed):
            call()


@pytest.mark.parametrize("name", ["a", "orders", "A-b_c.9", "x" * 200, "0", "-", "_", "lock", "meta.json"])
def test_good_names_are_taken(store: hr.Store, name: str) -> None:
    publish_all(store.stream(name, Number), [Number(1)])
    assert store.streams() == [name]
    assert values(store.stream(name)) == [{"n": 1}]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "a..b",
        "a/b",
        "../a",
        "/a",
        "a b",
        "ä",
        "a\n",
        "a\0",
        "x" * 201,
        "a*",
        None,
        5,
    ],
)
def test_bad_names_are_refused_everywhere(store: hr.Store, name: Any) -> None:
    config = hr.StreamConfig(Number)
    for call in (
        lambda: store.stream(name, Number),
        lambda: store.stream(name),
        lambda: store.create(name, config),
        lambda: store.ensure(name, config),
        lambda: store.drop(name),
    ):
        with pytest.raises(BadName):
            call()
    assert store.streams() == []
    assert sorted(path.name for path in store.path.iterdir()) == ["lock", "store.json", "streams"]


def test_streams_are_listed_in_order_and_nothing_else_is(store: hr.Store) -> None:
    for name in ("b", "a", "c.d"):
        store.stream(name, Number)
    (store.path / "streams" / "a file").write_text("x")
    (store.path / "streams" / "file").write_text("x")
    (store.path / "streams" / ".hidden").mkdir()
    (store.path / "streams" / "empty").mkdir()
    assert store.streams() == ["a", "b", "c.d"]


def test_a_stream_without_a_type_is_opened_by_what_is_stored(store: hr.Store) -> None:
    publish_all(store.stream("orders", Order, order_by="at"), [order(1)])
    publish_all(store.stream("raw", bytes), [b"x"])
    publish_all(store.stream("union", Number | Named), [Named("a", 1)])
    orders = store.stream("orders")
    assert orders.order_by == "at"
    assert orders.schema.names == ["at", "user", "amount"]
    assert values(orders) == [dataclasses.asdict(order(1))]
    assert values(store.stream("raw")) == [b"x"]
    assert values(store.stream("union")) == [{"_type": "Named", "id": "a", "n": 1}]
    publish_all(orders, [dataclasses.asdict(order(2))])
    publish_all(store.stream("raw"), [b"y"])
    publish_all(store.stream("union"), [{"_type": "Number", "n": 7}])
    assert values(store.stream("orders", Order, order_by="at")) == [order(1), order(2)]
    assert values(store.stream("union", Number | Named)) == [Named("a", 1), Number(7)]
    with pytest.raises(NotFound, match="nothing"):
        store.stream("nothing")
    assert "nothing" not in store.streams()


CONFIG = hr.StreamConfig(
    Order, "at", strict=True, unique_by="user", unique_window=9, settings=hr.Settings(compression="lz4")
)


def test_ensure_makes_a_stream_or_finds_it_as_expected(store: hr.Store) -> None:
    publish_all(store.ensure("s", CONFIG), [order(1)])
    assert values(store.ensure("s", CONFIG)) == [order(1)]
    assert values(store.ensure("s", dataclasses.replace(CONFIG, settings=None))) == [order(1)]
    assert store.stream("s").log.settings.compression == "lz4"


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"type": Number, "order_by": None, "unique_by": None}, SchemaMismatch, "at"),
        ({"order_by": None}, SchemaMismatch, "index"),
        ({"order_by": "amount"}, SchemaMismatch, "amount"),
        ({"strict": False}, BadSettings, "strict"),
        ({"unique_by": None}, SchemaMismatch, "unique_by"),
        ({"unique_window": None}, SchemaMismatch, "unique_window"),
        ({"unique_window": 10}, SchemaMismatch, "unique_window"),
        ({"settings": hr.Settings()}, BadSettings, "compression"),
        ({"settings": hr.Settings(compression="lz4", durability="os")}, BadSettings, "durability"),
        ({"settings": hr.Settings(compression="lz4", finalize=SHERLOCK)}, BadSettings, "finalize"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_ensure_tells_each_difference(
    store: hr.Store, change: dict[str, Any], error: type[Exception], said: str
) -> None:
    store.ensure("s", CONFIG)
    with pytest.raises(error, match=said):
        store.ensure("s", dataclasses.replace(CONFIG, **change))


def test_create_makes_a_stream_once(store: hr.Store) -> None:
    store.create("s", CONFIG)
    with pytest.raises(StreamExists, match="'s'"):
        store.create("s", CONFIG)
    assert StreamExists.code == "stream_exists"


def test_what_is_refused_at_creation_leaves_nothing(store: hr.Store) -> None:
    for call in (
        lambda: store.stream("s", Number, order_by="x"),
        lambda: store.stream("s", Number, unique_by="x"),
        lambda: store.stream("s", Number, settings=hr.Settings(compression="gzip")),  # type: ignore[arg-type]
        lambda: store.stream("s", pa.schema([])),
        lambda: store.stream("s", int),
    ):
        with pytest.raises(hr.Refused):
            call()
    assert store.streams() == []
    store.stream("s", Number)


def test_a_dropped_stream_is_gone_and_its_name_is_free(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    publish_all(stream, [Number(1)])
    with stream.publisher(), pytest.raises(PublisherTaken, match="'s'"):
        store.drop("s")
    assert values(stream) == [Number(1)]
    store.drop("s")
    assert store.streams() == []
    assert not any("s" in name.split("-") for name in os.listdir(store.path / "streams"))
    with pytest.raises(NotFound):
        store.drop("s")
    publish_all(store.stream("s", Named), [Named("a", 1)])
    assert values(store.stream("s", Named)) == [Named("a", 1)]


def test_a_stream_published_by_another_process_is_not_dropped(store: hr.Store) -> None:
    store.stream("s", Number)
    holder = child("hold", store.path, "s")
    assert line_of(holder) == "ready"
    with pytest.raises(PublisherTaken, match=str(holder.pid)):
        store.drop("s")
    end(holder)
    store.drop("s")


def test_who_still_has_a_dropped_stream_open_cannot_publish_to_the_one_that_took_its_name(
    store: hr.Store,
) -> None:
    old = store.stream("s", pa.schema({"v": pa.int64()}))
    store.drop("s")
    new = store.stream("s", pa.schema({"w": pa.string()}))
    with pytest.raises(NotFound, match="another one now"):
        old.publisher()
    with new.publisher() as publisher:
        publisher.publish_batch([{"w": "new"}])
    assert store.stream("s").schema.names == ["w"]


def test_who_still_has_a_dropped_stream_open_gets_an_error_and_not_another_stream(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    publish_all(stream, [Number(1)])
    store.drop("s")
    with pytest.raises(hr.HeadraceError):
        stream.publisher()
    assert store.streams() == []
    publish_all(store.stream("s", Named), [Named("a", 1)])
    with pytest.raises(hr.HeadraceError):
        assert values(stream) != []


def test_what_a_drop_that_was_killed_left_is_in_nobodys_way(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hr.open(place / "data") as store:
        store.journal("j").close()
        with monkeypatch.context() as killed:
            killed.setattr(shutil, "rmtree", lambda path, ignore_errors: None)
            for value in (Number(1), Number(2)):
                publish_all(store.stream("s", Number), [value])
                store.drop("s")
            store.drop_journal("j")
        assert store.streams() == store.journals() == []
        assert len(os.listdir(place / "data" / "streams")) == 2
    with hr.open(place / "data"):
        assert os.listdir(place / "data" / "streams") == os.listdir(place / "data" / "journals") == []


def test_what_is_made_is_in_its_directory_after_a_power_cut(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every directory that was made is synced into the one above it."""
    synced: set[Path] = set()
    sync_dir = Disk.sync_dir

    def noted(disk: Disk, directory: Path) -> None:
        sync_dir(disk, directory)
        synced.update(directory / name for name in os.listdir(directory))

    monkeypatch.setattr(Disk, "sync_dir", noted)
    with hr.open(place / "deep" / "below" / "data") as store:
        store.stream("s", Number)
        store.journal("j")
    assert {path for path in place.rglob("*") if path.is_dir()} <= synced


def test_a_stream_grows_from_what_it_is_when_its_turn_comes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terms(*fields: str) -> Terms:
        config = hr.StreamConfig(pa.schema([(field, pa.int64()) for field in fields]))
        return Terms.of(declare(config.type, None), config)

    with hr.open(place / "data") as store, hr.open(place / "data") as other:
        store.make("s", terms("a"))
        read = store.meta

        def read_just_before(name: str) -> Meta:
            found = read(name)
            other.grow("s", terms("a", "theirs"))
            return found

        monkeypatch.setattr(store, "meta", read_just_before)
        with pytest.raises(SchemaMismatch, match="does not lose fields"):
            store.grow("s", terms("a", "mine"))
        assert other.meta("s").schema.names == ["a", "theirs"]


# --- directories that are something else


def test_a_file_or_a_foreign_directory_is_no_store(place: Path) -> None:
    (place / "file").write_text("x")
    (place / "foreign").mkdir()
    (place / "foreign" / "letter.txt").write_text("dear")
    for path in ("file", "foreign", "file/below"):
        with pytest.raises(hr.HeadraceError):
            hr.open(place / path)
    assert os.listdir(place / "foreign") == ["letter.txt"]
    assert (place / "file").read_text() == "x"


def test_an_empty_directory_becomes_a_store(place: Path) -> None:
    (place / "data").mkdir()
    with hr.open(place / "data") as store:
        assert store.streams() == []


def test_a_store_of_a_newer_format_is_left_alone(place: Path) -> None:
    hr.open(place / "data").close()
    about = place / "data" / "store.json"
    about.write_text('{"format": 999}')
    with pytest.raises(NewerFormat, match="999"):
        hr.open(place / "data")
    assert about.read_text() == '{"format": 999}'


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": "x"}', "\xff", '{"format": null}'])
def test_a_damaged_store_file_is_told(place: Path, text: str) -> None:
    hr.open(place / "data").close()
    (place / "data" / "store.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(Damaged, match=r"store\.json"):
        hr.open(place / "data")


@pytest.mark.parametrize("left", [[], ["streams/"], ["streams/", "store.json.tmp"]], ids=str)
def test_a_store_whose_creation_was_cut_short_is_made_anew(place: Path, left: list[str]) -> None:
    (place / "data").mkdir()
    for name in left:
        path = place / "data" / name
        path.mkdir() if name.endswith("/") else path.write_text("{")
    with hr.open(place / "data") as store:
        publish_all(store.stream("s", Number), [Number(1)])


@pytest.mark.parametrize("left", [[], ["lock"], ["lock", "meta.json.tmp"]], ids=str)
def test_a_stream_whose_creation_was_cut_short_is_made_anew(store: hr.Store, left: list[str]) -> None:
    folder = store.path / "streams" / "s"
    folder.mkdir()
    for name in left:
        (folder / name).write_text("{")
    assert store.streams() == []
    with pytest.raises(NotFound):
        store.stream("s")
    publish_all(store.stream("s", Number), [Number(1)])
    assert store.streams() == ["s"]


# --- at the same moment


def test_processes_that_create_at_the_same_moment_get_along(place: Path) -> None:
    """Stores and streams; of those who `create` one stream exactly one is told that it did."""
    count = 60
    processes = [child("create", place, count) for _ in range(3)]
    for process in processes:
        assert line_of(process) == "ready"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    won = [int(word) for process in processes for word in end(process).split()]
    assert sorted(won) == list(range(count))


def test_threads_that_create_at_the_same_moment_get_along(store: hr.Store) -> None:
    for n in range(20):
        made = [in_thread(lambda n=n: store.stream(f"s{n}", Number).name) for _ in range(4)]
        assert [each.result() for each in made] == [f"s{n}"] * 4
        publish_all(store.stream(f"s{n}", Number), [Number(n)])


# --- finalization


def test_the_profiles_are_what_they_say() -> None:
    assert Finalize(bytes=10_000_000, entries=100_000_000, age_s=24 * 3600.0) == SHERLOCK
    assert Finalize(bytes=128 << 20, entries=100_000_000, age_s=3600.0) == SCAN
    assert hr.Settings().finalize == SCAN


def test_a_profile_is_kept_with_the_stream(store: hr.Store) -> None:
    publish_all(store.stream("s", Number, settings=hr.Settings(finalize=SHERLOCK)), [Number(1)])
    assert store.stream("s").log.settings.finalize == SHERLOCK


def test_segments_of_a_sherlock_stream_end_at_10_mb(store: hr.Store) -> None:
    stream = store.stream("s", Number, settings=hr.Settings(finalize=SHERLOCK, durability="os"))
    with stream.publisher() as publisher:
        for base in range(0, 3_000_000, 50_000):
            publisher.publish_batch(pa.table({"n": range(base, base + 50_000)}))
    segments = sorted((store.path / "streams" / "s").glob("*.seg"))
    assert len(segments) == 2
    assert all(10_000_000 <= segment.stat().st_size < 11_000_000 for segment in segments)


def test_names_of_finalized_segments_tell_first_and_last_index_and_key(store: hr.Store) -> None:
    """And only names are needed to begin in the middle: all other segments may be unreadable."""
    settings = hr.Settings(finalize=Finalize(entries=10))
    stream = store.stream("s", Number, order_by="n", settings=settings)
    with stream.publisher() as publisher:
        for base in range(0, 100, 10):
            publisher.publish_batch(pa.table({"n": range(1000 + base, 1010 + base)}))
    segments = sorted((store.path / "streams" / "s").glob("*.seg"))
    for at, segment in enumerate(segments):
        assert segment.name.startswith(f"{at * 10:020d}-{at * 10 + 9:020d}.k")
        first, last = segment.name.split(".k")[1].removesuffix(".seg").split("-")
        assert (int(first, 16) ^ 1 << 63, int(last, 16) ^ 1 << 63) == (1000 + at * 10, 1009 + at * 10)
    for segment in segments[:5]:
        segment.write_bytes(b"unreadable")
    assert [entry.index for entry in stream.listen(hr.at_key(1055), count=3)] == [55, 56, 57]
    assert [entry.index for entry in stream.listen(72, count=2)] == [72, 73]


def test_opening_a_stream_with_another_type_name_is_fine(store: hr.Store) -> None:
    """What is checked are the fields: a class may be renamed, unless it is a variant."""
    Other = make_dataclass("Other", [("n", int)])
    publish_all(store.stream("s", Number), [Number(1)])
    assert values(store.stream("s", Other)) == [Other(1)]


def test_a_store_forgets_the_streams_that_were_closed(place: Path) -> None:
    with hr.open(place / "data") as store:
        stream = store.stream("s", Number)
        stream.close()
        closed = weakref.ref(stream)
        del stream
        gc.collect()
        assert closed() is None
