"""Power cuts: of what was not synced anything may be left, in any order, torn anywhere.

A log is written by random steps on a disk that records every operation; then the power goes after any of
them, and the log that is left is read, verified, opened and repaired. It lives on, and the power goes again.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import NotALog, NotFound
from headrace.log import Containers, Log, Settings

from .conftest import MEMORY
from .disks import PowerCut, RecordingDisk
from .entries import Entry
from .judge import (
    Seen,
    check_groups,
    check_only_appended,
    check_repair,
    check_writer,
    copied,
    look,
    lost_indexes,
)
from .workload import (
    CAMPAIGN,
    SHAPES,
    STEPS,
    Append,
    Group,
    Model,
    Reopen,
    Roll,
    Shape,
    Step,
    Sync,
    Trim,
    Truncate,
    Writer,
    examples,
)
from .workload import Head as MoveHead

SEEDS = st.integers(0, 2**32 - 1)
MOMENTS = st.tuples(st.sampled_from([0, 1, 1, 2, 3, 5, 8]), SEEDS)
"""During which step the power goes, counted from the last one, and at which operation of it."""
LIVES = st.lists(
    st.tuples(STEPS, MOMENTS, st.sampled_from(PowerCut.KINDS), SEEDS),
    min_size=1,
    max_size=3,
)
SCRIPT: list[Step] = [
    Append((10, 20)),
    Sync(),
    Group(((5,), (6, 7))),
    Group(((3,), (3, 4)), streamed=True),
    Sync(),
    Append((8,)),
    Roll(),
    Append((35_000,)),
    MoveHead(3),
    Sync(),
    Append((8,)),
    Append((9,)),
    Group(((2000,), (2000, 7)), streamed=True),
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
    Trim(1.0),
    Roll(),
    Group(((1000,), (1000,))),
    Append((700, 700)),
    Sync(),
]


class History:
    """What had been promised at each moment of one life."""

    def __init__(self, disk: RecordingDisk, model: Model) -> None:
        self._disk = disk
        self._moments = [(0, model.snapshot(), None)]

    def note(self, model: Model, step: Step | None) -> None:
        self._moments.append((len(self._disk.journal), model.snapshot(), step))

    def moment(self, steps_before_end: int, within: int) -> int:
        """How many operations were done at some point of a step."""
        last = max(len(self._moments) - 1 - steps_before_end, 1)
        first, stop = self._moments[last - 1][0], self._moments[last][0]
        return first + within % (stop - first + 1)

    def around(self, when: int) -> tuple[Model, Model, Step | None]:
        """What was promised before `when`, what would be after the step under way, and that step."""
        at = max(n for n, (length, _, _) in enumerate(self._moments) if length <= when)
        after = self._moments[min(at + 1, len(self._moments) - 1)]
        return self._moments[at][1], after[1], after[2]


@examples(200)
@given(SHAPES, LIVES)
def test_a_power_cut_at_any_moment_loses_nothing_that_was_acknowledged(shape, lives):
    root = Path(tempfile.mkdtemp(prefix="headrace-power-", dir=MEMORY if Path(MEMORY).is_dir() else None))
    try:
        (root / "life").mkdir()
        model = Model()
        for number, (steps, moment, kind, seed) in enumerate(lives):
            model.generation = (number + 1) * 1000
            model = live(root, shape, model, steps, moment, PowerCut(kind, seed))
    finally:
        shutil.rmtree(root, ignore_errors=True)


RING = Containers(bytes=512 * 1024)


@pytest.mark.parametrize(
    ("containers", "buffers", "order_by"),
    [
        pytest.param(None, 1, None, id="files"),
        pytest.param(None, 3, "key", id="files, write buffers, order key"),
        pytest.param(RING, 1, "key", id="containers, order key"),
        pytest.param(RING, 3, None, id="containers, write buffers"),
    ],
)
def test_a_power_cut_after_every_single_operation_loses_nothing_acknowledged(
    place, containers, buffers, order_by
):
    (place / "life").mkdir()
    shape = Shape(Settings(containers=containers, write_buffers=buffers), order_by)
    disk, history = lived(place, shape, Model(), SCRIPT)
    assert len(disk.journal) > 120
    kinds = ("nothing", "everything", "a prefix", "anything", "anything")
    for when in range(len(disk.journal) + 1):
        for seed in range(10 * len(kinds)) if CAMPAIGN else (when, when + 2):  # a campaign tries all of them
            left_after(place, disk, when, PowerCut(kinds[seed % len(kinds)], 1000 * when + seed))
            judge(place, place / "left" / "log", *history.around(when))


def lived(root: Path, shape: Shape, model: Model, steps: list[Step]) -> tuple[RecordingDisk, History]:
    """One life, recorded."""
    disk = RecordingDisk(root / "life")
    history = History(disk, model)
    writer = Writer(root / "life" / "log", shape, disk, model)
    model.next_index, model.durable = writer.log.next_index, writer.log.durable_index
    history.note(model, None)
    for step in steps:
        writer.do(step)
        history.note(writer.model, step)
    recorded = len(disk.journal)
    writer.log.close()
    del disk.journal[recorded:]
    return disk, history


def left_after(root: Path, disk: RecordingDisk, when: int, luck: PowerCut) -> None:
    shutil.rmtree(root / "left", ignore_errors=True)
    (root / "left").mkdir()
    disk.after_power_cut(root / "left", when, luck)


def live(
    root: Path, shape: Shape, model: Model, steps: list[Step], moment: tuple[int, int], luck: PowerCut
) -> Model:
    """One life from opening to a power cut; what is promised to the next one."""
    disk, history = lived(root, shape, model, steps)
    when = history.moment(*moment)
    left_after(root, disk, when, luck)
    return judge(root, root / "left" / "log", *history.around(when))


def judge(root: Path, path: Path, before: Model, after: Model, step: Step | None) -> Model:
    """Check what a power cut left during `step`, and hand on the life of it."""
    required = {i: e for i, e in before.required.items() if i >= after.base and after.entries.get(i) == e}
    try:
        seen, report = look(path)
    except (NotFound, NotALog):  # the power went while the log was being created
        assert not before.next_index
        shutil.rmtree(root / "life")
        (root / "life").mkdir()
        return Model()
    check_only_appended(seen, before, after)
    check_nothing_lost(seen, required, "the reader")
    check_groups(seen, before if len(before.groups) > len(after.groups) else after, seen.damages)
    told = [*seen.damages, *report.damages]
    check_reports(told, before, after)
    floor = before.durable if not isinstance(step, Truncate) else min(before.durable, after.next_index)
    check_repair(copied(path, root / "repaired"), seen, required, max(before.base, after.base))
    shutil.rmtree(root / "life")
    (root / "life").mkdir()
    shutil.copytree(path, root / "life" / "log")
    recovered, log = check_writer(root / "life" / "log", after, {}, floor)
    check_nothing_lost(recovered, required, "the writer")
    check_reports(log.recovery.damages, before, after)
    assert min(recovered.entries) >= before.base, "trimmed entries came back"
    new = {i: entry for i, entry in recovered.entries.items() if entry.generation >= 10**9}
    kept = Seen({i: entry for i, entry in recovered.entries.items() if i not in new}, recovered.damages)
    check_only_appended(kept, before, after)
    check_groups(kept, before if len(before.groups) > len(after.groups) else after, recovered.damages)
    model = next_model(recovered, log, before, after)
    log.close()
    return model


def next_model(recovered: Seen, log: Log, before: Model, after: Model) -> Model:
    entries = recovered.entries
    groups = tuple(
        group
        for group in dict.fromkeys(before.groups + after.groups)
        if all(i in entries for i in range(max(group[0], log.first_index), group[1]))
        and group[1] <= log.next_index
    )
    trimmed = {i: e for i, e in (before.entries | after.entries).items() if i < log.first_index}
    return Model(
        trimmed | entries,
        log.next_index,
        log.durable_index,
        log.first_index,
        max(before.key, after.key, *(entry.key for entry in entries.values()), 0),
        groups,
        after.generation,
        (*before.told, *log.recovery.damages, *recovered.damages),
    )


def check_nothing_lost(seen: Seen, required: dict[int, Entry], who: str) -> None:
    wrong = {i: seen.entries.get(i) for i, entry in required.items() if seen.entries.get(i) != entry}
    assert not wrong, f"{who} lost what was acknowledged: {wrong}; damages: {seen.damages}"


def check_reports(damages, before: Model, after: Model) -> None:
    """Only what had been appended and was not yet safe may be called damaged, or was lost earlier."""
    lost = lost_indexes(damages, 10**6)
    loose = set(range(min(before.durable, after.durable), max(before.next_index, after.next_index)))
    loose |= lost_indexes(before.told, 10**6)
    assert lost <= loose, f"{sorted(lost - loose)} are called lost: {damages}"
