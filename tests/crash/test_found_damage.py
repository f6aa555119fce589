"""What was found about damage and its repair, each as the smallest scenario that shows it."""

from __future__ import annotations

import pytest

from headrace.kernel.errors import Damaged, Refused
from headrace.log import Containers, Log, Retention, Settings, repair
from headrace.log.frame import Kind

from .entries import SCHEMA, batch_of
from .judge import copied, look, lost_indexes, read_all
from .scenes import append, as_dict, entries, frame_offsets, segment


@pytest.mark.parametrize("digit", [b"0", b"3", b"5", b"9"])
def test_a_flipped_format_number_in_meta_json_is_damage_and_can_be_repaired(place, digit):
    with Log.open(place / "log", SCHEMA) as log:
        made = append(log, 3)
    meta = place / "log" / "meta.json"
    whole = meta.read_bytes()
    meta.write_bytes(whole.replace(b'"format": 1', b'"format": ' + digit))
    assert meta.read_bytes() != whole
    with pytest.raises(Damaged):
        Log.open(place / "log")
    assert repair(place / "log").restored_meta
    assert meta.read_bytes() == whole
    assert look(place / "log")[0].entries == as_dict(made)


def test_a_durable_group_whose_commit_is_cut_off_is_reported_by_verify_and_reader(place):
    with Log.open(place / "log", SCHEMA) as log:
        made = append(log, 2)
        group = [batch_of(entries(2, 2)), batch_of(entries(4, 2))]
        log.append_group(group, writer="w", sequence=1)
        log.sync()
        offsets = frame_offsets(log, segment(place / "log", ".active"))
    assert [kind for _, kind in offsets] == [Kind.START, Kind.BATCH, Kind.BATCH, Kind.BATCH, Kind.COMMIT]
    with open(segment(place / "log", ".active"), "r+b") as raw:
        raw.truncate(offsets[-1][0])
    seen, report = look(place / "log")
    assert seen.entries == as_dict(made)
    assert lost_indexes(seen.damages, 6) == {2, 3, 4, 5}
    assert lost_indexes(report.damages, 6) == {2, 3, 4, 5}


@pytest.mark.parametrize("rolled", [False, True])
@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
@pytest.mark.parametrize("member", [0, 1, 2])
def test_a_damaged_header_inside_a_group_costs_only_its_own_batch(place, rolled, containers, member):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        made = append(log, 2)
        group = [entries(2, 2), entries(4, 2), entries(6, 2)]
        log.append_group([batch_of(part) for part in group], writer="w", sequence=1)
        made += append(log, 2)
        log.sync()
        offset = frame_offsets(log, segment(place / "log", ".active"))[2 + member][0]
        if rolled:
            log.roll()
    file = segment(place / "log", ".seg" if rolled else ".active")
    raw = bytearray(file.read_bytes())
    raw[offset + 20] ^= 1
    file.write_bytes(raw)
    lost = {entry.index for entry in group[member]}
    seen, report = look(place / "log")
    assert lost_indexes(report.damages, 10) == lost
    assert lost_indexes(seen.damages, 10) == lost
    assert set(seen.entries) == set(range(10)) - lost
    with Log.open(place / "log") as log:
        assert set(read_all(log).entries) == set(range(10)) - lost


def test_repair_of_an_active_segment_cut_at_a_frames_edge_leaves_nothing_to_report(place):
    with Log.open(place / "log", SCHEMA) as log:
        made = append(log, 3)
        append(log, 3)
        log.sync()
        offsets = frame_offsets(log, segment(place / "log", ".active"))
    with open(segment(place / "log", ".active"), "r+b") as raw:
        raw.truncate(offsets[-1][0])
    report = repair(place / "log")
    assert lost_indexes(report.found, 6) == {3, 4, 5}
    assert report.after is not None
    assert report.after.ok
    with Log.open(place / "log") as log:
        assert log.recovery.clean
        assert log.next_index == 6
        assert read_all(log).entries == as_dict(made)


def test_a_gap_is_written_even_if_batches_are_held_back(place):
    with Log.open(place / "log", SCHEMA, Settings(write_buffers=3)) as log:
        append(log, 3)
        append(log, 3)
        log.sync()
        offsets = frame_offsets(log, segment(place / "log", ".active"))
    with open(segment(place / "log", ".active"), "r+b") as raw:
        raw.truncate(offsets[-1][0])
    report = repair(copied(place / "log", place / "repaired"))
    assert report.after is not None
    assert report.after.ok
    log = Log.open(place / "log")
    look_again = copied(place / "log", place / "killed")  # now, without a close
    log.close()
    with Log.open(look_again) as again:
        assert again.recovery.clean
        assert again.next_index == 6


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
def test_a_segment_whose_start_and_only_batch_are_damaged_can_be_repaired(place, containers):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        append(log, 3)
        log.roll()
        made = append(log, 3)
        log.sync()
        file = segment(place / "log", ".seg")
        offsets = frame_offsets(log, file)
    raw = bytearray(file.read_bytes())
    raw[offsets[0][0] + 100] ^= 1
    raw[offsets[1][0] + 100] ^= 1
    file.write_bytes(raw)
    report = repair(place / "log")
    assert report.after is not None
    assert report.after.ok, report.after.damages
    seen, _ = look(place / "log")
    assert seen.entries == as_dict(made)


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
def test_repair_makes_a_damaged_mark_anew(place, containers):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        made = append(log, 3)
    (place / "log" / "mark").write_bytes(b"x" * 64)
    assert not look(place / "log")[1].ok
    report = repair(place / "log")
    assert report.after is not None
    assert report.after.ok
    assert look(place / "log")[0].entries == as_dict(made)


def test_the_first_segment_gone_is_reported_by_all(place):
    with Log.open(place / "log", SCHEMA) as log:
        append(log, 3)
        log.roll()
        made = append(log, 3)
        log.sync()
    segment(place / "log", ".seg").unlink()
    seen, report = look(place / "log")
    assert seen.entries == as_dict(made)
    assert lost_indexes(report.damages, 6) == {0, 1, 2}
    assert lost_indexes(seen.damages, 6) == {0, 1, 2}
    with Log.open(place / "log") as log:
        assert lost_indexes(log.recovery.damages, 6) == {0, 1, 2}


def test_a_gap_outlives_the_segment_that_held_nothing_else(place):
    with Log.open(place / "log", SCHEMA) as log:
        append(log, 3)
        log.roll()
        append(log, 3)
        log.sync()
        offsets = frame_offsets(log, segment(place / "log", ".active"))
    with open(segment(place / "log", ".active"), "r+b") as raw:
        raw.truncate(offsets[1][0])
    with Log.open(place / "log") as log:
        assert lost_indexes(log.recovery.damages, 6) == {3, 4, 5}
        log.roll()
        append(log, 1)
        assert log.verify().ok
    with Log.open(place / "log") as log:
        assert log.recovery.clean, log.recovery


def test_truncating_inside_a_damaged_range_gives_no_lost_index_to_other_entries(place):
    with Log.open(place / "log", SCHEMA) as log:
        for _ in range(3):
            append(log, 3)
        log.sync()
        file = segment(place / "log", ".active")
        offset = frame_offsets(log, file)[2][0]
    raw = bytearray(file.read_bytes())
    raw[offset + 20] ^= 1
    file.write_bytes(raw)
    with Log.open(place / "log") as log:
        assert lost_indexes(log.recovery.damages, 9) == {3, 4, 5}
        log.truncate(5)
        assert log.next_index == 5
        append(log, 1, 9)
        log.sync()
    seen, _ = look(place / "log")
    assert set(seen.entries) == {0, 1, 2, 5}


def test_a_truncation_that_is_refused_changes_nothing_for_readers(place):
    log = Log.open(place / "log", SCHEMA)
    log.append_group([batch_of(entries(0, 2)), batch_of(entries(2, 2))], writer="w", sequence=1)
    log.sync()
    reader = Log.open(place / "log", read_only=True)
    cursor = reader.cursor()
    assert cursor.next() is not None
    assert cursor.next() is not None
    before = (place / "log" / "mark").read_bytes()
    with pytest.raises(Refused):
        log.truncate(1)
    assert cursor.next() is None
    assert (place / "log" / "mark").read_bytes() == before
    log.close()


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
def test_what_was_trimmed_stays_trimmed_when_the_frame_that_says_so_is_cut_off(place, containers):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        made = append(log, 6)
        log.trim(4)
        log.sync()
        file = segment(place / "log", ".active")
        offset = next(offset for offset, kind in frame_offsets(log, file) if kind == Kind.BASE)
    raw = bytearray(file.read_bytes())
    raw[offset + 40] ^= 1
    file.write_bytes(raw)
    with Log.open(place / "log") as log:
        assert read_all(log).entries == as_dict(made[4:])
    with Log.open(place / "log") as log:
        assert read_all(log).entries == as_dict(made[4:])


@pytest.mark.parametrize("lose_mark", [False, True])
@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
def test_a_lost_active_segment_does_not_bring_back_what_was_truncated_before(place, containers, lose_mark):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        made = append(log, 3)
        log.roll()
        append(log, 3)
        append(log, 3)
        log.sync()
        log.truncate(3)
        append(log, 1, 2)
        log.sync()
    segment(place / "log", ".active").unlink()
    if lose_mark:
        (place / "log" / "mark").unlink()
    with Log.open(place / "log") as log:
        assert read_all(log).entries == as_dict(made)
        new = append(log, 2, 3)
        log.sync()
        assert read_all(log).entries == as_dict(made, new)
    seen, _ = look(place / "log")
    assert seen.entries == as_dict(made, new)


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 * 1024)])
def test_repair_deals_with_a_damaged_start_and_a_lost_end_at_once(place, containers):
    with Log.open(place / "log", SCHEMA, Settings(containers=containers)) as log:
        made = append(log, 3)
        append(log, 3)
        log.sync()
        file = segment(place / "log", ".active")
        offsets = frame_offsets(log, file)
    raw = bytearray(file.read_bytes())
    raw[100] ^= 1
    raw[offsets[-1][0] + 100] ^= 1
    file.write_bytes(raw)
    report = repair(place / "log")
    assert lost_indexes(report.found, 6) == {3, 4, 5}
    assert report.after is not None
    assert report.after.ok, report.after.damages
    with Log.open(place / "log") as log:
        assert log.recovery.clean
        assert read_all(log).entries == as_dict(made)


def test_retention_gets_over_a_segment_that_was_cut_to_almost_nothing(place):
    settings = Settings(retention=Retention(age_s=3600))
    with Log.open(place / "log", SCHEMA, settings) as log:
        append(log, 3)
        log.roll()
        append(log, 3)
    segment(place / "log", ".seg").write_bytes(b"short")
    with Log.open(place / "log", SCHEMA, settings) as log:
        made = append(log, 3, 2)
        log.roll()
        log.sync()
        assert as_dict(made).items() <= read_all(log).entries.items()
