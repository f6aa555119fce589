"""Archives without Spark: how a stream is cut into files, and what is there after a crash at any step."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import headrace as hr
from headrace.kernel.errors import (
    BadSettings,
    DiskFull,
    HeadraceError,
    NoPermission,
    NotALog,
    NotFound,
    Refused,
    SchemaMismatch,
    Trimmed,
    WriterTaken,
)
from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.positions import read_positions
from headrace.log.settings import Finalize, Retention, Settings
from headrace.spark.archive import Archived, Archiver
from headrace.spark.archive_parquet import check_columns
from headrace.spark.origin import About
from headrace.spark.place import Place

MIDNIGHT = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
NO_SPARK: Any = None


@dataclass(frozen=True, slots=True)
class Order:
    at: dt.datetime
    number: int


class Crash(BaseException):
    """The process is killed."""


@pytest.fixture(autouse=True)
def _in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark's workers do is done here, three files a round."""
    module = sys.modules["headrace.spark.archive"]
    monkeypatch.setattr(module, "spread", lambda spark, items, work: [work(item) for item in items])
    monkeypatch.setattr(module, "round_of", lambda spark: 3)


def publish(store: hr.Store, first: int, stop: int, hours: int = 5) -> None:
    """Entries one after another, each so many hours after the one before."""
    with store.stream("orders", Order, order_by="at").publisher() as publisher:
        for number in range(first, stop):
            publisher.publish(Order(MIDNIGHT + dt.timedelta(hours=hours * number), number))


def catch_up(store: hr.Store, to: Path, stream: str = "orders", **options: Any) -> Archived:
    with Archiver(Place(str(store.path)), stream, to=to, **options) as archiver:
        return archiver.catch_up(NO_SPARK)


def files_of(to: Path) -> list[str]:
    """What a reader finds that just lists files."""
    return sorted(str(path.relative_to(to)) for path in to.rglob("*.parquet"))


def numbers_of(to: Path) -> list[int]:
    files = [str(to / name) for name in files_of(to)]
    return sorted(number for file in files for number in pq.ParquetFile(file).read()["number"].to_pylist())


def test_a_day_is_a_folder_and_names_tell_the_entries(store: hr.Store, place: Path) -> None:
    publish(store, 0, 7)
    done = catch_up(store, place / "lake")
    assert files_of(place / "lake") == [
        "day=2026-11-16/00000000000000000000-00000000000000000004.parquet",
        "day=2026-11-17/00000000000000000005-00000000000000000006.parquet",
    ]
    assert (done.by, done.first_index, done.next_index, done.entries, done.files) == ("day", 0, 7, 7, 2)
    table = ds.dataset(place / "lake", partitioning="hive").to_table()
    assert table["day"].to_pylist() == ["2026-11-16"] * 5 + ["2026-11-17"] * 2
    assert table["number"].to_pylist() == list(range(7))


def test_an_hour_is_a_folder_in_its_day(store: hr.Store, place: Path) -> None:
    publish(store, 0, 3)
    catch_up(store, place / "lake", by="hour")
    folders = [name.rpartition("/")[0] for name in files_of(place / "lake")]
    assert folders == ["day=2026-11-16/hour=00", "day=2026-11-16/hour=05", "day=2026-11-16/hour=10"]


def test_without_times_files_are_cut_by_index_alone(store: hr.Store, place: Path) -> None:
    with store.stream("plain", pa.schema([("number", pa.int64())])).publisher() as publisher:
        publisher.publish_batch(pa.record_batch({"number": list(range(10))}))
    done = catch_up(store, place / "lake", "plain", rows_per_file=4)
    assert done.by == "none"
    assert [name[18:20] + name[39:41] for name in files_of(place / "lake")] == ["0003", "0407", "0809"]
    with pytest.raises(BadSettings, match="is ordered by index, which is no time: archive it by 'none'"):
        catch_up(store, place / "other", "plain", by="day")


def test_times_before_1970_and_without_a_zone_have_their_days(store: hr.Store, place: Path) -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("ms"), nullable=False), pa.field("day", pa.int64())])
    with store.stream("old", schema, order_by="at").publisher() as publisher:
        times = [dt.datetime(1969, 12, 31, 23, 59, 59), dt.datetime(1970, 1, 1)]
        publisher.publish_batch(pa.record_batch({"at": times, "day": [1, 2]}, schema=schema))
    catch_up(store, place / "lake", "old")
    folders = [name.rpartition("/")[0] for name in files_of(place / "lake")]
    assert folders == ["at_day=1969-12-31", "at_day=1970-01-01"], "the stream has a field `day` of its own"


def test_it_goes_on_where_it_was(store: hr.Store, place: Path) -> None:
    publish(store, 0, 6)
    catch_up(store, place / "lake")
    assert catch_up(store, place / "lake").entries == 0
    publish(store, 6, 12)
    done = catch_up(store, place / "lake")
    assert (done.first_index, done.next_index, done.entries) == (6, 12, 6)
    assert numbers_of(place / "lake") == list(range(12))


def test_columns_keep_their_types_and_an_index_is_added_on_request(store: hr.Store, place: Path) -> None:
    kinds = {"big": pa.uint64(), "took": pa.duration("us"), "tags": pa.list_(pa.string()), "on": pa.date32()}
    rows = pa.table(
        {"big": [1 << 63], "took": [7], "tags": [["a", None]], "on": [0]}, schema=pa.schema(kinds)
    )
    with store.stream("odd", pa.schema(kinds)).publisher() as publisher:
        publisher.publish_batch(rows)
    catch_up(store, place / "lake", "odd", with_index=True)
    found = ds.dataset(place / "lake").to_table()
    assert found.schema.types == [*kinds.values(), pa.int64()]
    assert found.drop_columns("_index").equals(rows)
    assert found["_index"].to_pylist() == [0]


def test_fields_that_were_added_later_are_null_before(store: hr.Store, place: Path) -> None:
    with store.stream("a", pa.schema([("x", pa.int64())])).publisher() as publisher:
        publisher.publish_batch(pa.record_batch({"x": [1]}))
    grown = pa.schema([("x", pa.int64()), ("y", pa.int64())])
    with store.stream("a", grown).publisher() as publisher:
        publisher.publish_batch(pa.record_batch({"x": [2], "y": [3]}))
    catch_up(store, place / "lake", "a")
    assert ds.dataset(place / "lake").to_table().to_pylist() == [{"x": 1, "y": None}, {"x": 2, "y": 3}]


def test_a_field_that_is_added_while_it_follows_is_archived(store: hr.Store, place: Path) -> None:
    store.stream("a", pa.schema([("x", pa.int64())]))
    with Archiver(Place(str(store.path)), "a", to=place / "lake") as archiver:
        grown = pa.schema([("x", pa.int64()), ("y", pa.int64())])
        with store.stream("a", grown).publisher() as publisher:
            publisher.publish_batch(pa.record_batch({"x": [2], "y": [3]}))
        archiver.catch_up(NO_SPARK)
    assert ds.dataset(place / "lake").to_table().to_pylist() == [{"x": 2, "y": 3}]


def test_a_stream_that_is_made_anew_is_another_stream(store: hr.Store, place: Path) -> None:
    publish(store, 0, 3)
    with Archiver(Place(str(store.path)), "orders", to=place / "lake") as archiver:
        archiver.catch_up(NO_SPARK)
        store.drop("orders")
        publish(store, 0, 5)
        with pytest.raises(Refused, match="was dropped and made anew"):
            archiver.catch_up(NO_SPARK)
    with pytest.raises(Refused, match="the archive of an earlier stream of this name"):
        catch_up(store, place / "lake")
    assert numbers_of(place / "lake") == [0, 1, 2]


def test_following_tells_each_time_and_ends_with_an_interrupt(store: hr.Store, place: Path) -> None:
    publish(store, 0, 3)
    told: list[Archived] = []

    def hear(done: Archived) -> None:
        told.append(done)
        if len(told) == 2:
            raise KeyboardInterrupt
        publish(store, 3, 5)

    with (
        Archiver(Place(str(store.path)), "orders", to=place / "lake") as archiver,
        pytest.raises(KeyboardInterrupt),
    ):
        archiver.follow(NO_SPARK, 0.0, hear)
    assert [(done.first_index, done.next_index) for done in told] == [(0, 3), (3, 5)]


def test_retention_waits_for_the_archive(store: hr.Store, place: Path) -> None:
    settings = Settings(finalize=Finalize(entries=2), retention=Retention(consumed=True))
    stream = store.stream("orders", Order, order_by="at", settings=settings)
    with Archiver(Place(str(store.path)), "orders", to=place / "lake") as archiver:
        with stream.publisher() as publisher:
            for number in range(8):
                publisher.publish(Order(MIDNIGHT, number))
                publisher.flush()
        assert stream.log.first_index == 0
        archiver.catch_up(NO_SPARK)
        assert list(read_positions(Disk(), stream.log.path).values()) == [8]


def test_entries_that_were_removed_before_are_told_of(store: hr.Store, place: Path) -> None:
    stream = store.stream("orders", Order, order_by="at", settings=Settings(finalize=Finalize(entries=2)))
    publish(store, 0, 2)
    catch_up(store, place / "lake")
    publish(store, 2, 8)
    with Log.open(stream.log.path) as log:
        log.trim(6)
    with pytest.raises(Trimmed, match="entries 2 to 5 were removed before they were archived"):
        catch_up(store, place / "lake")
    done = catch_up(store, place / "rest")
    assert (done.first_index, done.entries) == (6, 2)


def test_one_archiver_at_a_time(store: hr.Store, place: Path) -> None:
    publish(store, 0, 1)
    with (
        Archiver(Place(str(store.path)), "orders", to=place / "lake"),
        pytest.raises(WriterTaken, match="another job is writing to the archive"),
    ):
        Archiver(Place(str(store.path)), "orders", to=place / "lake")


def test_what_cannot_be_an_archive_is_refused_and_left_alone(store: hr.Store, place: Path) -> None:
    publish(store, 0, 1)
    (place / "used").mkdir()
    (place / "used" / "mine.parquet").touch()
    (place / "file").touch()
    catch_up(store, place / "lake")
    with store.stream("payments", Order, order_by="at").publisher() as publisher:
        publisher.publish(Order(MIDNIGHT, 1))
    wrong: list[tuple[type[HeadraceError], str, Callable[[], Any]]] = [
        (Refused, "holds other files", lambda: catch_up(store, place / "used")),
        (NotALog, "is a file", lambda: catch_up(store, place / "file")),
        (NotFound, "there is no stream 'nope'", lambda: catch_up(store, place / "x", "nope")),
        (BadSettings, "was begun with by=day", lambda: catch_up(store, place / "lake", by="hour")),
        (
            BadSettings,
            "begun with with_index=False",
            lambda: catch_up(store, place / "lake", with_index=True),
        ),
        (Refused, "the archive of another stream", lambda: catch_up(store, place / "lake", "payments")),
        (BadSettings, "rows_per_file", lambda: catch_up(store, place / "x", rows_per_file=-1)),
    ]
    for kind, words, attempt in wrong:
        with pytest.raises(kind, match=words):
            attempt()
    assert not (place / "x").exists()
    assert [path.name for path in (place / "used").iterdir()] == ["mine.parquet"]


def test_a_target_that_may_not_be_written_is_told(
    store: hr.Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, 0, 1)

    def denied(self: Path, *args: Any, **options: Any) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", denied)
    with pytest.raises(NoPermission, match="not allowed to open or change"):
        catch_up(store, place / "lake")


def test_what_parquet_cannot_hold_is_named() -> None:
    schema = pa.schema([("n", pa.int64()), ("either", pa.dense_union([pa.field("a", pa.int64())]))])
    with pytest.raises(SchemaMismatch, match=r"the field 'either' is a dense_union.*Parquet cannot hold"):
        check_columns(About("id", schema, None), with_index=False)


# --- a crash at every step


@contextmanager
def killed_at(step: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Kill the process before the n-th change of a folder; the list holds what was done before."""
    done: list[str] = []
    with monkeypatch.context() as patch:
        for verb in ("rename", "make_directory", "sync_dir", "remove"):
            real = getattr(Disk, verb)

            def counted(self: Disk, *args: Any, verb: str = verb, real: Any = real) -> None:
                if len(done) == step:
                    raise Crash
                done.append(verb)
                real(self, *args)

            patch.setattr(Disk, verb, counted)
        yield done


def test_a_crash_at_any_step_leaves_each_entry_in_at_most_one_file_and_the_next_run_has_all(
    store: hr.Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, 0, 20)
    for step in count():
        to, ended = place / f"lake{step}", False
        with killed_at(step, monkeypatch):
            try:
                catch_up(store, to, rows_per_file=3)
                ended = True
            except Crash:
                pass
        seen = numbers_of(to) if to.exists() else []
        assert seen == list(range(len(seen))), "a part from the beginning, without doubles"
        catch_up(store, to, rows_per_file=3)
        assert numbers_of(to) == list(range(20))
        if ended:
            break
    assert step > 20


def test_a_crash_and_then_more_entries(store: hr.Store, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was begun is taken as it is: a longer one in its place would hold its entries twice."""
    entries = 0
    for step in range(6, 24, 2):
        to = place / f"lake{step}"
        publish(store, entries, entries + 7)
        entries += 7
        with killed_at(step, monkeypatch), pytest.raises(Crash):
            catch_up(store, to, rows_per_file=5)
            raise Crash
        publish(store, entries, entries + 2)
        entries += 2
        catch_up(store, to, rows_per_file=5)
        assert numbers_of(to) == list(range(entries))


def test_a_file_that_a_power_cut_kept_without_those_before_it_is_written_again(
    store: hr.Store, place: Path
) -> None:
    publish(store, 0, 10)
    to = place / "lake"
    Archiver(Place(str(store.path)), "orders", to=to).close()
    (to / "day=2026-11-17").mkdir()
    stray = to / "day=2026-11-17" / "00000000000000000005-00000000000000000007.parquet"
    stray.write_bytes(b"not even Parquet")
    catch_up(store, to)
    assert not stray.exists()
    assert numbers_of(to) == list(range(10))


def test_readers_do_not_see_what_is_being_written(
    store: hr.Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, 0, 10)
    to = place / "lake"

    def stop(self: Disk, old: Path, new: Path) -> None:
        if new.suffix == ".parquet":
            raise Crash

    with monkeypatch.context() as patch, Archiver(Place(str(store.path)), "orders", to=to) as archiver:
        patch.setattr(Disk, "rename", stop)
        with pytest.raises(Crash):
            archiver.catch_up(NO_SPARK)
        assert list((to / "_headrace" / "staged").iterdir())
        assert files_of(to) == []
        assert ds.dataset(to).files == []
    assert not (to / "_headrace" / "staged").exists(), "nor is it left behind"


def test_a_full_disk_is_told_and_filled_no_further(
    store: hr.Store, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(store, 0, 10)
    real = Path.open

    def opened(self: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
        return real(Path("/dev/full"), mode) if mode == "wb" else real(self, mode, *args, **options)

    with monkeypatch.context() as patch, pytest.raises(DiskFull, match="no room on the disk"):
        patch.setattr(Path, "open", opened)
        catch_up(store, place / "lake")
    assert not (place / "lake" / "_headrace" / "staged").exists()
    catch_up(store, place / "lake")
    assert numbers_of(place / "lake") == list(range(10))
