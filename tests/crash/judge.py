"""Whether what is left of a log is right.

Whatever was done to the files, four things hold: no entry is read that was not appended, every entry that is
not read although it had been safe is reported by its exact index, nothing but HeadraceErrors is raised, and
nothing loops for ever.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from headrace.log import Damage, Log, Report, repair

from .disks import BoundedDisk
from .entries import Entry, batch_of, entries_of
from .workload import Model


@dataclass(slots=True)
class Seen:
    """What reading a log gave."""

    entries: dict[int, Entry]
    damages: list[Damage]


def read_all(log: Log) -> Seen:
    """Every entry that can be read, each checked against itself, in order and once."""
    entries: dict[int, Entry] = {}
    damages: list[Damage] = []
    last = -1
    for batch in log.read(on_damage=damages.append):
        for entry in entries_of(batch):
            assert entry.index > last, f"entry {entry.index} was read after entry {last}"
            entries[entry.index] = entry
            last = entry.index
    return Seen(entries, damages)


def look(path: Path) -> tuple[Seen, Report]:
    """Read and verify without changing anything."""
    with Log.open(path, read_only=True, disk=BoundedDisk()) as log:
        return read_all(log), log.verify()


def lost_indexes(damages: Iterable[Damage], stop: int) -> set[int]:
    """All indexes that are reported as lost, below `stop`."""
    lost: set[int] = set()
    for damage in damages:
        ends = stop if damage.stop_lost is None else min(damage.stop_lost, stop)
        lost.update(range(damage.first_lost, ends))
    return lost


def check_only_appended(seen: Seen, *known: Model) -> None:
    for index, entry in seen.entries.items():
        whole = [model.entries.get(index) for model in known]
        assert entry in whole, f"entry {index} is {entry}, which was never there; known are {whole}"


def check_losses_told(seen: Seen, damages: Iterable[Damage], required: dict[int, Entry], who: str) -> None:
    """Every required entry is there or said to be lost, and nothing that is there is said to be lost."""
    damages = list(damages)
    lost = lost_indexes(damages, max(required, default=0) + 1)
    silent = sorted(set(required) - set(seen.entries) - lost)
    assert not silent, f"{who} lost {silent} without a word; it said {damages}"
    slander = sorted(lost & set(seen.entries))
    assert not slander, f"{who} calls {slander} lost, but they can be read; it said {damages}"


def check_groups(seen: Seen, model: Model, damages: Iterable[Damage] = ()) -> None:
    """Each group is there as a whole or not at all, unless a part of it is reported as damaged."""
    lost = lost_indexes(damages, model.next_index)
    for base, stop in model.groups:
        there = [index for index in range(max(base, model.base), stop) if index in seen.entries]
        if there and not lost & set(range(base, stop)):
            assert len(there) == stop - max(base, model.base), (
                f"half of group {base}..{stop} is there: {there}"
            )


def check_writer(path: Path, model: Model, required: dict[int, Entry], floor: int) -> tuple[Seen, Log]:
    """Open for writing; what was safe is there or told, and a new entry gets an index of its own."""
    log = Log.open(path, disk=BoundedDisk())
    try:
        seen = read_all(log)
        report = log.verify()
        damages = [*log.recovery.damages, *seen.damages, *report.damages]
        check_losses_told(seen, damages, required, "the writer")
        index = log.next_index
        assert index >= floor, f"index {index} would be given again; {floor} indexes were safe"
        assert not seen.entries or index > max(seen.entries)
        new = Entry(index, 10**9 + index, model.key + 1000, 17)
        assert log.append(batch_of([new])) == index
        log.sync()
        again = read_all(log)
        assert again.entries == seen.entries | {index: new}, (
            f"after appending {index}: {sorted(again.entries)} instead of {[*sorted(seen.entries), index]}; "
            f"{again.damages} {log.recovery}"
        )
    except BaseException:
        log.close()
        raise
    return again, log


def check_repair(path: Path, seen: Seen, required: dict[int, Entry], base: int) -> None:
    """Repaired, a log is whole: it verifies, reads without damage, and holds all it held from `base` on."""
    report = repair(path, disk=BoundedDisk())
    assert report.after is not None
    assert report.after.ok, f"after repair: {report.after.damages}"
    with Log.open(path, read_only=True, disk=BoundedDisk()) as log:
        after = {entry.index: entry for batch in log.read() for entry in entries_of(batch)}
        assert log.verify().ok
    before = {index: entry for index, entry in seen.entries.items() if index >= base}
    gone = sorted(set(before) - set(after))
    assert not gone, f"repair lost {gone}, which could be read before"
    assert all(after[index] == entry for index, entry in before.items())
    assert all(after[i] == required[i] for i in set(after) & set(required))
    with Log.open(path, disk=BoundedDisk()) as log:
        assert log.recovery.clean, f"after repair opening still finds {log.recovery}"
        assert read_all(log).entries == after


def copied(path: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(path, to)
    return to
