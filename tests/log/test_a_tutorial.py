"""The log in one reading: each test is one thing that it does, from the first append to repair."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import headrace
from headrace.kernel.errors import KeyOrder, Trimmed
from headrace.log import DamagedEntries, Finalize, Head, Log, Retention, Settings, repair

READINGS = pa.schema([pa.field("at", pa.int64()), pa.field("celsius", pa.float64())])


def readings(*rows: tuple[int, float]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(column) for column in zip(*rows, strict=True)], schema=READINGS)


def test_a_log_is_opened_appended_to_synced_and_read(tmp_path: Path) -> None:
    with Log.open(tmp_path / "readings", READINGS) as log:
        assert log.append(readings((10, 20.5), (11, 20.6))) == 0
        assert log.append(readings((12, 20.7))) == 2  # the index of the first new entry
        log.sync()  # on the disk when this returns
        assert log.durable_index == log.next_index == 3

    with Log.open(tmp_path / "readings", read_only=True) as log:  # its schema is stored with it
        whole = pa.Table.from_batches(batch.records for batch in log.read())
        assert whole.to_pylist() == [
            {"at": 10, "celsius": 20.5},
            {"at": 11, "celsius": 20.6},
            {"at": 12, "celsius": 20.7},
        ]
        (batch,) = log.read(1, 2, columns=["celsius"])  # any slice, any columns
        assert (batch.base_index, batch.records.to_pylist()) == (1, [{"celsius": 20.6}])


def test_a_follower_is_handed_what_is_appended_later(tmp_path: Path) -> None:
    got: list[int] = []
    with Log.open(tmp_path / "readings", READINGS) as log:

        def follow() -> None:
            for batch in log.read(stop=3, follow=True):
                got.extend(batch.records.column("at").to_pylist())

        follower = threading.Thread(target=follow)
        follower.start()
        for at in (10, 11, 12):
            log.append(readings((at, 0.0)))
        follower.join()
    assert got == [10, 11, 12]


def test_an_order_key_never_goes_back_and_can_be_looked_up(tmp_path: Path) -> None:
    with Log.open(tmp_path / "readings", READINGS, order_by="at") as log:
        log.append(readings((100, 1.0), (200, 2.0), (300, 3.0)))
        assert log.seek_key(150) == 1
        with pytest.raises(KeyOrder):
            log.append(readings((250, 0.0)))

        log.head(400)  # a promise without an entry: nothing before 400 will come
        with pytest.raises(KeyOrder):
            log.append(readings((399, 0.0)))
        log.append(readings((400, 4.0)))
        heads = [item.next_index for item in log.read_all() if isinstance(item, Head)]
        assert heads == [3]


def test_a_group_is_all_or_nothing_and_safe_to_repeat(tmp_path: Path) -> None:
    with Log.open(tmp_path / "readings", READINGS) as log:
        parts = [readings((1, 1.0)), readings((2, 2.0), (3, 3.0))]
        first = log.append_group(parts, writer="spark-7", sequence=1, note="batch 1")
        again = log.append_group(parts, writer="spark-7", sequence=1, note="batch 1")
        assert (first.base_index, first.next_index, first.repeated) == (0, 3, False)
        assert (again.base_index, again.next_index, again.repeated) == (0, 3, True)
        assert log.next_index == 3
        last = log.last_commit("spark-7")
        assert last is not None
        assert last.note == "batch 1"


def test_the_beginning_can_be_trimmed_and_the_end_cut_off(tmp_path: Path) -> None:
    with Log.open(tmp_path / "readings", READINGS, Settings(finalize=Finalize(entries=2))) as log:
        for at in range(6):
            log.append(readings((at, 0.0)))
        assert log.info().segments == 3

        log.trim(3)  # 0 and 1 go with their segment, 2 is there but no longer given out
        assert log.first_index == 3
        assert [batch.base_index for batch in log.read()] == [3, 4, 5]
        with pytest.raises(Trimmed):
            list(log.read(2))

        log.truncate(5)
        assert log.append(readings((99, 0.0))) == 5


def test_damage_is_found_told_and_repaired(tmp_path: Path) -> None:
    with Log.open(tmp_path / "readings", READINGS) as log:
        for at in range(3):
            log.append(readings((at, 0.0)))
        log.roll()
    (segment,) = (tmp_path / "readings").glob("*.seg")
    content = bytearray(segment.read_bytes())
    content[_body_of(segment, 1)] ^= 0x01
    segment.write_bytes(content)

    with Log.open(tmp_path / "readings") as log:
        report = log.verify()
        assert not report.ok
        assert report.lost == ((1, 2),)
        with pytest.raises(DamagedEntries):
            list(log.read())
        told: list[object] = []
        assert [batch.base_index for batch in log.read(on_damage=told.append)] == [0, 2]
        assert len(told) == 1

    done = repair(tmp_path / "readings")
    assert done.kept  # the damaged segment as it was
    with Log.open(tmp_path / "readings") as log:
        assert log.verify().ok
        assert [batch.base_index for batch in log.read(on_damage=told.append)] == [0, 2]
        assert log.append(readings((3, 0.0))) == 3


def _body_of(segment: Path, row: int) -> int:
    """A byte inside the body of a segment's batch."""
    from headrace.log.disk import Disk
    from headrace.log.meta import load_meta
    from headrace.log.table import read_footer
    from headrace.log.view import View

    disk = Disk()
    with disk.opened(segment) as file:
        table = read_footer(
            View(file, salt=load_meta(disk, segment.parent).salt, finalized=True, copying=True)
        )
    assert table is not None
    return table.offsets[row] + 64 + 8


def test_raw_bytes_need_no_schema(tmp_path: Path) -> None:
    with headrace.writer(tmp_path / "topic") as out:
        assert out.write(b"hello") == 0
        assert out.write("wörld".encode()) == 1
        out.flush()
        with headrace.reader(tmp_path / "topic", 1) as records:
            assert list(records) == ["wörld".encode()]


def test_a_channel_gives_again_what_was_not_acknowledged(tmp_path: Path) -> None:
    with headrace.channel(tmp_path / "outbox", "uploader") as box:
        box.put_many([b"one", b"two"])
        assert box.get(timeout=0) == b"one"
        box.ack()
        assert box.get(timeout=0) == b"two"  # and then the uploader crashes
    with headrace.channel(tmp_path / "outbox", "uploader") as box:
        assert box.get(timeout=0) == b"two"
        box.ack()
        assert box.get(timeout=0) is None


def test_policies_are_kept_with_the_log(tmp_path: Path) -> None:
    settings = Settings(
        compression="zstd", finalize=Finalize(entries=10), retention=Retention(entries=20), durability="os"
    )
    with Log.open(tmp_path / "readings", READINGS, settings) as log:
        for at in range(45):
            log.append(readings((at, 0.0)))
    with Log.open(tmp_path / "readings") as log:
        assert log.settings == settings
        assert log.first_index == 20
