"""Copies: the frames of another log, whatever the line between does to them."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernel.errors import BadFrame, Diverged, IsReplica, Trimmed
from headrace.log import Log, Retention, Settings, landing
from headrace.log.copy import LogCopy, release
from headrace.log.damage import DamagedEntries
from headrace.log.frame import Kind
from headrace.log.frame_stream import FrameParser, Sent
from headrace.log.repair import repair

from .copies import (
    GROWN,
    ORIGIN,
    SMALL,
    commits,
    deliver,
    in_pieces,
    is_beginning,
    live,
    past,
    rows,
    sent,
    source,
)
from .samples import active_file, flip, orders, values

CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))


def copied(log: Log, path: Path) -> None:
    """Bring a copy up to date over a line that does no harm."""
    copy = LogCopy.open(path, ORIGIN)
    try:
        assert deliver(copy, [b"".join(sent(log, copy.claim))]) is None
    finally:
        copy.close()


def test_a_copy_has_the_same_frames_and_everything_reads_it(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        live(log, Random(1), 60)
        copied(log, tmp_path / "copy")
        with Log.open(tmp_path / "copy", read_only=True) as copy:
            assert copy.verify().ok
            assert copy.meta.id == log.meta.id
            assert values(copy) == values(log)
            assert copy.seek_key(20) == log.seek_key(20)
            assert copy.settled == log.settled
        assert past(tmp_path / "copy") == past(tmp_path / "source")


def harm(pieces: list[bytes], how: str, chance: Random) -> bytes:
    """What a line may do to what is sent."""
    at = chance.randrange(len(pieces))
    match how:
        case "cut":
            raw = b"".join(pieces)
            return raw[: chance.randint(0, len(raw))]
        case "flip":
            raw = bytearray(b"".join(pieces))
            raw[chance.randrange(len(raw))] ^= 1 << chance.randrange(8)
            return bytes(raw)
        case "repeat":
            return b"".join([*pieces[: at + 1], *pieces[at:]])
        case "lose":
            return b"".join([*pieces[:at], *pieces[at + 1 :]])
        case "swap":
            other = chance.randrange(len(pieces))
            pieces[at], pieces[other] = pieces[other], pieces[at]
    return b"".join(pieces)


@settings(max_examples=2000 if CAMPAIGN else 40)
@given(
    st.integers(0, 1 << 32),
    st.lists(st.sampled_from(["cut", "flip", "repeat", "lose", "swap", "reopen", "more"]), max_size=8),
)
def test_whatever_a_line_does_a_copy_takes_nothing_wrong_and_ends_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, harms: list[str]
) -> None:
    chance, path = Random(seed), tmp_path_factory.mktemp("copies")
    with source(path / "source") as log:
        live(log, chance, 12)
        copy = LogCopy.open(path / "copy", ORIGIN)
        for how in [*harms, "nothing"]:
            if how == "more":
                live(log, chance, 5)
            if how == "reopen":
                copy.close()
                copy = LogCopy.open(path / "copy", ORIGIN)
            deliver(copy, in_pieces(harm(sent(log, copy.claim), how, chance), chance))
            if copy.claim is not None:
                assert is_beginning(past(path / "copy"), past(path / "source"))
        assert copy.next_index == log.next_index
        copy.close()
    assert past(path / "copy") == past(path / "source")
    assert commits(path / "copy") == commits(path / "source")


def test_a_frame_that_does_not_come_next_is_refused(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        for index in range(4):
            log.append(orders(index, index + 1))
        log.sync()
        start, *frames = frames_of(log)
    raw = bytearray(frames[1].raw)
    raw[-1] ^= 1
    damaged = Sent(frames[1].header, memoryview(raw))
    for number, wrong in enumerate(([frames[1]], [frames[0], frames[0]], [frames[0], damaged])):
        copy = LogCopy.open(tmp_path / str(number), ORIGIN)
        with pytest.raises(BadFrame):
            copy.land([start, *wrong])
        assert copy.next_index == len(wrong) - 1
        copy.close()


def frames_of(log: Log) -> list[Sent]:
    return [frame for portion in FrameParser().feed(b"".join(sent(log, None))) for frame in portion.frames]


def test_only_what_is_settled_is_sent(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        log.append(orders(0, 2))
        log.sync()
        log.append(orders(2, 4))
        log.head(50)
        copied(log, tmp_path / "copy")
        with Log.open(tmp_path / "copy", read_only=True) as copy:
            assert values(copy) == [0, 1]
        log.sync()
        copied(log, tmp_path / "copy")
        with Log.open(tmp_path / "copy", read_only=True) as copy:
            assert values(copy) == [0, 1, 2, 3]
            assert copy.settled == log.settled


def test_a_commit_without_entries_waits_for_something_that_is_settled(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        log.append(orders(0, 2))
        log.append_group([], writer="w", sequence=7)
        log.sync()
        assert [frame.header.kind for frame in frames_of(log)] == [Kind.START, Kind.BATCH]
        log.head(9)
        log.sync()
        kinds = [Kind.START, Kind.BATCH, Kind.COMMIT, Kind.HEAD]
        assert [frame.header.kind for frame in frames_of(log)] == kinds


def test_a_group_shows_as_a_whole_and_a_large_one_is_written_as_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landing, "_PORTION_BYTES", 1)
    with source(tmp_path / "source") as log:
        log.append(orders(0, 2))
        log.append_group([orders(n, n + 2) for n in range(2, 12, 2)], writer="w", sequence=1)
        log.sync()
        copy = LogCopy.open(tmp_path / "copy", ORIGIN)
        reader = None
        for cut in range(4, 20):
            assert deliver(copy, sent(log, copy.claim, 1)[:cut]) is None
            reader = reader or Log.open(tmp_path / "copy", read_only=True)
            seen = values(reader)
            assert seen in ([0, 1], list(range(12)))
            if len(seen) == 12:
                break
        deliver(copy, sent(log, copy.claim))
        assert reader is not None
        assert values(reader) == list(range(12))
        assert reader.verify().ok
        reader.close()
        copy.close()
        assert past(tmp_path / "copy") == past(tmp_path / "source")


def test_a_copy_of_a_copy_is_the_same(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        live(log, Random(3), 30)
        copied(log, tmp_path / "second")
        with Log.open(tmp_path / "second", read_only=True) as second:
            copied(second, tmp_path / "third")
            live(log, Random(4), 30)
            copied(log, tmp_path / "second")
            copied(second, tmp_path / "third")
            copied(log, tmp_path / "third")  # it may go on from either
    assert past(tmp_path / "third") == past(tmp_path / "source")


def test_the_schema_grows_with_that_of_the_source(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        log.append(orders(0, 3))
        log.sync()
        copied(log, tmp_path / "copy")
        log.evolve(GROWN)
        copied(log, tmp_path / "copy")
        log.append(rows(log, 3, 5))
        log.sync()
        copied(log, tmp_path / "copy")
        with Log.open(tmp_path / "copy", read_only=True) as copy:
            assert copy.schema == GROWN
            assert schemas(copy) == schemas(log)


def schemas(log: Log) -> list[pa.Schema]:
    return [batch.records.schema for batch in log.read()]


def test_nobody_else_writes_a_copy_until_it_is_released(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        live(log, Random(5), 20)
        copied(log, tmp_path / "copy")
        with pytest.raises(IsReplica, match="unfollow"):
            Log.open(tmp_path / "copy")
        assert release(tmp_path / "copy") == ORIGIN
        with Log.open(tmp_path / "copy") as released:
            released.append(rows(released, released.next_index, released.next_index + 2))
            released.sync()
            assert released.verify().ok
            assert released.commits() == log.commits()
        live(log, Random(6), 3)
        with Log.open(tmp_path / "copy", read_only=True) as released, pytest.raises(Diverged):
            copied(log, tmp_path / "other")
            other = LogCopy.open(tmp_path / "other", ORIGIN)
            try:
                sent(released, other.claim)
            finally:
                other.close()


def test_a_source_that_was_cut_behind_the_copy_has_diverged(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        log.append(orders(0, 10))
        log.append(orders(10, 20))
        log.sync()
        copied(log, tmp_path / "copy")
        copy = LogCopy.open(tmp_path / "copy", ORIGIN)
        log.truncate(15)
        for stop in (15, 20, 40):
            if stop > log.next_index:
                log.append(orders(log.next_index, stop))
                log.sync()
            with pytest.raises(Diverged, match="was cut"):
                sent(log, copy.claim)
        copy.close()


def test_a_cut_that_the_copy_has_not_reached_is_no_matter(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        log.append(orders(0, 10))
        log.sync()
        copied(log, tmp_path / "copy")
        log.append(orders(10, 20))
        log.truncate(10)
        log.append(orders(30, 40))
        log.sync()
        copied(log, tmp_path / "copy")
    assert past(tmp_path / "copy") == past(tmp_path / "source")


def test_a_source_that_was_replaced_has_diverged(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log, source(tmp_path / "another") as another:
        for each in (log, another):
            each.append(orders(0, 10))
            each.sync()
        copied(log, tmp_path / "copy")
        copy = LogCopy.open(tmp_path / "copy", ORIGIN)
        with pytest.raises(Diverged, match="replaced"):
            sent(another, copy.claim)
        assert isinstance(deliver(copy, sent(another, None)), Diverged)
        copy.close()


def test_what_the_source_has_trimmed_cannot_be_copied(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        log.append(orders(0, 10))
        log.sync()
        copied(log, tmp_path / "copy")
        for first in range(10, 100, 10):
            log.append(orders(first, first + 10))
        log.trim(50)
        log.sync()
        copy = LogCopy.open(tmp_path / "copy", ORIGIN)
        with pytest.raises(Trimmed, match="50"):
            sent(log, copy.claim)
        copy.close()
        copied(log, tmp_path / "new")
        with Log.open(tmp_path / "new", read_only=True) as new:
            assert new.first_index == 50
            assert values(new) == list(range(50, 100))
            assert new.verify().ok


def test_a_copy_keeps_by_itself_what_it_keeps(tmp_path: Path) -> None:
    keeping = Settings(finalize=SMALL.finalize, retention=Retention(entries=30))
    with source(tmp_path / "source", keeping) as log:
        for first in range(0, 100, 10):
            log.append(orders(first, first + 10))
            log.sync()
            copied(log, tmp_path / "copy")
        with Log.open(tmp_path / "copy", read_only=True) as copy:
            assert copy.first_index > 0
            assert values(copy) == list(range(copy.first_index, 100))


def test_damage_is_never_passed_on_and_a_repaired_source_goes_on_with_a_gap(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        for first in range(0, 100, 10):
            log.append(orders(first, first + 10))
        log.sync()
    damaged = sorted((tmp_path / "source").glob("*.seg"))[1]
    flip(damaged, damaged.read_bytes().index(b"order 45"))
    copy = LogCopy.open(tmp_path / "copy", ORIGIN)
    with (
        Log.open(tmp_path / "source", read_only=True) as log,
        pytest.raises(DamagedEntries, match="40 to 49"),
    ):
        sent(log, copy.claim)
    repair(tmp_path / "source")
    with Log.open(tmp_path / "source", read_only=True) as log:
        assert deliver(copy, sent(log, copy.claim)) is None
    copy.close()
    with Log.open(tmp_path / "copy", read_only=True) as read:
        assert values(read) == [*range(40), *range(50, 100)]
    assert past(tmp_path / "copy") == past(tmp_path / "source")


def test_a_copy_that_has_what_its_source_lost_goes_on(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        for first in range(0, 60, 10):
            log.append(orders(first, first + 10))
        log.sync()
        copied(log, tmp_path / "copy")
    damaged = active_file(tmp_path / "source")
    flip(damaged, damaged.read_bytes().index(b"order 55"))
    repair(tmp_path / "source")
    with Log.open(tmp_path / "source") as log:
        log.append(orders(60, 70))
        log.sync()
        copied(log, tmp_path / "copy")
    with Log.open(tmp_path / "copy", read_only=True) as read:
        assert values(read) == list(range(70))


def test_what_a_copy_has_lost_from_its_end_comes_again(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        live(log, Random(8), 30)
        copied(log, tmp_path / "copy")
        active = active_file(tmp_path / "copy")
        active.write_bytes(active.read_bytes()[:-64])
        copied(log, tmp_path / "copy")
    assert past(tmp_path / "copy") == past(tmp_path / "source")


def test_a_source_that_has_trimmed_a_part_of_what_the_copy_got_last_is_no_matter(tmp_path: Path) -> None:
    with source(tmp_path / "source") as log:
        log.append(orders(0, 10))
        log.sync()
        copied(log, tmp_path / "copy")
        log.trim(5)
        log.append(orders(10, 12))
        log.sync()
        copied(log, tmp_path / "copy")
        log.trim(12)
        copied(log, tmp_path / "copy")
        log.append(orders(12, 13))
        log.sync()
        copied(log, tmp_path / "copy")
    assert past(tmp_path / "copy") == past(tmp_path / "source")
