"""Groups that are made as they are written: as large as one likes, and there as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.kernel.errors import Broken, KeyOrder, Refused
from headrace.log import Log, large_group
from headrace.log.disk import Disk, File

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=SCHEMA)


def numbers(log: Log) -> list[int]:
    return [n for each in log.read() for n in each.records.column(0).to_pylist()]


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_group, "_PORTION_BYTES", 1)


def test_nothing_of_it_is_seen_before_all_of_it_is_there(tmp_path: Path) -> None:
    with Log.open(tmp_path, SCHEMA) as log, Log.open(tmp_path, read_only=True) as reader:
        log.append(batch(0, 1))
        seen = []

        def made() -> Iterator[pa.RecordBatch]:
            for n in range(2, 8, 2):
                seen.append((numbers(reader), reader.next_index))
                yield batch(n, n + 1)

        commit = log.append_group(made(), writer="w", sequence=1, note="a note")
        assert seen == [([0, 1], 2)] * 3
        assert (commit.base_index, commit.next_index, commit.note) == (2, 8, "a note")
        assert numbers(reader) == list(range(8))
        assert log.append_group(made(), writer="w", sequence=1).repeated
        log.append(batch(8))
        assert numbers(reader) == list(range(9))


def test_who_fails_in_the_middle_leaves_nothing_of_it(tmp_path: Path) -> None:
    def made() -> Iterator[pa.RecordBatch]:
        yield batch(1, 2)
        raise ZeroDivisionError

    with Log.open(tmp_path, SCHEMA) as log:
        log.append(batch(0))
        with pytest.raises(ZeroDivisionError):
            log.append_group(made(), writer="w", sequence=1)
        with pytest.raises(Broken, match="cut short"):
            log.append(batch(9))
        assert numbers(log) == [0]
    with Log.open(tmp_path) as log:
        assert numbers(log) == [0]
        assert not log.append_group(iter([batch(1)]), writer="w", sequence=1).repeated
        assert numbers(log) == [0, 1]
        assert log.verify().damages == ()


def test_what_fails_before_anything_is_written_harms_nothing(tmp_path: Path) -> None:
    with Log.open(tmp_path, SCHEMA, order_by="n") as log:
        log.append(batch(5))
        with pytest.raises(KeyOrder):
            log.append_group(iter([batch(4)]), writer="w", sequence=1)
        log.append_group(iter([batch(6), batch(7, 8)]), writer="w", sequence=1)
        log.roll()
        assert numbers(log) == [5, 6, 7, 8]


def test_what_makes_its_batches_may_not_change_the_log(tmp_path: Path) -> None:
    with Log.open(tmp_path, SCHEMA) as log:

        def made() -> Iterator[pa.RecordBatch]:
            yield batch(1)
            for change in (lambda: log.append(batch(9)), log.roll, lambda: log.truncate(0)):
                with pytest.raises(Refused, match="group"):
                    change()
            yield batch(2)

        log.append_group(made(), writer="w", sequence=1)
        log.append(batch(3))
    with Log.open(tmp_path) as log:
        assert numbers(log) == [1, 2, 3]
        assert log.verify().ok


def test_one_of_nothing_is_a_commit_too(tmp_path: Path) -> None:
    with Log.open(tmp_path, SCHEMA) as log:
        commit = log.append_group(iter(()), writer="w", sequence=3)
        assert (commit.base_index, commit.next_index) == (0, 0)
        assert log.append_group(iter([batch(1)]), writer="w", sequence=3).repeated
        assert [each.writer for each in log.commits()] == ["w"]


@pytest.mark.parametrize("sequence", [True, False, 1.0, "1", None, 1 << 63])
def test_a_sequence_number_is_an_integer_and_nothing_else(tmp_path: Path, sequence: object) -> None:
    with Log.open(tmp_path / "log", SCHEMA) as log:
        with pytest.raises(Refused, match="integer"):
            log.append_group([batch(0)], writer="w", sequence=sequence)  # type: ignore[arg-type]
        assert log.next_index == 0
    Log.open(tmp_path / "log").close()


def test_taking_away_what_is_left_of_one_needs_memory_for_a_piece_of_it(tmp_path: Path) -> None:
    class Noting(File):
        largest = 0

        def read(self, size: int, offset: int) -> bytes:
            Noting.largest = max(Noting.largest, size)
            return super().read(size, offset)

    def made() -> Iterator[pa.RecordBatch]:
        for _ in range(60):
            yield batch(*range(10_000))
        raise RuntimeError("no more")

    log = Log.open(tmp_path / "log", SCHEMA)
    log.append(batch(1))
    with pytest.raises(RuntimeError):
        log.append_group(made(), writer="w", sequence=1)
    log.close()
    disk = Disk()
    disk.file_class = Noting
    with Log.open(tmp_path / "log", disk=disk) as log:
        assert log.recovery.cut_bytes > 4 << 20
        assert log.recovery.kept_copy is not None
        assert (log.path / log.recovery.kept_copy).stat().st_size == log.recovery.cut_bytes
        assert numbers(log) == [1]
    assert Noting.largest <= 1 << 20
