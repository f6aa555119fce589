"""The batcher: rows of one thread become batches; syncs happen beside the rows that come next."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.kernel.errors import DiskFailed, HeadraceError, Retryable
from headrace.log import Log
from headrace.log.batcher import Batcher
from headrace.log.disk import Disk, File

from .samples import RAW, raw, values


class _SlowFile(File):
    begun, go_on = threading.Event(), threading.Event()
    failing: Exception | None = None

    def sync(self) -> None:
        self.begun.set()
        assert self.go_on.wait(60)
        failing, type(self).failing = self.failing, None
        if failing:
            raise failing
        super().sync()


@contextmanager
def _batching(path: Path, linger_s: float | None = 3600) -> Iterator[tuple[list[bytes], Batcher, Log]]:
    """A log whose syncs take until somebody lets them go on."""
    slow = type("Slow", (_SlowFile,), {"begun": threading.Event(), "go_on": threading.Event()})
    slow.go_on.set()
    log = Log.open(path / "log", RAW, disk=type("SlowDisk", (Disk,), {"file_class": slow})())
    rows: list[bytes] = []
    batcher = Batcher(log, [rows], lambda columns: [raw(*columns[0])], linger_s)
    batcher.slow = slow  # type: ignore[attr-defined]
    slow.begun.clear()
    slow.go_on.clear()
    try:
        yield rows, batcher, log
    finally:
        slow.go_on.set()
        for each in (batcher, log):
            with contextlib.suppress(HeadraceError):
                each.close()


def test_an_overflow_writes_at_once_and_does_not_wait_for_the_sync(tmp_path: Path) -> None:
    with _batching(tmp_path) as (rows, batcher, log):
        rows += [b"1", b"2"]
        batcher.overflow()
        assert values(log) == [b"1", b"2"]
        assert batcher.slow.begun.wait(60)
        assert log.durable_index == 0  # the sync is under way, and the caller goes on
        rows.append(b"3")
        assert batcher.pending == 1


def test_the_background_lives_on_after_an_error_that_is_none_of_ours(tmp_path: Path) -> None:
    with _batching(tmp_path) as (rows, batcher, log):
        batcher.slow.failing = MemoryError()
        batcher.slow.go_on.set()
        rows.append(b"1")
        batcher.overflow()
        told: list[HeadraceError] = []

        def go_on() -> None:
            try:
                batcher.overflow()
                batcher.check()
            except HeadraceError as error:
                told.append(error)

        thread = threading.Thread(target=go_on, daemon=True)
        thread.start()
        thread.join(30)
        assert isinstance(told[0], Retryable)
        batcher.flush()
        assert log.durable_index == 1


def test_not_more_than_one_portion_waits_for_the_sync(tmp_path: Path) -> None:
    with _batching(tmp_path) as (rows, batcher, log):
        rows.append(b"1")
        batcher.overflow()
        assert batcher.slow.begun.wait(60)
        rows.append(b"2")
        second = threading.Thread(target=batcher.overflow)
        second.start()
        second.join(0.05)
        assert second.is_alive()
        assert values(log) == [b"1"]
        batcher.slow.go_on.set()
        second.join(60)
        assert values(log) == [b"1", b"2"]


def test_who_waits_to_overflow_is_let_go_when_it_is_closed(tmp_path: Path) -> None:
    with _batching(tmp_path) as (rows, batcher, _log):
        batcher._synced.clear()
        rows.append(b"1")
        waiting = threading.Thread(target=batcher.overflow)
        waiting.start()
        batcher.slow.go_on.set()
        batcher.close()
        waiting.join(60)
        assert not waiting.is_alive()


def test_rows_that_come_after_an_overflow_are_flushed_in_their_time(tmp_path: Path) -> None:
    with _batching(tmp_path, linger_s=0.01) as (rows, batcher, log):
        batcher.slow.go_on.set()
        rows.append(b"1")
        batcher.wake()
        batcher.overflow()
        rows.append(b"2")
        assert [batch.records.num_rows for batch in log.read(stop=2, follow=True)] == [1, 1]


def test_a_sync_that_fails_in_the_background_is_told_to_the_next_caller(tmp_path: Path) -> None:
    with _batching(tmp_path) as (rows, batcher, log):
        batcher.slow.failing = DiskFailed("gone")
        rows.append(b"1")
        batcher.overflow()
        batcher.slow.go_on.set()
        rows.append(b"2")
        with pytest.raises(DiskFailed, match="gone"):
            batcher.flush()
        assert log.durable_index == 0


def test_without_a_thread_an_overflow_is_a_flush(tmp_path: Path) -> None:
    with _batching(tmp_path, linger_s=None) as (rows, batcher, log):
        batcher.slow.go_on.set()
        rows.append(b"1")
        batcher.overflow()
        assert log.durable_index == 1
