"""The state of a log is a fold, and a start frame carries it over."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import Damaged
from headrace.log.disk import Disk
from headrace.log.frame import Header, Kind
from headrace.log.meta import Meta
from headrace.log.start import encode_start, read_start
from headrace.log.state import Commit, LogState, decode_commit, encode_commit
from headrace.log.view import View

META = Meta("00112233445566778899aabbccddeeff", 1, pa.schema([("at", pa.int64())]))
commits = st.builds(
    Commit,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 62),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)


@given(commits)
def test_a_commit_comes_back_as_it_was(commit: Commit) -> None:
    assert decode_commit(encode_commit(commit) + bytes(13)) == commit


def test_each_kind_of_frame_moves_its_part_of_the_state() -> None:
    state = LogState()
    state.apply(Header(Kind.BATCH, 0, 5, 100, 140, epoch=1))
    assert (state.next_index, state.head_key, state.last_key) == (5, 140, 140)
    state.apply(Header(Kind.HEAD, 5, 0, 150, 150, epoch=1))
    assert (state.next_index, state.head_key, state.last_key) == (5, 150, 140)
    state.apply(Header(Kind.BASE, 5, 0, 3, 3, epoch=2))
    assert (state.next_index, state.base_index, state.epoch) == (5, 3, 2)
    state.apply(Header(Kind.GAP, 5, 0, 5, 9, epoch=2))
    assert state.next_index == 9
    commit = Commit("w", 4, 0, 5)
    state.apply(Header(Kind.COMMIT, 9, epoch=2), encode_commit(commit))
    assert state.commits == {"w": commit}


def test_nothing_goes_back() -> None:
    state = LogState(next_index=5, head_key=100, base_index=3, epoch=7)
    state.apply(Header(Kind.HEAD, 5, 0, 50, 50, epoch=2))
    state.apply(Header(Kind.BASE, 5, 0, 1, 1, epoch=2))
    assert (state.head_key, state.base_index, state.epoch) == (100, 3, 7)


@given(
    st.integers(0, 1 << 62),
    st.integers(0, (1 << 64) - 1),
    st.none() | st.integers(0, (1 << 64) - 1),
    st.integers(0, 1 << 62),
    st.lists(commits, max_size=5, unique_by=lambda commit: commit.writer),
)
def test_what_a_start_carries_over_comes_back(
    next_index: int, head: int, last: int | None, base: int, given_commits: list[Commit]
) -> None:
    state = LogState(next_index, head, last, base, 4, {commit.writer: commit for commit in given_commits})
    assert LogState.from_carried(state.carried(), next_index, 4) == state


def view_of(path: Path, content: bytes) -> View:
    path.write_bytes(content)
    return View(Disk().open(path), salt=0, finalized=False, copying=True)


def test_a_start_frame_tells_its_log_and_the_state_before_it(tmp_path: Path) -> None:
    state = LogState(7, 50, 40, 2, 3, {"w": Commit("w", 1, 0, 7)})
    start = read_start(view_of(tmp_path / "segment", encode_start(META, state, 99)), "segment")
    assert start.meta == META
    assert start.state == state
    assert (start.header.base_index, start.header.epoch, start.header.time_us) == (7, 3, 99)


def test_a_start_with_any_damaged_byte_is_damaged(tmp_path: Path) -> None:
    raw = encode_start(META, LogState(), 0)
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= 0x20
        with pytest.raises(Damaged, match="segment"):
            read_start(view_of(tmp_path / "segment", bytes(damaged)), "segment")
    for size in (0, 63, 64, len(raw) - 1):
        with pytest.raises(Damaged):
            read_start(view_of(tmp_path / "segment", raw[:size]), "segment")
