"""What the campaigns and a close reading found, each as the smallest scenario that shows it."""

from __future__ import annotations

import contextlib
import errno

import pytest

from headrace.kernel.errors import Broken, DiskFailed, DiskFull, HeadraceError, Truncated
from headrace.log import Containers, Log, Settings, repair

from .disks import BoundedDisk, FailingDisk, PowerCut, RecordingDisk
from .entries import SCHEMA, Entry, batch_of, entries_of
from .judge import copied, look, lost_indexes, read_all
from .scenes import append, as_dict, entries, frame_offsets, segment

# --- a failing disk


def test_a_full_disk_between_finalizing_and_the_next_segment_loses_nothing_later(place):
    disk = FailingDisk(code=errno.ENOSPC, kinds=("create",), only=lambda name: name.endswith(".active.tmp"))
    log = Log.open(place / "log", SCHEMA, disk=disk)
    first = append(log, 3)
    log.sync()
    disk.fail_at = disk.count
    with pytest.raises(DiskFull):
        log.roll()
    disk.heal()
    second = append(log, 3, 2)
    log.sync()
    log.close()
    seen, report = look(place / "log")
    assert report.ok
    assert seen.entries == as_dict(first, second)
    with Log.open(place / "log") as log:
        assert read_all(log).entries == as_dict(first, second)


@pytest.mark.parametrize("kind", ["rename", "sync_dir", "remove"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_truncation_that_fails_half_way_lets_nothing_be_acknowledged_that_is_lost_later(place, kind, code):
    for fail_at in range(3):
        disk = FailingDisk(code=code, kinds=(kind,))
        path = place / f"log{fail_at}"
        log = Log.open(path, SCHEMA, disk=disk)
        kept = append(log, 3)
        log.sync()
        append(log, 3)
        log.sync()
        disk.count, disk.fail_at = 0, fail_at
        acknowledged: list[Entry] = []
        try:
            log.truncate(3)
        except HeadraceError:
            disk.heal()
            try:
                made = append(log, 2, 7)
                log.sync()
                acknowledged = made
            except HeadraceError:
                pass
        with contextlib.suppress(HeadraceError):
            log.close()
        with Log.open(path) as again:
            seen = read_all(again).entries
        assert as_dict(kept, acknowledged).items() <= seen.items()


def test_a_sync_that_fails_inside_trim_is_final(place):
    disk = FailingDisk(kinds=("sync",))
    log = Log.open(place / "log", SCHEMA, disk=disk)
    append(log, 3)
    log.sync()
    append(log, 3)
    disk.fail_at = disk.count
    with pytest.raises(DiskFailed):
        log.trim(2)
    with pytest.raises(Broken):
        log.sync()
    with pytest.raises(Broken):
        append(log, 1)


def test_a_loss_is_still_known_when_the_opening_that_found_it_failed(place):
    with Log.open(place / "log", SCHEMA) as log:
        append(log, 3)
        append(log, 3)
        log.sync()
        offsets = frame_offsets(log, segment(place / "log", ".active"))
    with open(segment(place / "log", ".active"), "r+b") as raw:
        raw.truncate(offsets[2][0])  # the second batch is gone, at a frame's edge
    disk = FailingDisk(0, errno.ENOSPC, kinds=("write",), only=lambda name: name.endswith(".active"))
    with pytest.raises(DiskFull):
        Log.open(place / "log", disk=disk)
    with Log.open(place / "log") as log:
        assert log.next_index == 6
        assert lost_indexes(log.recovery.damages, 6) == {3, 4, 5}


@pytest.mark.parametrize("fail_at", range(2))
def test_an_opening_that_failed_leaves_the_lock_free(place, fail_at):
    Log.open(place / "log", SCHEMA).close()
    disk = FailingDisk(fail_at, errno.ENOSPC, only=lambda name: name == "lock")
    with pytest.raises(DiskFull) as failure:
        Log.open(place / "log", disk=disk)
    Log.open(place / "log").close()  # although the error, and all it refers to, is still held
    assert failure.value.code == "disk_full"


# --- readers


def test_a_reader_that_is_faster_than_the_mark_is_not_told_of_a_truncation(place):
    log = Log.open(place / "log", SCHEMA)
    append(log, 3)
    reader = Log.open(place / "log", read_only=True)
    cursor = reader.cursor()
    assert cursor.next().next_index == 3
    mark = place / "log" / "mark"
    before = mark.read_bytes()
    append(log, 3)
    mark.write_bytes(before)  # as it is between the write of a frame and that of the mark
    assert cursor.next().next_index == 6
    assert cursor.next() is None
    log.close()


def test_a_finalized_segment_cut_at_any_frames_edge_is_read_to_its_end_and_reported(place):
    with Log.open(place / "log", SCHEMA) as log:
        for _ in range(3):
            append(log, 2)
        log.roll()
        append(log, 2)
        whole = segment(place / "log", ".seg")
        offsets = frame_offsets(log, whole)
        raw = whole.read_bytes()
        for offset, _ in offsets:
            whole.write_bytes(raw[:offset])
            seen, report = look(place / "log")
            lost = set(range(8)) - set(seen.entries)
            assert lost_indexes(seen.damages, 8) == lost
            assert lost_indexes(report.damages, 8) == lost


def test_a_segment_that_has_its_footer_but_not_yet_its_name_is_read_to_its_end(place):
    disk = FailingDisk(kinds=("rename",))
    log = Log.open(place / "log", SCHEMA, disk=disk)
    made = append(log, 3)
    log.sync()
    disk.fail_at = disk.count
    with pytest.raises(Broken):
        log.roll()  # written and synced with its footer, then the rename fails
    seen, report = look(place / "log")
    assert seen.entries == as_dict(made)
    assert report.ok
    with Log.open(place / "log", read_only=True, disk=BoundedDisk()) as reader:
        cursor = reader.cursor()
        assert cursor.next() is not None
        assert cursor.next() is None


@pytest.mark.parametrize("rolled", [False, True])
def test_an_active_segment_that_is_gone_is_reported_by_the_reader(place, rolled):
    with Log.open(place / "log", SCHEMA) as log:
        append(log, 3)
        if rolled:
            log.roll()
            append(log, 3)
        log.sync()
    segment(place / "log", ".active").unlink()
    seen, report = look(place / "log")
    lost = {3, 4, 5} if rolled else {0, 1, 2}
    assert lost_indexes(report.damages, 6) == lost
    assert lost_indexes(seen.damages, 6) == lost


# --- power cuts


def test_a_power_cut_after_a_truncation_does_not_call_the_cut_entries_lost(place):
    (place / "a").mkdir()
    disk = RecordingDisk(place / "a")
    log = Log.open(place / "a" / "log", SCHEMA, disk=disk)
    kept = append(log, 3)
    append(log, 3)
    log.sync()
    mark = (place / "a" / "log" / "mark").read_bytes()
    log.truncate(3)
    (place / "b").mkdir()
    disk.after_power_cut(place / "b", len(disk.journal), PowerCut("nothing", 0))
    (place / "b" / "log" / "mark").write_bytes(mark)  # never synced: any of its states may be left
    seen, report = look(place / "b" / "log")
    assert seen.entries == as_dict(kept)
    assert report.ok
    assert not seen.damages
    with Log.open(place / "b" / "log") as again:
        assert again.recovery.clean
        assert again.next_index == 3
    log.close()


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
def test_a_group_torn_by_a_power_cut_is_not_there_or_its_torn_part_is_reported(place, containers):
    log = Log.open(place / "log", SCHEMA, Settings(containers=containers))
    made = append(log, 3)
    log.sync()
    durable = (place / "log" / "mark").read_bytes()
    log.append_group([batch_of(entries(3, 2)), batch_of(entries(5, 2))], writer="w", sequence=1)
    file = segment(place / "log", ".active")
    offsets = frame_offsets(log, file)
    raw = bytearray(file.read_bytes())
    log.close()
    raw[offsets[2][0] : offsets[3][0]] = bytes(offsets[3][0] - offsets[2][0])  # this sector never made it
    file.write_bytes(raw)
    (place / "log" / "mark").write_bytes(durable)
    with Log.open(place / "log") as again:
        seen = read_all(again)
        assert as_dict(made).items() <= seen.entries.items()
        if len(seen.entries) > 3:
            assert lost_indexes(again.recovery.damages, 7) == {3, 4}
            assert lost_indexes(seen.damages, 7) == {3, 4}


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
@pytest.mark.parametrize("torn_from", [0, 64], ids=["all of it", "its body"])
def test_a_group_whose_commit_is_torn_is_not_there_for_readers_either(place, containers, torn_from):
    log = Log.open(place / "log", SCHEMA, Settings(containers=containers))
    made = append(log, 2)
    log.sync()
    log.append_group([batch_of(entries(2, 1)), batch_of(entries(3, 2))], writer="w", sequence=1, note="n")
    file, mark = segment(place / "log", ".active"), place / "log" / "mark"
    commit, _ = frame_offsets(log, file)[-1]
    raw, marked = bytearray(file.read_bytes()), mark.read_bytes()
    log.close()
    torn = slice(commit + torn_from, commit + 128)
    raw[torn] = bytes(128 - torn_from)
    file.write_bytes(raw)
    mark.write_bytes(marked)  # it knows of the group, and that it was not yet durable
    reader = Log.open(place / "log", read_only=True)
    cursor = reader.cursor()
    assert cursor.next().next_index == 2
    assert cursor.next() is None
    seen, report = look(place / "log")
    assert seen.entries == as_dict(made)
    assert not seen.damages
    assert report.ok
    repair(copied(place / "log", place / "repaired"))
    assert look(place / "repaired")[0].entries == as_dict(made)
    with Log.open(place / "log") as again:
        assert read_all(again).entries == as_dict(made)
        new = append(again, 2, 7)
    batch = cursor.next()
    assert entries_of(batch) == new  # the indexes of the group, given to others, are not passed over
    reader.close()


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
@pytest.mark.parametrize("durable", [False, True])
def test_entries_appended_after_a_tail_torn_in_two_frames_can_be_read(place, containers, durable):
    log = Log.open(place / "log", SCHEMA, Settings(containers=containers))
    made = append(log, 3)
    log.sync()
    mark = (place / "log" / "mark").read_bytes()
    append(log, 3)
    append(log, 3)
    log.sync()
    file = segment(place / "log", ".active")
    offsets = frame_offsets(log, file)
    raw = bytearray(file.read_bytes())
    log.close()
    raw[offsets[2][0] + 3] ^= 1  # the header of one frame
    raw[offsets[3][0] + 100] ^= 1  # the body of the next and last one
    file.write_bytes(raw)
    if not durable:
        (place / "log" / "mark").write_bytes(mark)
    with Log.open(place / "log") as again:
        if durable:
            assert again.next_index == 9
            assert lost_indexes(again.recovery.damages, 9) == {3, 4, 5, 6, 7, 8}
        new = append(again, 2, 7)
        again.sync()
        assert read_all(again).entries == as_dict(made, new)
    seen, report = look(place / "log")
    assert seen.entries == as_dict(made, new)
    with Log.open(place / "log") as again:
        assert read_all(again).entries == as_dict(made, new)
    repair(place / "log")
    seen, report = look(place / "log")
    assert report.ok
    assert seen.entries == as_dict(made, new)


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
@pytest.mark.parametrize("durable", [False, True])
def test_entries_appended_after_a_frame_torn_right_before_a_footer_can_be_read(place, containers, durable):
    disk = FailingDisk(kinds=("sync",))
    log = Log.open(place / "log", SCHEMA, Settings(containers=containers), disk=disk)
    made = append(log, 3)
    log.sync()
    mark = (place / "log" / "mark").read_bytes()
    append(log, 3)
    if durable:
        log.sync()
        mark = (place / "log" / "mark").read_bytes()
    offset = frame_offsets(log, segment(place / "log", ".active"))[-1][0]
    disk.fail_at = disk.count + 1  # the first sync is that of the next segment
    with pytest.raises(Broken):
        log.roll()  # the footer is written, the power goes before it is synced
    log.close()
    file = segment(place / "log", ".active")
    raw = bytearray(file.read_bytes())
    raw[offset : offset + 512] = bytes(512)  # this sector never made it, the footer behind it did
    file.write_bytes(raw)
    (place / "log" / "mark").write_bytes(mark)
    with Log.open(place / "log") as again:
        if durable:
            assert again.next_index == 6
            assert lost_indexes(again.recovery.damages, 6) == {3, 4, 5}
        new = append(again, 2, 7)
        again.sync()
        assert read_all(again).entries == as_dict(made, new)
    seen, _ = look(place / "log")
    assert seen.entries == as_dict(made, new)
    with Log.open(place / "log") as again:
        assert read_all(again).entries == as_dict(made, new)


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
def test_an_old_mark_is_not_believed_while_there_is_no_active_segment(place, containers):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        made = append(log, 3)
        append(log, 3)
        log.sync()
        stale = (place / "log" / "mark").read_bytes()
        log.truncate(3)
        made += append(log, 1, 2)
        log.roll()
    segment(place / "log", ".active").unlink()  # as between the two renames of a roll
    (place / "log" / "mark").write_bytes(stale)
    seen, report = look(place / "log")
    assert seen.entries == as_dict(made)
    assert not seen.damages
    assert report.ok
    with Log.open(place / "log") as log:
        assert log.recovery.clean
        assert log.next_index == 4


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
def test_a_trim_known_from_the_mark_only_is_written_down_before_segments_are_removed(place, containers):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        append(log, 3)
        log.roll()
        made = append(log, 3)
        log.sync()
        file = segment(place / "log", ".active")
        whole, kept = file.read_bytes(), copied(place / "log", place / "left")
        log.trim(3)
        mark = (place / "log" / "mark").read_bytes()
    (kept / file.name).write_bytes(whole)  # the frame that trims was not synced yet, the mark came through
    (kept / "mark").write_bytes(mark)
    for _ in range(2):
        with Log.open(kept) as log:
            assert log.recovery.clean, log.recovery
            assert as_dict(made).items() <= read_all(log).entries.items()
            assert log.verify().ok
    (kept / "mark").unlink()
    seen, report = look(kept)
    assert as_dict(made).items() <= seen.entries.items()
    assert report.ok


def test_a_reader_with_a_stale_mark_does_not_call_trimmed_entries_missing(place):
    with Log.open(place / "log", SCHEMA) as log:
        append(log, 3)
        log.roll()
        made = append(log, 3)
        log.sync()
        stale = (place / "log" / "mark").read_bytes()
        log.trim(3)
    (place / "log" / "mark").write_bytes(stale)  # never synced: a power cut may leave this one
    seen, report = look(place / "log")
    assert seen.entries == as_dict(made)
    assert not seen.damages
    assert report.ok
    with Log.open(place / "log") as log:
        assert log.recovery.clean


# --- fencing


def test_a_fenced_writer_that_closes_leaves_the_mark_alone(place):
    old = Log.open(place / "log", SCHEMA)
    append(old, 3)
    old.sync()
    new = Log.open(place / "log", take_over=True)
    append(new, 3, 2)
    new.sync()
    before = (place / "log" / "mark").read_bytes()
    with contextlib.suppress(Broken):
        old.close()
    assert (place / "log" / "mark").read_bytes() == before
    new.close()


# --- followers


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
def test_a_follower_that_passed_what_a_truncation_cut_is_told_even_if_the_log_has_grown_again(
    place, containers
):
    log = Log.open(place / "log", SCHEMA, Settings(containers=containers))
    append(log, 3)
    append(log, 3)
    reader = Log.open(place / "log", read_only=True, disk=BoundedDisk())
    cursor = reader.cursor()
    assert [cursor.next().next_index, cursor.next().next_index, cursor.next()] == [3, 6, None]
    log.truncate(3)
    append(log, 5, 2)
    append(log, 5, 2)
    with pytest.raises(Truncated):
        cursor.next()
    log.close()


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
@pytest.mark.parametrize("read_first", [0, 1, 2])
def test_a_follower_reads_what_is_there_after_a_truncation_or_is_told_of_it(place, containers, read_first):
    log = Log.open(place / "log", SCHEMA, Settings(containers=containers))
    made = append(log, 3) + append(log, 3)
    reader = Log.open(place / "log", read_only=True, disk=BoundedDisk())
    cursor = reader.cursor()
    got: list[Entry] = []

    def take() -> bool:
        batch = cursor.next()
        if batch is not None:
            got.extend(entries_of(batch))
        return batch is not None

    for _ in range(read_first):
        take()
    log.truncate(3)
    now = made[:3] + append(log, 4, 2)
    told = False
    try:
        while take():
            pass
    except Truncated:
        told = True
    assert got == now or (told and got in (made, made[: read_first * 3]))
    log.close()


def test_torn_bytes_behind_a_footer_are_kept_too(place):
    """The writer died while it finalized a segment, and something else was left behind the footer."""
    disk = FailingDisk(code=errno.EIO, kinds=("rename",), only=lambda name: name.endswith(".active"))
    log = Log.open(place / "log", SCHEMA, disk=disk)
    made = append(log, 3)
    log.sync()
    disk.fail_at = disk.count
    with pytest.raises(Broken):
        log.roll()
    log.close()
    (active,) = (place / "log").glob("*.active")
    with active.open("ab") as file:
        file.write(b"torn" * 250)
    with Log.open(place / "log") as log:
        assert log.recovery.cut_bytes
        assert log.recovery.kept_copy is not None
        assert read_all(log).entries == as_dict(made)
