"""Cursors: reading while the log is written, trimmed, cut and taken over."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.kernel.errors import Closed, DiskFailed, HeadraceError, SchemaMismatch, Trimmed, Truncated
from headrace.log import Batch, Cursor, Finalize, Head, Log, Settings

from .samples import ORDERS, RAW, RING, active_file, blob, flip, orders, raw, values

BOTH = pytest.mark.parametrize("settings", [None, RING], ids=["files", "ring"])


def drain(cursor: Cursor) -> list[int]:
    """The indexes of everything that is there now."""
    got: list[int] = []
    while (item := cursor.next()) is not None:
        if isinstance(item, Batch):
            got += range(item.base_index, item.next_index)
    return got


@BOTH
def test_a_cursor_goes_from_segment_to_segment_into_the_active_one(
    tmp_path: Path, settings: Settings | None
) -> None:
    with Log.open(tmp_path / "log", ORDERS, settings) as log:
        cursor = log.cursor()
        assert cursor.next() is None
        for at in range(10):
            log.append(orders(at, at + 1))
            if at % 3 == 2:
                log.roll()
            assert drain(cursor) == [at]
        assert drain(log.cursor(4)) == list(range(4, 10))


def test_a_start_beyond_the_end_waits_for_its_index(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(finalize=Finalize(entries=2))) as log:
        log.append(orders(0, 2))
        assert values(log, 5) == []
        assert values(log, 5, 9) == []
        cursor = log.cursor(5)
        for at in range(2, 8):
            log.append(orders(at, at + 1))
        assert drain(cursor) == [5, 6, 7]


def test_a_part_of_a_batch_is_read_as_a_slice(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 10))
        (batch,) = log.read(3, 5)
        assert (batch.base_index, batch.next_index) == (3, 5)
        assert batch.records.column("at").to_pylist() == [3, 4]


def test_an_unfinished_group_is_not_seen(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 1))
        log.append_group([orders(1, 3), orders(3, 4)], writer="w", sequence=1)
        log.sync()
    path = active_file(tmp_path / "log")
    whole = path.read_bytes()
    headers = [at for at in range(0, len(whole), 64) if whole[at : at + 4] == b"hrf1"]
    first = headers[2]  # start, batch, then the group
    with Log.open(tmp_path / "log", read_only=True) as log:
        for size in range(first, len(whole), 64):
            path.write_bytes(whole[:size])
            (tmp_path / "log" / "mark").unlink(missing_ok=True)
            assert drain(log.cursor()) == [0], f"with {size} of {len(whole)} bytes"
        path.write_bytes(whole)
        assert drain(log.cursor()) == [0, 1, 2, 3]


def test_moves_of_head_come_in_their_place(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, order_by="at") as log:
        log.head(-5)
        log.append(orders(0, 2))
        log.head(7)
        log.head(8)
        log.roll()
        log.head(9)
        items = list(log.read_all())
        shape = [item.next_index if isinstance(item, Head) else "batch" for item in items]
        assert shape == [0, "batch", 2, 2, 2]
        assert [values(log)] == [[0, 1]]


@BOTH
def test_a_move_of_head_survives_rolling_a_segment_without_entries(
    tmp_path: Path, settings: Settings | None
) -> None:
    with Log.open(tmp_path / "log", ORDERS, settings, order_by="at") as log:
        log.append(orders(0, 2))
        log.roll()
        log.head(50)
        log.head(60)
        log.roll()
        heads = [item.key - (1 << 63) for item in log.read_all() if isinstance(item, Head)]
        assert heads[-1:] == [60]


def test_columns_are_chosen_and_unknown_ones_named(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 3))
        log.append(orders(3, 20_000))
        for batch in log.read(columns=["what"]):
            assert batch.records.schema.names == ["what"]
        assert sum(batch.records.num_rows for batch in log.read(columns=["what"])) == 20_000
        with pytest.raises(SchemaMismatch, match="'nope'"):
            list(log.read(columns=["nope"]))


@BOTH
def test_a_reader_that_was_overtaken_by_trim_is_told(tmp_path: Path, settings: Settings | None) -> None:
    with Log.open(tmp_path / "log", RAW, settings) as log:
        for at in range(4):
            log.append(raw(b"old %d" % at))
            log.roll()
        cursor = log.cursor(1)
        first = cursor.next()
        assert isinstance(first, Batch)
        log.trim(3)
        with pytest.raises(Trimmed, match="3"):
            cursor.next()
        with pytest.raises(Trimmed):
            values(log, 1)
        assert values(log) == [b"old 3"]  # 0 means: the oldest there is


def test_a_reader_of_a_ring_that_is_overtaken_gets_trimmed_never_wrong_data(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW, RING) as log:
        for at in range(12):
            log.append(blob(50_000, at))
        slow = log.cursor()
        item = slow.next()
        assert isinstance(item, Batch)
        assert item.records.column(0)[0].as_py() == bytes([0]) * 50_000
        for at in range(12, 100):  # its container is used again several times
            log.append(blob(50_000, at))
            log.trim(max(0, log.next_index - 8))
        with pytest.raises(Trimmed):
            slow.next()


def test_what_was_read_from_a_ring_stays_what_it_was(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW, RING) as log:
        log.append(blob(50_000, 1))
        (batch,) = log.read()
        for at in range(40):
            log.append(blob(50_000, 2 + at))
            log.trim(log.next_index - 1)
        assert batch.records.column(0)[0].as_py() == bytes([1]) * 50_000


@BOTH
def test_a_reader_behind_which_entries_were_cut_off_is_told(
    tmp_path: Path, settings: Settings | None
) -> None:
    with Log.open(tmp_path / "log", ORDERS, settings) as log:
        log.append(orders(0, 10))
        cursor = log.cursor()
        assert drain(cursor) == list(range(10))
        log.truncate(5)
        with pytest.raises(Truncated):
            cursor.next()


@BOTH
@pytest.mark.parametrize("roll", [False, True], ids=["same segment", "later segment"])
def test_a_reader_is_told_of_a_cut_even_if_the_log_has_grown_past_it_again(
    tmp_path: Path, settings: Settings | None, roll: bool
) -> None:
    with Log.open(tmp_path / "log", ORDERS, settings) as log:
        log.append(orders(0, 10))
        cursor = log.cursor()
        assert drain(cursor) == list(range(10))
        log.truncate(5)
        log.append(orders(100, 110))
        if roll:
            log.roll()
        log.append(orders(110, 111))
        log.sync()
        with pytest.raises(Truncated):
            drain(cursor)


@BOTH
def test_a_cut_ahead_of_a_reader_gives_it_the_new_entries_or_a_word(
    tmp_path: Path, settings: Settings | None
) -> None:
    with Log.open(tmp_path / "log", ORDERS, settings) as log:
        for at in range(6):
            log.append(orders(at, at + 1))
        reading = log.read()
        assert next(reading).base_index == 0
        log.truncate(4)
        log.append(orders(100, 102))
        log.sync()
        got: list[int] = []
        try:
            for batch in reading:
                got += batch.records.column("at").to_pylist()
        except Truncated:  # it was reading the file that the cut replaced
            assert got[:3] == [1, 2, 3]
        else:
            assert got == [1, 2, 3, 100, 101]
        assert values(log) == [0, 1, 2, 3, 100, 101]


@BOTH
def test_a_reader_goes_on_after_a_take_over(tmp_path: Path, settings: Settings | None) -> None:
    old = Log.open(tmp_path / "log", ORDERS, settings)
    old.append(orders(0, 3))
    old.sync()
    with Log.open(tmp_path / "log", read_only=True) as reading:
        cursor = reading.cursor()
        assert drain(cursor) == [0, 1, 2]
        with Log.open(tmp_path / "log", take_over=True) as new:
            assert drain(cursor) == []
            new.append(orders(3, 5))
            new.sync()
            assert drain(cursor) == [3, 4]
            new.roll()
            new.append(orders(5, 6))
            assert drain(cursor) == [5]
    with pytest.raises(HeadraceError):
        old.append(orders(0, 1))
    old.close()


def test_truncated_entries_of_a_ring_do_not_come_back_with_their_container(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW, RING) as log:
        for at in range(8):
            log.append(raw(b"old %02d" % at))
            if at == 3:
                log.roll()
        log.truncate(3)
        expected = [b"old 00", b"old 01", b"old 02"]
        for number in range(6):  # every container there is gets its turn
            log.append(raw(b"new %02d" % number))
            expected.append(b"new %02d" % number)
            log.roll()
            assert values(log) == expected
            assert log.verify().ok
    with Log.open(tmp_path / "log") as log:
        assert log.recovery.clean
        assert values(log) == expected


def test_entries_trimmed_before_a_cut_do_not_come_back(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 10))
        log.trim(5)
        log.truncate(7)
        assert log.first_index == 5
        assert values(log) == [5, 6]
    with Log.open(tmp_path / "log") as log:
        assert values(log) == [5, 6]


def test_a_closed_cursor_says_so(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        cursor = log.cursor()
        cursor.close()
        cursor.close()
        with pytest.raises(Closed):
            cursor.next()
        assert cursor.wait(0) is False


def test_reading_while_the_disk_shrinks_the_active_segment_is_never_wrong_data(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        for at in range(4):
            log.append(orders(at, at + 1))
        log.sync()
    path = active_file(tmp_path / "log")
    flip(path, path.stat().st_size - 70)
    with Log.open(tmp_path / "log", read_only=True) as log:
        got: list[int] = []
        with pytest.raises((HeadraceError,)) as told:
            for batch in log.read():
                got += batch.records.column("at").to_pylist()
        assert got == [0, 1, 2]
        assert not isinstance(told.value, DiskFailed)


@BOTH
def test_readers_beside_a_busy_writer_see_every_entry_once_and_groups_whole(
    tmp_path: Path, settings: Settings | None
) -> None:
    """Whatever a reader catches the writer at, it sees a beginning of the log that ends at a group's edge."""
    total, wrong = 300, []
    quick = replace(settings or Settings(finalize=Finalize(entries=20)), durability="os")
    with Log.open(tmp_path / "log", ORDERS, quick) as log:
        done = threading.Event()

        def glance() -> None:
            with Log.open(tmp_path / "log", read_only=True) as mine:
                while not done.is_set():
                    seen = values(mine)
                    if seen != list(range(len(seen))) or len(seen) % 3:
                        wrong.append(seen)

        def follow() -> None:
            with Log.open(tmp_path / "log", read_only=True) as mine:
                seen = values(mine, 0, total, follow=True)
                if seen != list(range(total)):
                    wrong.append(seen)

        threads = [threading.Thread(target=work) for work in (glance, glance, follow, follow)]
        for thread in threads:
            thread.start()
        for at in range(0, total, 3):
            log.append_group([orders(at, at + 1), orders(at + 1, at + 3)], writer="w", sequence=at)
            if at % 50 == 0:
                log.roll()
        for thread in threads[2:]:
            thread.join(60)
        done.set()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    assert wrong == []


def test_seeking_a_key_finds_the_first_entry_that_is_not_smaller(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, order_by="at") as log:
        for first in range(0, 60, 10):
            log.append(orders(first, first + 3))
            if first % 20 == 0:
                log.roll()
        log.head(100)
        keys = values(log)
        for sought in range(-1, 110):
            expected = next((at for at, key in enumerate(keys) if key >= sought), len(keys))
            assert log.seek_key(sought) == expected
        log.trim(10)
        for sought in range(-1, 110):
            expected = next((at for at, key in enumerate(keys) if at >= 10 and key >= sought), len(keys))
            assert log.seek_key(sought) == expected


def test_seeking_in_a_log_ordered_by_index_is_bounded_by_what_is_there(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 5))
        log.trim(2)
        assert [log.seek_key(key) for key in (-9, 0, 2, 4, 5, 99)] == [2, 2, 2, 4, 5, 5]


def test_every_type_of_order_key_can_be_sought(tmp_path: Path) -> None:
    from datetime import UTC, datetime, timedelta

    start = datetime(2024, 1, 1, tzinfo=UTC)
    cases = {
        pa.float64(): [-1.5, 0.0, 0.5, 2.25],
        pa.uint8(): [0, 1, 200, 255],
        pa.int16(): [-300, 0, 5, 30_000],
        pa.timestamp("ms", "UTC"): [start + timedelta(hours=hour) for hour in range(4)],
    }
    for number, (kind, keys) in enumerate(cases.items()):
        schema = pa.schema([pa.field("key", kind)])
        with Log.open(tmp_path / str(number), schema, order_by="key") as log:
            for key in keys:
                log.append(pa.record_batch([pa.array([key], kind)], schema=schema))
            assert [log.seek_key(key) for key in keys] == [0, 1, 2, 3]
