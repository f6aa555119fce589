"""What a review found about changes of the schema, each as the smallest scenario that shows it."""

from __future__ import annotations

import contextlib
import errno

import pyarrow as pa
import pytest

from headrace.kernel.errors import Broken, DiskFull, HeadraceError, LogFull
from headrace.log import Containers, Damage, Log, Retention, Settings, repair
from headrace.log.meta import load_meta, save_meta

from .disks import FailingDisk
from .entries import SCHEMA, batch_of, entries_of
from .judge import lost_indexes, read_all
from .scenes import append, as_dict, entries, segment

GROWN = SCHEMA.append(pa.field("more", pa.int64()))
RING = Settings(containers=Containers(bytes=512 << 10, initial=2, limit=2))


def grown(first: int, count: int) -> pa.RecordBatch:
    records = batch_of(entries(first, count))
    return pa.RecordBatch.from_arrays([*records.columns, pa.nulls(count, pa.int64())], schema=GROWN)


@pytest.mark.parametrize("fail_at", range(12))
def test_a_change_of_schema_that_a_full_disk_refuses_leaves_the_log_as_it_was(place, fail_at):
    disk = FailingDisk(code=errno.ENOSPC)
    log = Log.open(place / "log", SCHEMA, disk=disk)
    made = append(log, 3)
    log.sync()
    disk.count, disk.fail_at = 0, fail_at
    try:
        log.evolve(GROWN)
    except DiskFull:
        disk.heal()
        assert log.schema == SCHEMA
        made += append(log, 3)
    except Broken:
        disk.heal()
    else:
        disk.heal()
        assert log.schema == GROWN
        log.append(grown(3, 3))
        made += entries(3, 3)
    with contextlib.suppress(HeadraceError):
        log.sync()
    with contextlib.suppress(HeadraceError):
        log.close()
    with Log.open(place / "log", read_only=True) as reader:
        assert reader.verify().ok
        indexes = [index for batch in reader.read() for index in batch.records.column("index").to_pylist()]
    assert indexes == [entry.index for entry in made]
    Log.open(place / "log").close()


def test_a_refused_change_of_schema_is_not_made_by_opening_the_log_again(place):
    log = Log.open(place / "log", SCHEMA, RING)
    made = append(log, 3)
    log.roll()
    made += append(log, 3)
    with pytest.raises(LogFull):
        log.evolve(GROWN)
    made += append(log, 3)
    log.close()
    with Log.open(place / "log", SCHEMA) as log:
        assert read_all(log).entries == as_dict(made)


def test_a_full_ring_whose_change_of_schema_a_crash_cut_short_can_be_opened_and_trimmed(place):
    log = Log.open(place / "log", SCHEMA, RING)
    append(log, 3)
    log.roll()
    append(log, 3)
    log.close()
    save_meta(log._disk, log.path, load_meta(log._disk, log.path).replace(schema=GROWN))  # and then no more
    with Log.open(place / "log") as log:
        log.trim(6)
        log.append(grown(6, 2))
        log.sync()
        assert log.first_index == 6
    assert look_ok(place / "log")


def look_ok(path) -> bool:
    with Log.open(path, read_only=True) as log:
        return log.verify().ok


def test_a_change_of_schema_is_made_although_the_disk_is_full_for_retention(place):
    disk = FailingDisk(code=errno.ENOSPC, kinds=("write",), only=lambda name: name.endswith(".active"))
    log = Log.open(place / "log", SCHEMA, Settings(retention=Retention(entries=1)), disk=disk)
    append(log, 3)
    log.roll()
    append(log, 3)
    log.sync()
    disk.count, disk.fail_at = 0, 1  # the first is that of the footer
    log.evolve(GROWN)
    assert len(disk.failed) == 1
    disk.heal()
    log.append(grown(6, 2))
    log.close()
    assert look_ok(place / "log")


def flip(path, offset: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("rows", [3, 3000], ids=["small batches", "batches by columns"])
def test_repair_gives_a_segment_its_own_schema_back_when_its_start_is_damaged(place, rows):
    with Log.open(place / "log", SCHEMA) as log:
        made = append(log, rows)
        log.roll()
        made += append(log, rows)
        log.roll()
        log.evolve(GROWN)
        log.append(grown(2 * rows, 3))
    flip(segment(place / "log", ".seg"), 100)
    with Log.open(place / "log", read_only=True) as log:
        damages: list[Damage] = []
        assert sum(batch.records.num_rows for batch in log.read(on_damage=damages.append)) == rows + 3
        assert lost_indexes(damages, rows) == set(range(rows))
        assert lost_indexes(log.verify().damages, rows) == set(range(rows))  # as readers say
    report = repair(place / "log")
    assert report.after is not None
    assert report.after.ok
    with Log.open(place / "log", read_only=True) as log:
        first = next(log.read())
        assert first.records.schema == SCHEMA
        assert entries_of(first) == made[:rows]
        assert sum(batch.records.num_rows for batch in log.read()) == 2 * rows + 3


def test_entries_of_a_schema_that_nothing_tells_any_more_are_left_out_by_repair_and_kept(place):
    with Log.open(place / "log", SCHEMA) as log:
        append(log, 3)
        log.evolve(GROWN)
        log.append(grown(3, 3))
    first = segment(place / "log", ".seg")
    flip(first, 100)
    before = first.read_bytes()
    report = repair(place / "log")
    assert report.after is not None
    assert report.after.ok
    assert (place / "log" / report.kept[0]).read_bytes() == before
    with Log.open(place / "log", read_only=True) as log:
        assert [batch.base_index for batch in log.read()] == [3]
