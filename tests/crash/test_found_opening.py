"""What a review found about opening, recovery and take-overs, each as the smallest scenario that shows it."""

from __future__ import annotations

import contextlib
import errno
import threading

import pyarrow as pa
import pytest

from headrace.kernel.errors import DiskFailed, Fenced, HeadraceError, WriterTaken
from headrace.log import Containers, Log, Retention, Settings, repair
from headrace.log.disk import Disk, File

from .disks import FailingDisk, RecordingDisk, WatchedDisk
from .entries import SCHEMA, Entry, batch_of
from .judge import lost_indexes, read_all
from .scenes import append, as_dict, entries, segment

# --- take-overs


class HangingFile(File):
    """A file whose next write to an active segment hangs."""

    hanging, go_on = threading.Event(), threading.Event()
    armed = False

    def write_one(self, data, offset):
        self._hang()
        return super().write_one(data, offset)

    def write(self, parts, offset):
        self._hang()
        return super().write(parts, offset)

    def _hang(self) -> None:
        if type(self).armed and self.path.name.endswith(".active"):
            type(self).armed = False
            self.hanging.set()
            assert self.go_on.wait(30)


def test_a_fenced_writer_that_wakes_in_its_write_does_not_reach_the_containers_of_the_new_one(place):
    disk = Disk()
    disk.file_class = HangingFile
    old = Log.open(place / "log", SCHEMA, Settings(containers=Containers(bytes=512 << 10)), disk=disk)
    made = append(old, 1)
    old.sync()
    outcome: list[object] = []

    def go() -> None:
        try:
            old.append(batch_of(entries(1, 20, 7, 5000)))
            old.sync()
        except HeadraceError as error:
            outcome.append(error)

    HangingFile.armed = True
    thread = threading.Thread(target=go)
    thread.start()
    assert HangingFile.hanging.wait(30)
    new = Log.open(place / "log", take_over=True)
    for _ in range(15):  # into the next containers
        made += append(new, 20, 2, 4000)
        new.sync()
    HangingFile.go_on.set()
    thread.join()
    assert isinstance(outcome[0], Fenced)
    assert read_all(new).entries == as_dict(made)
    assert new.verify().ok
    new.close()


def test_a_take_over_does_not_make_a_mark_believable_that_a_truncation_has_outdated(place):
    log = Log.open(place / "log", SCHEMA)
    made = append(log, 3)
    append(log, 3)
    log.sync()
    before = (place / "log" / "mark").read_bytes()
    log.truncate(3)
    log.close()
    (place / "log" / "mark").write_bytes(before)  # it is never synced: a power cut may bring it back
    with Log.open(place / "log", take_over=True) as log:
        assert log.recovery.clean
        assert log.next_index == 3
        assert read_all(log).entries == as_dict(made)


# --- what was durable is not forgotten


def emptied(path) -> None:
    """A log whose only segment has lost all its bytes."""
    with Log.open(path, SCHEMA) as log:
        append(log, 3)
        log.sync()
    segment(path, ".active").write_bytes(b"")


def test_repair_does_not_forget_entries_that_were_durable(place):
    emptied(place / "log")
    report = repair(place / "log")
    assert lost_indexes(report.found, 3) == {0, 1, 2}
    with Log.open(place / "log") as log:
        assert log.next_index == 3


@pytest.mark.parametrize("gone", ["its bytes", "its name"])
def test_an_opening_that_failed_before_the_gap_was_written_does_not_forget_entries_that_were_durable(
    place, gone
):
    for fail_at in range(20):
        path = place / f"log{fail_at}"
        emptied(path)
        if gone == "its name":
            segment(path, ".active").unlink()
        disk = FailingDisk(fail_at, errno.EIO, lasting=True)
        with contextlib.suppress(HeadraceError):
            Log.open(path, disk=disk).close()
        with Log.open(path) as log:
            assert log.next_index == 3


# --- after a failed sync


def test_markers_that_a_failed_sync_left_in_doubt_are_written_again(place):
    disk = FailingDisk(kinds=("sync",))
    log = Log.open(place / "log", SCHEMA, order_by="key", disk=disk)
    append(log, 2)
    log.sync()
    doubtful = log._appender.active.offset
    log.head(50)
    log.append_group([], writer="w", sequence=1)
    log.append(batch_of([Entry(2, 1, 60, 10)]))
    disk.fail_at = disk.count
    with pytest.raises(DiskFailed):
        log.sync()
    end = log._appender.active.offset
    log.close()
    again = RecordingDisk(place)
    name = segment(place / "log", ".active")
    number = again._names[str(name.relative_to(place))]
    Log.open(place / "log", disk=again).close()
    written = [op for op in again.journal if op.kind == "write" and op.file == number]
    covered = {at for op in written for at in range(op.offset, op.offset + len(op.data))}
    assert covered >= set(range(doubtful, end))


# --- meta.json and directories


def test_what_another_writer_changed_before_it_let_the_lock_go_is_not_put_back(place):
    grown = SCHEMA.append(pa.field("more", pa.int64()))
    first = Log.open(place / "log", SCHEMA, Settings(retention=Retention(entries=1)))

    def between() -> None:
        first.close()
        with Log.open(place / "log", settings=Settings()) as other:
            other.evolve(grown)

    class Meanwhile(Disk):
        hooked = True

        def open(self, path, *, write=False, create=False):
            if path.name == "lock" and self.hooked:
                self.hooked = False
                between()
            return super().open(path, write=write, create=create)

    with Log.open(place / "log", disk=Meanwhile()) as log:
        assert log.schema == grown
        assert log.settings == Settings()


def test_every_directory_that_is_made_for_a_log_is_safe_in_the_one_above_it(place):
    class Noting(WatchedDisk):
        def __init__(self) -> None:
            super().__init__()
            self.synced: set[object] = set()

        def sync_dir(self, directory) -> None:
            super().sync_dir(directory)
            self.synced.add(directory)

    disk = Noting()
    Log.open(place / "a" / "b" / "log", SCHEMA, disk=disk).close()
    assert {place, place / "a", place / "a" / "b"} <= disk.synced


def test_a_directory_that_a_crash_left_is_made_safe_by_the_next_try(place):
    disk = FailingDisk(0, kinds=("create",), only=lambda name: name == "lock")
    with pytest.raises(HeadraceError):
        Log.open(place / "log", SCHEMA, disk=disk)
    calls: list[object] = []

    class Noting(Disk):
        def sync_dir(self, directory) -> None:
            calls.append(directory)
            super().sync_dir(directory)

    Log.open(place / "log", SCHEMA, disk=Noting()).close()
    assert place in calls


def test_repair_believes_the_meta_that_stands_when_it_holds_the_lock(place):
    Log.open(place / "log", SCHEMA, Settings(retention=Retention(entries=1))).close()
    other = Log.open(place / "log", settings=Settings())
    with pytest.raises(WriterTaken):
        repair(place / "log")
    good = (place / "log" / "meta.json").read_bytes()
    (place / "log" / "meta.json").write_bytes(b"damaged")
    with pytest.raises(WriterTaken):  # nothing is put right under a writer
        repair(place / "log")
    assert (place / "log" / "meta.json").read_bytes() == b"damaged"
    (place / "log" / "meta.json").write_bytes(good)
    other.close()
