"""Verifying and repairing: exactly what is wrong is told, and the rest stays as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.kernel.errors import Damaged, HeadraceError, NotALog, NotFound, WriterTaken
from headrace.log import Damage, Finalize, Log, Report, Settings, repair

from .samples import ORDERS, RING, active_file, all_bytes, flip, orders, segment_files, values

THREE = Settings(finalize=Finalize(entries=3))


@pytest.fixture(params=[THREE, RING], ids=["files", "ring"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Nine entries, one a batch, in two finalized segments and an active one."""
    with Log.open(tmp_path / "log", ORDERS, request.param) as log:
        for at in range(9):
            if at in (3, 6):
                log.roll()
            log.append(orders(at, at + 1))
    return tmp_path / "log"


def frames(file: Path) -> list[int]:
    """The offsets of the valid-looking headers of a segment."""
    content = file.read_bytes()
    return [at for at in range(0, len(content), 64) if content[at : at + 4] == b"hrf1"]


def readable(path: Path) -> tuple[list[int], list[Damage]]:
    told: list[Damage] = []
    with Log.open(path, read_only=True) as log:
        return values(log, on_damage=told.append), told


def test_a_whole_log_is_whole(path: Path) -> None:
    before = all_bytes(path)
    done: list[tuple[int, int]] = []
    with Log.open(path, read_only=True) as log:
        report = log.verify(lambda at, total: done.append((at, total)))
    assert report.ok
    assert (report.segments, report.batches, report.entries) == (3, 9, 9)
    assert (report.first_index, report.next_index, report.lost) == (0, 9, ())
    assert done[-1][0] == done[-1][1] == report.bytes
    assert all_bytes(path) == before


@pytest.mark.parametrize("part", ["header", "body"])
@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_a_damaged_batch_loses_only_itself_and_is_repaired(
    path: Path, part: str, segment: int, batch: int
) -> None:
    file = sorted(path.glob("*.seg"))[segment]
    lost = 3 * segment + batch
    flip(file, frames(file)[1 + batch] + (20 if part == "header" else 80), 0x01)
    with Log.open(path, read_only=True) as log:
        report = log.verify()
    assert report.lost == ((lost, lost + 1),)
    assert [damage.kind for damage in report.damages] == [part]
    rest = [at for at in range(9) if at != lost]
    got, told = readable(path)
    assert got == rest
    assert [(damage.first_lost, damage.stop_lost) for damage in told] == [(lost, lost + 1)]

    damaged = file.read_bytes()
    done = repair(path)
    assert done.after is not None
    assert done.after.ok
    assert any((path / name).read_bytes() == damaged for name in done.kept)
    assert readable(path)[0] == rest
    with Log.open(path) as log:
        assert log.verify().ok
        assert log.append(orders(9, 10)) == 9


def test_a_damaged_footer_or_start_loses_no_entry(path: Path) -> None:
    first, second = sorted(path.glob("*.seg"))
    flip(first, frames(first)[-1] + 8)  # the trailer
    flip(second, 70)  # the start's body
    assert readable(path)[0] == list(range(9))
    with Log.open(path, read_only=True) as log:
        report = log.verify()
        assert sorted(damage.kind for damage in report.damages) == ["footer", "start"]
        assert report.lost == ()
    done = repair(path)
    assert done.after is not None
    assert done.after.ok
    assert readable(path) == (list(range(9)), [])


def test_a_missing_segment_is_told_and_becomes_a_gap(path: Path) -> None:
    sorted(path.glob("*.seg"))[1].unlink()
    got, told = readable(path)
    assert got == [0, 1, 2, 6, 7, 8]
    assert [(damage.kind, damage.first_lost, damage.stop_lost) for damage in told] == [("missing", 3, 6)]
    done = repair(path)
    assert done.after is not None
    assert done.after.ok
    assert readable(path)[0] == [0, 1, 2, 6, 7, 8]
    with Log.open(path) as log:
        assert log.append(orders(9, 10)) == 9


def test_a_lost_meta_is_restored_from_a_segment(path: Path) -> None:
    before = (path / "meta.json").read_bytes()
    for damage in (lambda: (path / "meta.json").unlink(), lambda: flip(path / "meta.json", 30)):
        damage()
        with pytest.raises(Damaged):
            Log.open(path)
        assert repair(path).restored_meta
        assert (path / "meta.json").read_bytes() == before
        assert readable(path) == (list(range(9)), [])


def test_a_flipped_format_digit_is_repaired_too(path: Path) -> None:
    content = (path / "meta.json").read_bytes()
    (path / "meta.json").write_bytes(content.replace(b'"format": 1', b'"format": 3'))
    assert repair(path).restored_meta
    assert (path / "meta.json").read_bytes() == content


def test_repairing_a_whole_log_changes_nothing_that_counts(path: Path) -> None:
    before = {name: content for name, content in all_bytes(path).items() if name not in ("lock", "mark")}
    done = repair(path)
    assert (done.found, done.rewritten, done.kept, done.restored_meta) == ((), [], [], False)
    after = {name: content for name, content in all_bytes(path).items() if name not in ("lock", "mark")}
    assert after == before


def test_a_segment_of_another_log_is_noticed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        with Log.open(tmp_path / name, ORDERS) as log:
            log.append(orders(0, 3))
            log.roll()
            log.append(orders(3, 4))
    (mine,) = (tmp_path / "one").glob("*.seg")
    (theirs,) = (tmp_path / "two").glob("*.seg")
    mine.write_bytes(theirs.read_bytes())
    with Log.open(tmp_path / "one", read_only=True) as log:
        assert not log.verify().ok
        with pytest.raises(HeadraceError):
            values(log)


def test_durable_entries_cut_off_at_a_frames_edge_are_missed(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        for at in range(4):
            log.append(orders(at, at + 1))
    file = active_file(tmp_path / "log")
    with file.open("r+b") as content:
        content.truncate(frames(file)[3])  # start, 0, 1 stay
    with Log.open(tmp_path / "log", read_only=True) as log:
        assert log.verify().lost == ((2, 4),)
    with Log.open(tmp_path / "log") as log:
        assert [(damage.kind, damage.first_lost, damage.stop_lost) for damage in log.recovery.damages] == [
            ("cut", 2, 4)
        ]
        assert log.append(orders(9, 10)) == 4, "lost indexes are never given to other entries"
        assert values(log, on_damage=lambda damage: None) == [0, 1, 9]


def test_a_log_that_is_being_written_is_not_repaired(path: Path) -> None:
    with Log.open(path), pytest.raises(WriterTaken):
        repair(path)


def test_what_is_no_log_is_not_repaired(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        repair(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotALog):
        repair(tmp_path / "file")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(NotALog):
        repair(tmp_path / "photos")
    assert [file.name for file in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_lost_ranges_that_touch_are_told_as_one() -> None:
    def damage(first: int, stop: int | None) -> Damage:
        return Damage("body", "file", 0, 0, first, stop, "what")

    report = Report(
        1, 1, 1, 1, 0, 9, (damage(5, 7), damage(0, 2), damage(2, 3), damage(6, 9), damage(12, 12))
    )
    assert report.lost == ((0, 3), (5, 9))
    assert Report(1, 1, 1, 1, 0, 9, (damage(3, None), damage(4, 5))).lost == ((3, None),)
    assert "no entry is lost" in str(damage(4, 4))
    assert "from 4 on" in str(damage(4, None))
    assert "4 to 6" in str(damage(4, 7))


def test_segment_names_are_as_expected(path: Path) -> None:
    assert len([name for name in segment_files(path) if name.endswith(".seg")]) == 2
