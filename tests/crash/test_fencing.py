"""One writer a log: a second one is refused, or takes over and then the first can do no more harm."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from headrace.kernel.errors import Fenced, HeadraceError, WriterTaken
from headrace.log import Containers, Log, Settings

from .disks import HookedDisk
from .entries import SCHEMA, Entry, batch_of
from .judge import look, read_all
from .processes import LIFE, Nursery, stop
from .workload import Append, Group, Model, Roll, Shape, Step, Sync, Trim, Truncate, Writer

RINGS = [pytest.param(None, id="files"), pytest.param(Containers(bytes=512 * 1024), id="containers")]
NEW = 10**6
"""Generation of what the new writer appends."""


def append(log: Log, generation: int, count: int = 1) -> list[Entry]:
    first = log.next_index
    made = [Entry(first + at, generation, first + at, 20) for at in range(count)]
    log.append(batch_of(made))
    return made


def test_a_second_writer_in_the_same_process_is_refused(place):
    with Log.open(place / "log", SCHEMA) as log:
        for _ in range(2):
            with pytest.raises(WriterTaken):
                Log.open(place / "log")
        append(log, 1)
        log.sync()
    Log.open(place / "log").close()


def test_a_second_writer_in_another_process_is_refused_and_let_in_once_the_first_is_gone(place):
    with Nursery() as nursery:
        with Log.open(place / "log", SCHEMA) as log:
            append(log, 1)
            nursery.start("open", place / "log")
            assert nursery.lines_until_dead() == [["refused", "writer_taken"]]
            append(log, 2)
            log.sync()
        nursery.start("open", place / "log")
        assert nursery.lines_until_dead() == [["opened"]]
        pid = nursery.start("write", place / "log", 1)
        assert nursery.line()[0] == "opened"
        with pytest.raises(WriterTaken):
            Log.open(place / "log")
        os.kill(pid, signal.SIGKILL)
        nursery.lines_until_dead()
        Log.open(place / "log").close()


@pytest.mark.parametrize("containers", RINGS)
def test_after_a_take_over_the_old_writer_can_do_nothing_and_nothing_it_acknowledged_is_lost(
    place, containers
):
    old = Log.open(place / "log", SCHEMA, Settings(containers=containers))
    safe = append(old, 1, 3)
    old.sync()
    written = append(old, 2)  # not acknowledged: it may stay
    new = Log.open(place / "log", take_over=True)
    for _ in range(2):
        for act in (
            lambda: append(old, 3),
            lambda: old.sync(),
            lambda: old.roll(),
            lambda: old.trim(2),
            lambda: old.truncate(1),
            lambda: old.append_group([batch_of([Entry(9, 9, 9, 9)])], writer="w", sequence=1),
        ):
            with pytest.raises(Fenced):
                act()
    later = append(new, NEW, 2)
    new.sync()
    with contextlib.suppress(Fenced):
        old.close()
    last = append(new, NEW + 1)
    new.sync()
    new.close()
    seen, report = look(place / "log")
    assert report.ok
    assert [*seen.entries.values()] in ([*safe, *later, *last], [*safe, *written, *later, *last])


SCRIPT: list[Step] = [
    Append((10, 20)),
    Sync(),
    Group(((5,), (6, 7))),
    Group(((3,), (3, 4)), streamed=True),
    Sync(),
    Roll(),
    Append((30,)),
    Sync(),
    Append((8, 8)),
    Truncate(0.7),
    Append((9, 9)),
    Sync(),
    Roll(),
    Append((11,)),
    Trim(0.5),
    Append((12,)),
    Roll(),
    Append((13,)),
    Sync(),
]


def old_life(path: Path, shape: Shape, disk: HookedDisk) -> tuple[Model, Step | None, str]:
    """The script until it ends or fails: what was promised, the step that failed, and how."""
    model, step = Model(), None
    writer = None
    try:
        writer = Writer(path, shape, disk)
        for step in SCRIPT:
            model = writer.model.snapshot()
            writer.do(step)
        model = writer.model.snapshot()
    except HeadraceError as error:
        return model, step, error.code
    finally:
        if writer is not None:
            with contextlib.suppress(HeadraceError):
                writer.log.close()
    return model, None, ""


@pytest.mark.parametrize("containers", RINGS)
def test_a_take_over_before_any_operation_of_the_old_writer_loses_nothing_of_either(place, containers):
    shape = Shape(Settings(containers=containers), None)
    disk = HookedDisk(None, lambda: None)
    assert old_life(place / "whole", shape, disk)[2] == ""
    for at in range(12, disk.count):
        path = place / f"log{at}"
        taken: list[Log] = []
        made: list[Entry] = []

        def take_over(path=path, taken=taken, made=made) -> None:
            taken.append(Log.open(path, take_over=True))
            made.extend(append(taken[0], NEW, 2))
            taken[0].sync()

        disk = HookedDisk(at, take_over)
        model, step, _ = old_life(path, shape, disk)
        where = f"taken over before operation {at} {disk.called} during {step}"
        if not taken:  # a close came first
            continue
        new = taken[0]
        made += append(new, NEW + 1, 2)
        new.sync()
        mine = {entry.index: entry for entry in made}
        seen = read_all(new)
        new.close()
        required = model.required
        if isinstance(step, Truncate | Trim):
            cut = model.base + int((model.next_index - model.base) * step.part)
            low = isinstance(step, Truncate)
            required = {i: entry for i, entry in required.items() if (i < cut) == low}
        missing = {i: e for i, e in (required | mine).items() if seen.entries.get(i) != e}
        assert not missing, f"{where}: lost {missing}"
        again, report = look(path)
        assert again.entries == seen.entries, where
        assert report.ok, f"{where}: {report.damages}"
        with Log.open(path) as reopened:
            assert reopened.recovery.clean, f"{where}: {reopened.recovery}"
            assert read_all(reopened).entries == seen.entries, where


def test_a_stopped_writer_that_wakes_up_after_a_take_over_is_fenced(place):
    path = place / "log"
    with Nursery() as nursery:
        pid = nursery.start("write", path, 1)
        lines = [nursery.line() for _ in range(10)]
        stop(pid)
        new = Log.open(path, take_over=True)
        base = new.next_index
        made = append(new, NEW * LIFE, 3)
        new.sync()
        os.kill(pid, signal.SIGCONT)
        lines += nursery.lines_until_dead()
    assert lines[-1] == ["error", "fenced"]
    acknowledged = max(int(line[1]) for line in lines if line[0] == "ack")
    assert acknowledged <= base, "the old writer acknowledged what the new one does not have"
    made += append(new, NEW * LIFE + 1, 1)
    new.sync()
    new.close()
    seen, report = look(path)
    assert report.ok
    assert sorted(seen.entries) == list(range(base + 4))
    assert {entry.index: entry for entry in made}.items() <= seen.entries.items()
    assert all(seen.entries[index].generation // LIFE == 1 for index in range(acknowledged))
