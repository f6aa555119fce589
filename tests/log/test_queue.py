"""The byte queue: write bytes, read them back, by address."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace
from headrace.kernel.errors import (
    BadSettings,
    Closed,
    DiskFailed,
    NotFound,
    Refused,
    SchemaMismatch,
    TooLarge,
    Trimmed,
    WriterTaken,
)
from headrace.log import Containers, Finalize, Log, Settings, queue
from headrace.log.batcher import FlushPolicy
from headrace.log.disk import File

from .samples import ORDERS, all_bytes

records = st.lists(st.binary(max_size=200), max_size=30)


@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records, records, st.integers(0, 70), st.data())
def test_what_is_written_is_read_back_from_any_address(
    tmp_path_factory: pytest.TempPathFactory,
    one_by_one: list[bytes],
    together: list[bytes],
    address: int,
    data: st.DataObject,
) -> None:
    path = tmp_path_factory.mktemp("queue") / "topic"
    model: list[bytes] = []
    quick = Settings(durability="os", finalize=Finalize(entries=data.draw(st.sampled_from([5, 1000]))))
    with headrace.writer(path, settings=quick) as out:
        for record in one_by_one:
            assert out.write(record) == len(model)
            model.append(record)
            assert out.address == len(model)
        assert out.write_many(together) == len(model)
        model += together
        for record in one_by_one:
            assert out.write(record) == len(model)
            model.append(record)
        out.flush()
        with headrace.reader(path, address) as back:
            assert list(back) == model[address:]
            assert back.read() is None
    with headrace.reader(path) as back:
        most = data.draw(st.integers(1, 20))
        got: list[bytes] = []
        while part := back.read_many(most):
            assert len(part) <= most
            got += part
            assert back.address == len(got)
        assert got == model


def test_utf8_round_trips(tmp_path: Path) -> None:
    text = "Grüße, 世界 🚀"
    with headrace.writer(tmp_path / "topic") as out:
        out.write(text.encode())
    with headrace.reader(tmp_path / "topic") as back:
        assert (back.read() or b"").decode() == text


def test_large_and_empty_records_keep_their_order(tmp_path: Path) -> None:
    sizes = [0, 5_000_000, 0, 1, 70_000, 2_000_000, 0]
    with headrace.writer(tmp_path / "topic") as out:
        for number, size in enumerate(sizes):
            assert out.write(bytes([number]) * size) == number
    with headrace.reader(tmp_path / "topic") as back:
        assert [len(record) for record in back] == sizes


def test_a_record_that_no_container_takes_is_refused_and_others_are_not(tmp_path: Path) -> None:
    ring = Settings(containers=Containers(bytes=1 << 19))
    with headrace.writer(tmp_path / "topic", settings=ring) as out:
        assert out.write(b"one") == 0
        with pytest.raises(TooLarge):
            out.write(b"x" * 600_000)
        assert out.write(b"two") == 1
        assert out.write(b"y" * 400_000) == 2
        with pytest.raises(TooLarge):
            out.write(b"x" * 600_000)
        out.flush()
        assert out.write(b"three") == 3
    with headrace.reader(tmp_path / "topic") as back:
        assert [record[:5] for record in back] == [b"one", b"two", b"yyyyy", b"three"]


def test_a_record_that_is_large_for_a_container_counts_among_the_writes(tmp_path: Path) -> None:
    ring = Settings(containers=Containers(bytes=1 << 19))
    each = FlushPolicy(writes=2, seconds=3600)
    with headrace.writer(tmp_path / "topic", settings=ring, flush=each) as out:
        out.write(b"one")
        assert out._log.durable_index == 0
        out.write(b"x" * 400_000)
        assert out._log.durable_index == 2


def test_a_write_that_makes_records_durable_does_not_return_if_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: File) -> None:
        raise DiskFailed("gone")

    out = headrace.writer(tmp_path / "topic", flush=FlushPolicy(writes=2, seconds=3600))
    out.write(b"one")
    with monkeypatch.context() as failing:
        failing.setattr(File, "sync", fail)
        with pytest.raises(DiskFailed):
            out.write(b"two")
    with pytest.raises(DiskFailed):
        out.close()


def test_a_record_that_is_larger_than_any_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "RECORD_BYTES_MAX", 1000)
    with headrace.writer(tmp_path / "topic") as out:
        assert out.write(b"x" * 1000) == 0
        with pytest.raises(TooLarge, match="1001 bytes"):
            out.write(b"x" * 1001)
        assert out.write(b"one") == 1


@pytest.mark.parametrize("wrong", ["text", None, 7, ["x"], object()])
def test_what_is_not_bytes_is_refused_and_the_queue_works_on(tmp_path: Path, wrong: object) -> None:
    with headrace.writer(tmp_path / "topic") as out:
        assert out.write(b"one") == 0
        with pytest.raises(Refused, match="bytes"):
            out.write(wrong)  # type: ignore[arg-type]
        with pytest.raises(Refused, match="bytes"):
            out.write_many([b"two", wrong])  # type: ignore[list-item]
        assert out.write(b"two") == 1
    with headrace.reader(tmp_path / "topic") as back:
        assert list(back) == [b"one", b"two"]


def test_a_number_of_records_is_at_least_0(tmp_path: Path) -> None:
    with headrace.writer(tmp_path / "topic") as out:
        out.write(b"one")
    with headrace.reader(tmp_path / "topic") as back:
        with pytest.raises(Refused, match="-1"):
            back.read_many(-1)
        assert back.read_many(0) == []
        assert back.read_many(1) == [b"one"]


def test_anything_like_bytes_is_taken_as_it_is_at_that_moment(tmp_path: Path) -> None:
    with headrace.writer(tmp_path / "topic") as out:
        changing = bytearray(b"before")
        out.write(changing)  # type: ignore[arg-type]
        changing[:] = b"after!"
        out.write(memoryview(b"view"))  # type: ignore[arg-type]
    with headrace.reader(tmp_path / "topic") as back:
        assert list(back) == [b"before", b"view"]


def test_a_closed_writer_takes_nothing_more(tmp_path: Path) -> None:
    out = headrace.writer(tmp_path / "topic")
    out.write(b"one")
    out.close()
    out.close()
    before = all_bytes(tmp_path)
    attempts = (lambda: out.write(b"two"), lambda: out.write_many([b"two"]), out.flush)
    for attempt in attempts * 2:  # nor the second time
        with pytest.raises(Closed):
            attempt()
    assert all_bytes(tmp_path) == before


def test_flushing_happens_by_itself_after_so_many_writes(tmp_path: Path) -> None:
    with headrace.writer(tmp_path / "topic", flush=headrace.FlushPolicy(writes=3, seconds=3600)) as out:
        for _ in range(7):
            out.write(b"ten bytes.")
        with Log.open(tmp_path / "topic", read_only=True) as log:
            assert log.durable_index == 6


def test_after_so_many_bytes_records_are_written_at_once_and_durable_soon(tmp_path: Path) -> None:
    with headrace.writer(tmp_path / "topic", flush=headrace.FlushPolicy(bytes=30, seconds=3600)) as out:
        for _ in range(7):
            out.write(b"ten bytes.")
        with headrace.reader(tmp_path / "topic") as back:
            assert len(list(back)) == 6
        with Log.open(tmp_path / "topic", read_only=True) as log:
            cursor = log.cursor(6)
            while log.durable_index < 6:  # the mark moves when it is
                cursor.wait(60)


def test_what_is_written_together_does_not_count_towards_the_next_flush(tmp_path: Path) -> None:
    sizes = headrace.FlushPolicy(writes=30, bytes=300, seconds=3600)
    with headrace.writer(tmp_path / "topic", flush=sizes) as out:
        out.write(b"ten bytes.")
        out.write_many([b"ten bytes."] * 100)
        out.write(b"ten bytes.")
        with headrace.reader(tmp_path / "topic") as back:
            assert len(list(back)) == 101


def test_flushing_happens_by_itself_after_some_time(tmp_path: Path) -> None:
    with headrace.writer(tmp_path / "topic", flush=headrace.FlushPolicy(seconds=0.001)) as out:
        out.write(b"one")
        with headrace.reader(tmp_path / "topic") as back:
            assert back.wait(60)
            assert back.read() == b"one"


@pytest.mark.parametrize("sizes", [[20], [20, 20, 20, 7], [0, 1, 300]])
def test_whatever_was_written_last_is_flushed_by_itself_whatever_else_goes_on(
    place: Path, sizes: list[int]
) -> None:
    """The background flushes all the time, while records come in runs of one size and of others."""
    often = headrace.FlushPolicy(seconds=0.0, bytes=2_000)
    written = 0
    with headrace.writer(place / "topic", flush=often) as out, headrace.reader(place / "topic") as records:
        for round_ in range(60):
            for _ in range(round_):
                assert out.write(bytes(sizes[written % len(sizes)])) == written
                written += 1
            while records.address < written:  # nobody writes now: only the background can bring the rest
                assert records.wait(60)
                for data in records:
                    assert len(data) in sizes
    assert written == 60 * 59 // 2


def test_addresses_are_right_while_a_flush_runs_in_the_background(tmp_path: Path) -> None:
    count, before = 30_000, sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can
    try:
        quick = headrace.FlushPolicy(seconds=0.0001)
        with headrace.writer(tmp_path / "topic", settings=Settings(durability="os"), flush=quick) as out:
            wrong = [number for number in range(count) if out.write(b"%d" % number) != number]
    finally:
        sys.setswitchinterval(before)
    assert wrong == []
    with headrace.reader(tmp_path / "topic") as back:
        assert list(back) == [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("sizes", [[100] * 20_000, [0] + [100_000] * 20, [400_000] * 5])
def test_a_queue_in_containers_takes_more_than_one_container_at_once(
    tmp_path: Path, sizes: list[int]
) -> None:
    ring = Settings(durability="os", containers=Containers(bytes=1 << 20))
    with headrace.writer(tmp_path / "many", settings=ring) as out:
        out.write_many([b"x" * size for size in sizes])
    with headrace.writer(tmp_path / "single", settings=ring) as out:
        for size in sizes:
            out.write(b"x" * size)
    for name in ("many", "single"):
        with headrace.reader(tmp_path / name) as back:
            assert [len(record) for record in back] == sizes


def test_a_reader_waits_for_what_comes(tmp_path: Path) -> None:
    with headrace.writer(tmp_path / "topic") as out, headrace.reader(tmp_path / "topic") as back:
        assert back.read() is None
        assert back.wait(0) is False

        def later() -> None:
            out.write(b"one")
            out.flush()

        thread = threading.Thread(target=later)
        thread.start()
        assert back.wait(60)
        thread.join()
        assert back.wait(60)  # still there
        assert back.read() == b"one"
        assert back.read() is None


def test_the_topic_continues_after_reopening(tmp_path: Path) -> None:
    for number in range(3):
        with headrace.writer(tmp_path / "topic") as out:
            assert out.address == number
            assert out.write(b"%d" % number) == number
    with headrace.reader(tmp_path / "topic", 1) as back:
        assert list(back) == [b"1", b"2"]


def test_segment_bytes_is_a_hint_as_the_slab_size_was(tmp_path: Path) -> None:
    with headrace.writer(tmp_path / "topic", 1000) as out:
        for _ in range(10):
            out.write(b"x" * 400)
            out.flush()
    assert len(list((tmp_path / "topic").glob("*.seg"))) >= 4
    with pytest.raises(BadSettings):
        headrace.writer(tmp_path / "other", 0)
    with pytest.raises(Refused, match="not both"):
        headrace.writer(tmp_path / "other", 1000, settings=Settings())
    assert not (tmp_path / "other").exists()


def test_what_is_no_byte_queue_is_refused(tmp_path: Path) -> None:
    Log.open(tmp_path / "orders", ORDERS).close()
    with pytest.raises(SchemaMismatch):
        headrace.writer(tmp_path / "orders")
    with pytest.raises(SchemaMismatch):
        headrace.reader(tmp_path / "orders")
    with pytest.raises(NotFound):
        headrace.reader(tmp_path / "nothing")
    Log.open(tmp_path / "orders").close()  # nobody holds it


def test_addresses_out_of_bounds(tmp_path: Path) -> None:
    with headrace.writer(tmp_path / "topic", settings=Settings(finalize=Finalize(entries=2))) as out:
        for number in range(6):
            out.write(b"%d" % number)
            out.flush()
    with pytest.raises(Refused):
        headrace.reader(tmp_path / "topic", -1)
    with headrace.reader(tmp_path / "topic", 99) as back:
        assert back.read() is None
    with Log.open(tmp_path / "topic") as log:
        log.trim(4)
    with headrace.reader(tmp_path / "topic", 2) as back, pytest.raises(Trimmed):
        back.read()
    with headrace.reader(tmp_path / "topic") as back:
        assert list(back) == [b"4", b"5"]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    with headrace.writer(tmp_path / "topic"), pytest.raises(WriterTaken):
        headrace.writer(tmp_path / "topic")
