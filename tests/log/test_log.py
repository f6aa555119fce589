"""The log against a plain Python list: whatever is done to both, they stay the same."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import Fenced, KeyOrder, Refused, Trimmed
from headrace.log import Containers, Finalize, Log, Settings

from .samples import ORDERS, orders_at


@dataclass
class Model:
    """What a log is, said with a list: its entries from index 0 on, and what was removed of them."""

    keys: list[int] = field(default_factory=list)
    heads: list[tuple[int, int]] = field(default_factory=list)
    """(next index, key) of each move of HEAD."""
    groups: list[tuple[int, int]] = field(default_factory=list)
    commits: list[tuple[str, int, int, int]] = field(default_factory=list)
    """(writer, sequence, first index, next index) of each group, in order."""
    base: int = 0

    @property
    def head(self) -> int:
        return max([key for _, key in self.heads] + self.keys[-1:], default=-(1 << 63))

    @property
    def last_commits(self) -> dict[str, list[int]]:
        return {writer: commit for writer, *commit in self.commits}


class LogMachine(RuleBasedStateMachine):
    """Keys are given as steps from HEAD, so that most appends are in order."""

    @initialize(
        containers=st.booleans(),
        write_buffers=st.sampled_from([1, 1, 3]),
        compression=st.sampled_from(["none", "lz4"]),
        finalize=st.builds(
            Finalize, bytes=st.sampled_from([2000, 1 << 20]), entries=st.sampled_from([7, 1000])
        ),
    )
    def open_it(self, containers: bool, write_buffers: int, compression: str, finalize: Finalize) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="headrace-"))
        self.clock = ManualClock(1_000_000)
        self.model = Model()
        wanted = Settings(
            durability="os",
            compression=compression,  # type: ignore[arg-type]
            finalize=finalize,
            containers=Containers(bytes=512 * 1024) if containers else None,
            write_buffers=write_buffers,
        )
        self.log = Log.open(self.directory / "log", ORDERS, wanted, order_by="at", clock=self.clock)

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            report = Log.open(self.directory / "log", read_only=True).verify()
            shutil.rmtree(self.directory)
            assert report.ok, report.damages

    def _keys(self, steps: list[int]) -> list[int]:
        keys, key = [], max(self.model.head, -1)
        for step in steps:
            key += step
            keys.append(key)
        return keys

    # --- writing

    @rule(steps=st.lists(st.integers(0, 3), min_size=1, max_size=6))
    def append(self, steps: list[int]) -> None:
        keys = self._keys(steps)
        assert self.log.append(orders_at(keys)) == len(self.model.keys)
        self.model.keys += keys

    @precondition(lambda self: self.model.keys or self.model.heads)
    @rule(below=st.integers(1, 5))
    def append_going_back(self, below: int) -> None:
        with pytest.raises(KeyOrder):
            self.log.append(orders_at([self.model.head - below]))

    @rule(
        parts=st.lists(st.lists(st.integers(0, 3), min_size=0, max_size=3), max_size=3),
        writer=st.sampled_from("ab"),
        sequence=st.integers(1, 6),
    )
    def append_group(self, parts: list[list[int]], writer: str, sequence: int) -> None:
        base = len(self.model.keys)
        keys = self._keys([step for part in parts for step in part])
        rest = iter(keys)
        batches = [orders_at([next(rest) for _ in part]) for part in parts]
        commit = self.log.append_group(batches, writer=writer, sequence=sequence, note=f"{writer}{sequence}")
        last = self.model.last_commits.get(writer)
        if last is not None and sequence <= last[0]:
            assert (commit.repeated, commit.base_index, commit.next_index) == (True, *last[1:])
            return
        assert (commit.repeated, commit.base_index, commit.next_index) == (False, base, base + len(keys))
        self.model.keys += keys
        self.model.groups.append((base, base + len(keys)))
        self.model.commits.append((writer, sequence, base, base + len(keys)))

    @rule(step=st.integers(0, 4))
    def head(self, step: int) -> None:
        key = max(self.model.head, -1) + step
        self.log.head(key)
        self.model.heads.append((len(self.model.keys), key))

    @rule(force=st.booleans())
    def sync(self, force: bool) -> None:
        self.log.sync(force=force)
        if force:
            assert self.log.durable_index == len(self.model.keys)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(seconds=st.floats(0.1, 5000))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(part=st.floats(0, 1))
    def trim(self, part: float) -> None:
        before = self.model.base + int(part * (len(self.model.keys) - self.model.base))
        self.log.trim(before)
        self.model.base = before

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        model = self.model
        index = model.base + int(part * (len(model.keys) - model.base))
        if index == len(model.keys):
            self.log.truncate(index)
            return
        if any(first < index < stop for first, stop in model.groups):
            with pytest.raises(Refused):
                self.log.truncate(index)
            return
        self.log.truncate(index)
        del model.keys[index:]
        # Markers and commits at the cut itself were written before the entry that is cut: they stay.
        model.heads = [head for head in model.heads if head[0] <= index]
        model.groups = [group for group in model.groups if group[1] <= index]
        model.commits = [commit for commit in model.commits if commit[3] <= index]

    @rule(take_over=st.booleans())
    def reopen(self, take_over: bool) -> None:
        old = self.log
        if not take_over:
            old.close()
        else:
            old.sync(force=True)
        self.log = Log.open(
            self.directory / "log", ORDERS, order_by="at", clock=self.clock, take_over=take_over
        )
        assert self.log.recovery.clean, self.log.recovery
        with contextlib.suppress(Fenced):  # a writer that lost its log may say so when it is closed
            old.close()

    # --- reading

    @rule(first=st.integers(0, 60), length=st.none() | st.integers(0, 40))
    def read(self, first: int, length: int | None) -> None:
        stop = None if length is None else first + length
        if 0 < first < self.model.base and length != 0:
            with pytest.raises(Trimmed):
                list(self.log.read(first, stop))
            return
        start = max(first, self.model.base)
        expected = list(enumerate(self.model.keys))[start : None if stop is None else max(stop, start)]
        got = []
        for batch in self.log.read(first, stop):
            assert batch.records.num_rows > 0
            keys = batch.records.column("at").to_pylist()
            assert batch.records.column("what").to_pylist() == [f"order {key}" for key in keys]
            got += enumerate(keys, batch.base_index)
        assert got == expected

    @rule(above=st.integers(-3, 80))
    def seek_key(self, above: int) -> None:
        kept = list(enumerate(self.model.keys))[self.model.base :]
        expected = next((index for index, key in kept if key >= above), len(self.model.keys))
        assert self.log.seek_key(above) == expected

    @rule()
    def read_in_another_place(self) -> None:
        self.log.sync()
        with Log.open(self.directory / "log", read_only=True) as other:
            got = [key for batch in other.read() for key in batch.records.column("at").to_pylist()]
            assert got == self.model.keys[self.model.base :]
            assert (other.first_index, other.next_index) == (self.model.base, len(self.model.keys))

    @invariant()
    def it_knows_how_far_it_reaches(self) -> None:
        if not hasattr(self, "log"):
            return
        info = self.log.info()
        assert (info.first_index, info.next_index) == (self.model.base, len(self.model.keys))
        assert info.durable_index <= info.next_index
        for writer in "ab":
            last = self.log.last_commit(writer)
            told = [last.sequence, last.base_index, last.next_index] if last else None
            assert told == self.model.last_commits.get(writer)


TestLogAgainstAList = LogMachine.TestCase
TestLogAgainstAList.settings = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],  # shrinking takes minutes: add it when one fails
)


@pytest.mark.parametrize("before", [-1, 3, "a", None, 1.5])
def test_a_log_is_trimmed_before_an_index_that_it_has(tmp_path: Path, before: Any) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        log.append(orders_at([1, 2]))
        with pytest.raises(Refused, match="from 0 to 2"):
            log.trim(before)


def test_settings_are_settings(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="Settings, not str"):
        Log.open(tmp_path / "log", ORDERS, "fsync")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
