"""A disk that fails: every single operation in turn, with every error.

Whatever fails, only HeadraceErrors come out, and on a healthy disk the log opens and holds everything that
was acknowledged.
"""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from headrace.kernel.errors import Broken, DiskFailed, DiskFull, HeadraceError
from headrace.log import Containers, Log, Settings, repair

from .disks import FailingDisk
from .entries import SCHEMA, Entry, batch_of
from .judge import copied, look, lost_indexes, read_all
from .workload import Append, Group, Model, Reopen, Roll, Shape, Step, Sync, Trim, Truncate, Writer
from .workload import Head as MoveHead

SCRIPT: list[Step] = [
    Append((10, 20)),
    Sync(),
    Group(((5,), (6, 7))),
    Sync(),
    Group(((5,), (6, 7), (8,)), streamed=True),
    Sync(),
    Roll(),
    Append((30_000, 30_000)),
    MoveHead(3),
    Sync(),
    Append((8,)),
    Truncate(0.8),
    Append((9, 9)),
    Sync(),
    Roll(),
    Append((11,)),
    Trim(0.5),
    Append((12,)),
    Reopen(),
    Append((13,)),
    Truncate(0.5),
    Append((14,)),
    Sync(),
    Roll(),
    Append((15,)),
]
FAILURES = [
    pytest.param(errno.EIO, 0.0, False, id="EIO"),
    pytest.param(errno.EIO, 0.5, True, id="EIO for good, after half a write"),
    pytest.param(errno.ENOSPC, 0.0, False, id="ENOSPC"),
    pytest.param(errno.ENOSPC, 0.5, False, id="ENOSPC after half a write"),
    pytest.param(errno.ENOSPC, 0.9, True, id="ENOSPC for good"),
]
RINGS = [pytest.param(None, id="files"), pytest.param(Containers(bytes=512 * 1024), id="containers")]


def is_active(name: str) -> bool:
    return name.endswith(".active")


class Life:
    """The script, run until something fails; `before` is what had been promised until then."""

    def __init__(self, path: Path, shape: Shape, disk: FailingDisk) -> None:
        self.before = Model()
        self.step: Step | None = None
        self.writer: Writer | None = None
        self.error = ""
        try:
            self.writer = Writer(path, shape, disk)
            for self.step in SCRIPT:
                self.before = self.writer.model.snapshot()
                self.writer.do(self.step)
        except HeadraceError as error:
            self.error = repr(error)

    @property
    def required(self) -> dict[int, Entry]:
        """Acknowledged, and not to be cut off by the step that failed."""
        required = self.before.required
        if isinstance(self.step, Truncate):
            return {i: e for i, e in required.items() if i < self._cut_at()}
        if isinstance(self.step, Trim):
            return {i: e for i, e in required.items() if i >= self._cut_at()}
        return required

    def _cut_at(self) -> int:
        model = self.before
        return model.base + int((model.next_index - model.base) * self.step.part)  # type: ignore[union-attr]

    def may_hold(self, entry: Entry) -> bool:
        """Whether the log may hold it: it was there, or the step that failed was about to append it."""
        return self.before.entries.get(entry.index) == entry or entry.generation > self.before.generation

    def go_on(self) -> list[Entry]:
        """Use the failed log: what it still acknowledges."""
        if self.writer is None:
            return []
        log = self.writer.log
        made: list[Entry] = []
        with contextlib.suppress(HeadraceError):
            made = [Entry(log.next_index, 10**6, 10**6, 33)]
            log.append(batch_of(made))
            log.sync()
            return made
        return []

    def close(self) -> None:
        if self.writer is not None:
            with contextlib.suppress(HeadraceError):
                self.writer.log.close()
        self.writer = None


def operations(place: Path, shape: Shape) -> int:
    disk = FailingDisk()
    life = Life(place / "whole", shape, disk)
    assert not life.error
    life.close()
    return disk.count


@pytest.mark.parametrize("containers", RINGS)
@pytest.mark.parametrize(("code", "part", "lasting"), FAILURES)
def test_whatever_operation_fails_nothing_acknowledged_is_lost(place, containers, code, part, lasting):
    shape = Shape(Settings(containers=containers), "key")
    count = operations(place, shape)
    assert count > 100
    for fail_at in range(count):
        disk = FailingDisk(fail_at, code, part=part, lasting=lasting)
        path = place / f"log{fail_at}"
        life = Life(path, shape, disk)
        where = f"operation {fail_at} ({disk.failed[:1]}) during {life.step}"
        disk.heal()
        acknowledged = {entry.index: entry for entry in life.go_on()}
        life.close()
        required = life.required | acknowledged
        if not path.exists() or not (path / "meta.json").exists():
            assert not required, where
            continue
        with Log.open(path) as log:
            seen = read_all(log)
            report = log.verify()
            new = Entry(log.next_index, 10**7, 10**7, 3)
            assert log.append(batch_of([new])) == new.index
            log.sync()
        missing = {i: e for i, e in required.items() if seen.entries.get(i) != e}
        assert not missing, f"{where}: lost {missing}; {report.damages}"
        stale = [e for i, e in seen.entries.items() if not life.may_hold(e) and acknowledged.get(i) != e]
        assert not stale, f"{where}: {stale} were never there or had been cut off"
        assert report.ok, f"{where}: {report.damages}"
        assert not lost_indexes(seen.damages, 10**6), where
        again, report = look(path)
        assert again.entries == seen.entries | {new.index: new}, where
        assert report.ok


@pytest.mark.parametrize("containers", RINGS)
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_whatever_operation_of_repair_fails_a_second_repair_succeeds(place, containers, code):
    shape = Shape(Settings(containers=containers), None)
    life = Life(place / "whole", shape, FailingDisk())
    life.close()
    for file in sorted((place / "whole").iterdir()):
        raw = bytearray(file.read_bytes())
        if file.suffix in (".seg", ".active"):
            raw[1300] ^= 4
        elif file.name in ("meta.json", "mark"):
            raw[len(raw) // 2] ^= 4
        file.write_bytes(raw)
    disk = FailingDisk()
    best = copied(place / "whole", place / "best")
    repair(best, disk=disk)
    whole, report = look(best)
    assert report.ok
    assert disk.count > 20
    for fail_at in range(disk.count):
        path = copied(place / "whole", place / "log")
        with contextlib.suppress(HeadraceError):
            repair(path, disk=FailingDisk(fail_at, code, part=0.5))
        repair(path)
        seen, report = look(path)
        assert report.ok, f"operation {fail_at}: {report.damages}"
        assert whole.entries.items() <= seen.entries.items(), f"operation {fail_at} lost entries"
        assert not seen.damages


@pytest.mark.parametrize("containers", RINGS)
def test_a_failed_sync_is_final_and_the_log_reopens(place, containers):
    disk = FailingDisk(kinds=("sync",))
    log = Log.open(place / "log", SCHEMA, Settings(containers=containers), disk=disk)
    safe = Entry(0, 1, 0, 10)
    log.append(batch_of([safe]))
    log.sync()
    log.append(batch_of([Entry(1, 2, 1, 10)]))
    disk.fail_at = disk.count
    with pytest.raises(DiskFailed):
        log.sync()
    disk.heal()
    syncs = disk.count
    for _ in range(2):
        with pytest.raises(Broken):
            log.sync()
        with pytest.raises(Broken):
            log.append(batch_of([Entry(2, 3, 2, 10)]))
        with pytest.raises(Broken):
            log.roll()
        with pytest.raises(Broken):
            log.trim(1)
        with pytest.raises(Broken):
            log.truncate(0)
    assert disk.count == syncs, "a failed sync was tried again"
    assert 0 in read_all(log).entries, "a broken log stays readable"
    log.close()
    with Log.open(place / "log") as again:
        assert read_all(again).entries[0] == safe


@pytest.mark.parametrize("containers", RINGS)
def test_a_failed_write_breaks_the_log_until_it_is_reopened(place, containers):
    disk = FailingDisk(part=0.7, kinds=("write",), only=is_active)
    log = Log.open(place / "log", SCHEMA, Settings(containers=containers), disk=disk)
    safe = Entry(0, 1, 0, 10)
    log.append(batch_of([safe]))
    log.sync()
    disk.fail_at = disk.count
    with pytest.raises(DiskFailed):
        log.append(batch_of([Entry(1, 2, 1, 1000)]))
    disk.heal()
    with pytest.raises(Broken):
        log.append(batch_of([Entry(1, 3, 1, 10)]))
    with pytest.raises(Broken):
        log.sync()
    assert read_all(log).entries == {0: safe}
    log.close()
    with Log.open(place / "log") as again:
        assert read_all(again).entries == {0: safe}
        assert again.next_index == 1
        assert again.verify().ok


@pytest.mark.parametrize("containers", RINGS)
@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
@pytest.mark.parametrize("buffers", [1, 3])
def test_a_full_disk_refuses_the_append_and_nothing_else(place, containers, part, buffers):
    disk = FailingDisk(
        code=errno.ENOSPC,
        part=part,
        kinds=("write",),
        lasting=True,
        only=lambda name: name.endswith(".active"),
    )
    settings = Settings(containers=containers, write_buffers=buffers)
    log = Log.open(place / "log", SCHEMA, settings, disk=disk)
    safe = Entry(0, 1, 0, 10)
    log.append(batch_of([safe]))
    log.sync()
    disk.fail_at = disk.count
    if buffers == 1:
        for _ in range(3):
            with pytest.raises(DiskFull):
                log.append(batch_of([Entry(1, 2, 1, 1000)]))
        log.sync()  # nothing new, so nothing to write
        assert read_all(log).entries == {0: safe}
        disk.heal()
        later = Entry(1, 3, 1, 100)
        assert log.append(batch_of([later])) == 1
    else:  # held back, so refused when it is to be written; and kept
        later = Entry(1, 3, 1, 100)
        log.append(batch_of([later]))
        for _ in range(2):
            with pytest.raises(DiskFull):
                log.sync()
        disk.heal()
    log.sync()
    assert read_all(log).entries == {0: safe, 1: later}
    log.close()
    seen, report = look(place / "log")
    assert seen.entries == {0: safe, 1: later}
    assert report.ok
    with Log.open(place / "log") as again:
        assert again.recovery.clean
