"""Appending: what is refused changes nothing, what is accepted is numbered without holes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import (
    Closed,
    HeadraceError,
    KeyOrder,
    Refused,
    SchemaMismatch,
    TooLarge,
    Trimmed,
)
from headrace.kernel.limits import NOTE_BYTES_MAX, WRITER_ID_BYTES_MAX, WRITERS_MAX
from headrace.log import Finalize, Log, Settings
from headrace.log.segment_reader import Batch, Head

from .samples import (
    ORDERS,
    RAW,
    RING,
    all_bytes,
    blob,
    orders,
    orders_at,
    segment_files,
    values,
    written_bytes,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log.open(tmp_path / "log", ORDERS, order_by="at") as opened:
        opened.append(orders(0, 5))
        opened.sync()
        yield opened


def refused(
    log: Log, error: type[HeadraceError], attempt: Callable[[], object], match: str | None = None
) -> None:
    """The attempt raises exactly this error, no byte changes, and the log works on."""
    before = all_bytes(log.path)
    with pytest.raises(error, match=match) as raised:
        attempt()
    assert type(raised.value) is error
    assert all_bytes(log.path) == before
    index = log.next_index
    log.append(orders_at([log_head(log)]))
    assert log.next_index == index + 1
    assert log.verify().ok


def log_head(log: Log) -> int:
    return max([*values(log), 0])


@pytest.mark.parametrize("wrong", [None, "text", b"bytes", [1], {"at": 1}, 7, ORDERS])
def test_what_is_no_batch_is_refused(log: Log, wrong: object) -> None:
    refused(log, SchemaMismatch, lambda: log.append(wrong), "RecordBatch")  # type: ignore[arg-type]
    refused(
        log,
        SchemaMismatch,
        lambda: log.append_group([orders(9, 10), wrong], writer="w", sequence=1),  # type: ignore[list-item]
    )


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"at": pa.array([9])}, "what"),
        ({"at": pa.array([9]), "what": pa.array(["x"]), "more": pa.array([1])}, "more"),
        ({"at": pa.array([9], pa.int32()), "what": pa.array(["x"])}, "at"),
        ({"what": pa.array(["x"]), "at": pa.array([9])}, "what"),
        ({"at": pa.array([9]), "what": pa.array(["x"]).dictionary_encode()}, "what"),
    ],
)
def test_a_batch_of_another_schema_is_refused_and_the_field_named(
    log: Log, columns: dict[str, pa.Array], named: str
) -> None:
    refused(log, SchemaMismatch, lambda: log.append(pa.record_batch(columns)), named)
    refused(log, SchemaMismatch, lambda: log.append(pa.table(columns)), named)


def test_null_in_a_field_that_may_not_be_null_is_refused(tmp_path: Path) -> None:
    with Log.open(tmp_path / "raw", RAW) as log:
        with pytest.raises(SchemaMismatch, match="data"):
            log.append(pa.RecordBatch.from_arrays([pa.array([b"x", None])], schema=RAW))
        assert log.next_index == 0


@pytest.mark.parametrize(
    "keys",
    [[None], [7, None, 8], [3], [9, 8], [6, 7, 5]],
    ids=["null", "later null", "back", "falls", "dips"],
)
def test_keys_that_are_not_in_order_are_refused(log: Log, keys: list[int | None]) -> None:
    refused(log, KeyOrder, lambda: log.append(orders_at(keys)))


def test_equal_keys_pass_unless_the_log_is_strict(log: Log, tmp_path: Path) -> None:
    assert log.append(orders_at([4, 4])) == 5
    with Log.open(tmp_path / "strict", ORDERS, order_by="at", strict=True) as strict:
        strict.append(orders_at([1, 2]))
        for keys in ([2], [2, 3], [3, 3]):
            with pytest.raises(KeyOrder):
                strict.append(orders_at(keys))
        strict.head(5)
        assert strict.append(orders_at([5])) == 2  # what HEAD promised is not taken yet
        with pytest.raises(KeyOrder):
            strict.append(orders_at([5]))


def test_strictness_survives_reopening_and_rolling(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, order_by="at", strict=True) as log:
        log.append(orders_at([1, 2]))
        log.roll()
    with Log.open(tmp_path / "log") as log:
        with pytest.raises(KeyOrder):
            log.append(orders_at([2]))
        log.append(orders_at([3]))


def test_head_does_not_go_back(log: Log) -> None:
    log.head(10)
    before = all_bytes(log.path)
    with pytest.raises(KeyOrder, match="from 10 to 9"):
        log.head(9)
    with pytest.raises(KeyOrder, match="from 10 to 9"):
        log.append(orders_at([9]))
    assert all_bytes(log.path) == before
    log.head(10)
    log.append(orders_at([10]))


def test_head_holds_across_segments_and_reopening(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, order_by="at") as log:
        log.append(orders(0, 2))
        log.head(50)
        log.roll()
    with Log.open(tmp_path / "log") as log:
        with pytest.raises(KeyOrder):
            log.append(orders_at([49]))
        log.append(orders_at([50]))


def test_a_log_ordered_by_index_has_no_head_to_move(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log, pytest.raises(Refused):
        log.head(5)


@pytest.mark.parametrize("key", ["tomorrow", None, 1.5, 1 << 63, -(1 << 63) - 1])
def test_what_is_no_key_cannot_be_head_or_be_sought(log: Log, key: object) -> None:
    refused(log, KeyOrder, lambda: log.head(key))
    refused(log, KeyOrder, lambda: log.seek_key(key))


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Refused, {"writer": ""}),
        (Refused, {"writer": "w" * (WRITER_ID_BYTES_MAX + 1)}),
        (Refused, {"writer": "ü" * (WRITER_ID_BYTES_MAX // 2 + 1)}),
        (Refused, {"writer": None}),
        (Refused, {"writer": "\ud800"}),
        (Refused, {"sequence": "one"}),
        (Refused, {"sequence": 1.5}),
        (Refused, {"sequence": None}),
        (TooLarge, {"note": "n" * (NOTE_BYTES_MAX + 1)}),
        (Refused, {"note": None}),
        (Refused, {"note": "\ud800"}),
    ],
)
def test_what_does_not_name_a_group_is_refused(
    log: Log, error: type[HeadraceError], words: dict[str, object]
) -> None:
    before = all_bytes(log.path)
    with pytest.raises(error):
        log.append_group([orders(9, 10)], **({"writer": "w", "sequence": 1} | words))  # type: ignore[arg-type]
    assert all_bytes(log.path) == before
    path = log.path
    log.close()
    with Log.open(path) as again:
        assert values(again) == [0, 1, 2, 3, 4]


def test_the_largest_note_and_writer_pass_and_come_back(log: Log) -> None:
    path, writer, note = log.path, "w" * WRITER_ID_BYTES_MAX, "\0" * NOTE_BYTES_MAX
    log.append_group([orders(5, 6)], writer=writer, sequence=(1 << 63) - 1, note=note)
    log.roll()
    log.close()
    with Log.open(path) as again:
        last = again.last_commit(writer)
        assert last is not None
        assert (last.sequence, last.note) == ((1 << 63) - 1, note)


def test_an_empty_batch_appends_nothing(log: Log) -> None:
    before = all_bytes(log.path)
    assert log.append(orders(0, 0)) == 5
    assert log.append(ORDERS.empty_table()) == 5
    assert all_bytes(log.path) == before


def test_an_empty_group_still_counts_as_committed(log: Log) -> None:
    first = log.append_group([], writer="w", sequence=4, note="nothing today")
    assert (first.base_index, first.next_index) == (5, 5)
    assert log.append_group([orders(5, 6)], writer="w", sequence=4).repeated
    assert log.next_index == 5


def test_a_table_of_several_chunks_is_one_group(log: Log) -> None:
    table = pa.Table.from_batches([orders(5, 7), orders(7, 9), orders(9, 9), orders(9, 10)])
    assert log.append(table) == 5
    assert values(log) == list(range(10))
    with pytest.raises(Refused, match="group"):
        log.truncate(7)


def test_a_repeated_group_is_recognised_after_rolling_reopening_and_truncating(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append_group([orders(0, 3)], writer="w", sequence=7, note="seven")
        log.roll()
        log.append(orders(3, 9))
        log.truncate(5)
    with Log.open(tmp_path / "log") as log:
        for sequence in (7, 6, -1):
            again = log.append_group([orders(0, 3)], writer="w", sequence=sequence)
            assert (again.repeated, again.base_index, again.next_index) == (True, 0, 3)
        assert not log.append_group([orders(5, 6)], writer="w", sequence=8).repeated
        log.truncate(0)
        assert log.last_commit("w") is None
        assert not log.append_group([orders(0, 3)], writer="w", sequence=7).repeated


def test_only_so_many_writers_are_remembered_and_the_idlest_goes_first(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(durability="os")) as log:
        for number in range(WRITERS_MAX):
            log.append_group([], writer=f"w{number}", sequence=1)
        log.append_group([], writer="w0", sequence=2)
        log.append_group([], writer="one more", sequence=1)
        assert log.last_commit("w0") is not None
        assert log.last_commit("w1") is None
        log.roll()
    with Log.open(tmp_path / "log") as log:
        assert log.last_commit("w0") is not None
        assert log.last_commit("w1") is None


@pytest.mark.parametrize("index", [-1, -100])
def test_negative_indexes_are_refused(log: Log, index: int) -> None:
    refused(log, Refused, lambda: list(log.read(index)))
    with pytest.raises(Refused):
        log.truncate(index)
    with pytest.raises(Refused):
        log.trim(index)


def test_what_is_not_there_cannot_be_trimmed_or_cut(log: Log) -> None:
    refused(log, Refused, lambda: log.trim(6), "from 0 to 5")
    log.truncate(100)  # nothing to cut off
    log.trim(3)
    refused(log, Trimmed, lambda: log.truncate(2))


def test_cutting_inside_a_group_is_refused_and_readers_do_not_notice(log: Log) -> None:
    log.append_group([orders(5, 8), orders(8, 9)], writer="w", sequence=1)
    log.sync()
    cursor = log.cursor()
    while cursor.next() is not None:
        pass
    before = all_bytes(log.path)
    for index in (6, 8):
        with pytest.raises(Refused, match="group that begins at 5"):
            log.truncate(index)
    assert all_bytes(log.path) == before
    assert cursor.next() is None
    log.truncate(5)
    assert values(log) == [0, 1, 2, 3, 4]


def test_a_closed_log_says_so_and_can_be_closed_again(log: Log) -> None:
    log.close()
    log.close()
    for attempt in (
        lambda: log.append(orders(5, 6)),
        lambda: log.append_group([orders(5, 6)], writer="w", sequence=1),
        log.sync,
        log.roll,
        log.info,
        log.verify,
        lambda: log.trim(1),
        lambda: log.head(9),
        lambda: list(log.read()),
        lambda: log.seek_key(1),
        lambda: log.last_commit("w"),
    ):
        with pytest.raises(Closed):
            attempt()


# --- finalizing


def test_the_first_of_size_entries_and_age_finalizes(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    policies = {
        "entries": Finalize(entries=4),
        "bytes": Finalize(bytes=1500),
        "age": Finalize(age_s=2.0),
    }
    rolled = {}
    for name, finalize in policies.items():
        with Log.open(tmp_path / name, ORDERS, Settings(finalize=finalize), clock=clock) as log:
            for at in range(12):
                log.append(orders(at, at + 1))
                clock.advance(0.5)
            rolled[name] = log.info().segments
            assert values(log) == list(range(12))
    assert rolled["entries"] == 3
    assert rolled["age"] == 3
    assert rolled["bytes"] > 3


def test_the_name_of_a_finalized_segment_says_its_indexes_and_keys(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, order_by="at") as log:
        log.append(orders_at([-5, 7]))
        log.head(9)
        log.roll()
    first, last = -5 + (1 << 63), 9 + (1 << 63)
    name = f"{0:020d}-{1:020d}.k{first:016x}-{last:016x}.seg"
    assert (tmp_path / "log" / name).exists()


def test_rolling_an_empty_segment_makes_no_empty_one(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders(0, 1))
        for _ in range(3):
            log.roll()
        assert log.info().segments == 2
        assert log.append(orders(1, 2)) == 1
        assert values(log) == [0, 1]


# --- buffers and durability


def test_buffers_are_written_together_when_full_and_by_sync(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(write_buffers=3)) as log:
        empty = written_bytes(log.path)
        for at in range(3):
            log.append(orders(at, at + 1))
        assert written_bytes(log.path) == empty
        log.append(orders(3, 4))
        three = written_bytes(log.path)
        assert three > empty
        log.sync()
        assert written_bytes(log.path) > three
        assert log.durable_index == 4
        assert values(log) == [0, 1, 2, 3]


def test_what_is_held_is_seen_by_every_way_of_reading_in_the_process(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(write_buffers=100), order_by="at") as log:
        log.append(orders(0, 5))
        assert log.seek_key(3) == 3
        log.append(orders(5, 7))
        assert values(log) == list(range(7))
        log.append(orders(7, 8))
        assert log.verify().entries == 8
        log.append(orders(8, 9))
        log.truncate(8)
        log.append(orders(20, 21))
    with Log.open(tmp_path / "log") as log:
        assert values(log) == [*range(8), 20]


def test_markers_do_not_pile_up_in_the_buffers(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(write_buffers=2), order_by="at") as log:
        empty = written_bytes(log.path)
        for at in range(100):
            log.head(at)
        assert written_bytes(log.path) >= empty + 90 * 64


def test_with_durability_os_sync_only_writes_and_force_goes_to_the_disk(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(durability="os", write_buffers=9)) as log:
        log.append(orders(0, 3))
        log.sync()
        assert log.durable_index == 0
        with Log.open(tmp_path / "log", read_only=True) as other:
            assert values(other) == [0, 1, 2]
        log.sync(force=True)
        assert log.durable_index == 3


def test_with_durability_interval_entries_become_durable_by_themselves(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS, Settings(durability="interval", sync_interval_ms=1)) as log:
        log.append(orders(0, 3))
        log.sync()
        for batch in log.read(stop=3, follow=True, durable=True):
            assert batch.next_index <= log.durable_index
        log.append(orders(3, 4))
    with Log.open(tmp_path / "log", read_only=True) as log:
        assert log.durable_index == 4


def test_a_large_group_and_many_held_batches_fit_a_container_or_roll(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW, RING) as log:
        for sequence, size in enumerate(range(380_000, 460_000, 8_000)):
            log.append(blob(size))
            log.append_group([blob(1)] * 200, writer="w", sequence=sequence)
            log.roll()
        assert log.verify().ok
        assert log.next_index == 10 * 201
    buffers = Settings(containers=RING.containers, write_buffers=5000)
    with Log.open(tmp_path / "held", RAW, buffers) as log:
        for _ in range(2500):
            log.append(blob(1))
        log.roll()
        assert log.verify().ok
        assert {(log.path / name).stat().st_size for name in segment_files(log.path)} == {512 * 1024}


def test_more_than_a_container_takes_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW, RING) as log:
        log.append(blob(100))
        before = all_bytes(log.path)
        with pytest.raises(TooLarge, match="container"):
            log.append(blob(512 * 1024))
        with pytest.raises(TooLarge, match="container"):
            log.append_group([blob(200_000)] * 3, writer="w", sequence=1)
        assert all_bytes(log.path) == before
        assert log.append(blob(100)) == 1


@pytest.mark.parametrize("write_buffers", [1, 4])
def test_what_is_told_as_it_is_written_is_what_readers_see(tmp_path: Path, write_buffers: int) -> None:
    """With several write buffers, too: nothing is held back then."""
    told: list[Batch | Head] = []
    settings = Settings(write_buffers=write_buffers, finalize=Finalize(entries=7))
    with Log.open(tmp_path / "log", ORDERS, settings, order_by="at") as log:
        log.tell(told.extend)
        log.append(orders_at([1, 2, 3]))
        log.append_group([orders_at([4]), orders_at([5, 6])], writer="w", sequence=1)
        log.head(8)
        log.append(pa.Table.from_batches([orders_at([8, 9]), orders_at([10])]))
        log.append_group([orders_at([99])], writer="w", sequence=1)  # repeated: nothing is written
        with Log.open(tmp_path / "log", read_only=True) as other:
            assert told == list(iter(other.cursor(0).next, None))
        log.truncate(6)
        del told[:]
        log.append(orders_at([20]))
        assert told == list(iter(log.cursor(6).next, None))[-1:]
