"""What is done in these tests: random steps on a log, and the `Model` of what it should hold."""

from __future__ import annotations

import os
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace.kernel.errors import LogFull, TooLarge
from headrace.log import Containers, Damage, Finalize, Log, Settings
from headrace.log.disk import Disk

from .entries import SCHEMA, Entry, batch_of

CAMPAIGN = os.environ.get("HEADRACE_CAMPAIGN") == "1"
SCALE = float(os.environ.get("HEADRACE_EXAMPLES", "50" if CAMPAIGN else "1"))
PHASES = [Phase.generate] if os.environ.get("HEADRACE_SHRINK") == "0" else [Phase.generate, Phase.shrink]
"""Making a failing example small takes minutes; HEADRACE_SHRINK=0 only finds it."""


def examples(count: int) -> hypothesis_settings:
    """So many examples in a test run (always the same), fifty times as many in a campaign. No time limit."""
    return hypothesis_settings(
        max_examples=int(count * SCALE),
        deadline=None,
        derandomize=not CAMPAIGN,
        database=None,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )


# --- what may be done to a log


@dataclass(frozen=True, slots=True)
class Append:
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`streamed`: its batches are made as they are written, one after the other."""

    batches: tuple[tuple[int, ...], ...]
    streamed: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    by: int


@dataclass(frozen=True, slots=True)
class Sync: ...


@dataclass(frozen=True, slots=True)
class Roll: ...


@dataclass(frozen=True, slots=True)
class Trim:
    part: float


@dataclass(frozen=True, slots=True)
class Truncate:
    part: float


@dataclass(frozen=True, slots=True)
class Reopen: ...


Step = Append | Group | Head | Sync | Roll | Trim | Truncate | Reopen

_SIZES = st.sampled_from([0, 1, 7, 40, 100, 300, 1000])
_SOME = st.lists(_SIZES, min_size=1, max_size=4).map(tuple)
_LARGE = st.sampled_from([(35_000,), (20_000, 20_000), (70_000,)])
"""Enough for a body that is stored by columns."""
_PART = st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0])

STEPS = st.lists(
    st.one_of(
        _SOME.map(Append),
        _SOME.map(Append),
        _SOME.map(Append),
        _LARGE.map(Append),
        st.builds(Group, st.lists(_SOME | _LARGE, min_size=2, max_size=3).map(tuple), st.booleans()),
        st.integers(0, 3).map(Head),
        st.just(Sync()),
        st.just(Sync()),
        st.just(Roll()),
        _PART.map(Trim),
        _PART.map(Truncate),
        st.just(Reopen()),
    ),
    min_size=1,
    max_size=14,
)


@dataclass(frozen=True, slots=True)
class Shape:
    """How a log is made."""

    settings: Settings
    order_by: str | None


SHAPES = st.builds(
    Shape,
    st.builds(
        Settings,
        compression=st.sampled_from(["none", "lz4", "zstd"]),
        finalize=st.sampled_from(
            [Finalize(), Finalize(entries=3), Finalize(entries=10), Finalize(bytes=5000)]
        ),
        containers=st.sampled_from([None, None, Containers(bytes=512 * 1024)]),
        write_buffers=st.sampled_from([1, 1, 3]),
    ),
    st.sampled_from([None, "key"]),
)


@dataclass(slots=True)
class Model:
    """What the log holds, as far as its writer was told."""

    entries: dict[int, Entry] = field(default_factory=dict)
    """Trimmed ones too: they may be read until their segment goes, if nothing tells the reader better."""
    next_index: int = 0
    durable: int = 0
    """Entries below it were acknowledged as safe."""
    base: int = 0
    key: int = 0
    groups: tuple[tuple[int, int], ...] = ()
    generation: int = 0
    told: tuple[Damage, ...] = ()
    """What earlier lives were told of: only `repair` removes damage, so it is told again."""

    def snapshot(self) -> Model:
        taken = copy(self)
        taken.entries = dict(self.entries)
        return taken

    @property
    def required(self) -> dict[int, Entry]:
        """What must be there, whatever happens."""
        return {i: entry for i, entry in self.entries.items() if self.base <= i < self.durable}

    def made(self, sizes: tuple[int, ...], start: int, *, move_key: int = 1) -> list[Entry]:
        self.generation += 1
        made = []
        for at, size in enumerate(sizes):
            self.key += move_key
            made.append(Entry(start + at, self.generation, self.key, size))
        return made


class Writer:
    """A log being written and the model of it; `model` is always what the log has promised so far."""

    def __init__(
        self, path: Path, shape: Shape, disk: Disk | None = None, model: Model | None = None
    ) -> None:
        self.path = path
        self.shape = shape
        self.disk = disk
        self.model = model or Model()
        self.log = self._open()

    def _open(self) -> Log:
        shape = self.shape
        return Log.open(self.path, SCHEMA, shape.settings, order_by=shape.order_by, disk=self.disk)

    def do(self, step: Step) -> None:
        """Do one step and bring the model up to date."""
        try:
            self._do(step)
        except (TooLarge, LogFull):  # more than a container takes: refused, nothing changed
            assert self.shape.settings.containers
        self.model.durable = max(self.model.base, self.log.durable_index)

    def _do(self, step: Step) -> None:
        log, model = self.log, self.model
        match step:
            case Append(sizes):
                made = model.made(sizes, model.next_index)
                base = log.append(batch_of(made))
                assert base == model.next_index
                self._appended(made)
            case Group(batches, streamed):
                groups, start = [], model.next_index
                for sizes in batches:
                    groups.append(model.made(sizes, start))
                    start += len(sizes)
                parts = [batch_of(made) for made in groups]
                given = iter(parts) if streamed else parts
                log.append_group(given, writer="tester", sequence=model.generation, note="a note")
                model.groups = (*model.groups, (model.next_index, start))
                self._appended([entry for made in groups for entry in made])
            case Head(by):
                model.key += by
                if self.shape.order_by:
                    log.head(model.key)
            case Sync():
                log.sync()
            case Roll():
                log.roll()
            case Trim(part):
                before = model.base + int((model.next_index - model.base) * part)
                log.trim(before)
                model.base = max(model.base, before)
            case Truncate(part):
                self._truncate(model.base + int((model.next_index - model.base) * part))
            case Reopen():
                log.close()
                self.log = self._open()
                assert self._nothing_new(), self.log.recovery

    def _nothing_new(self) -> bool:
        recovery, told = self.log.recovery, self.model.told
        spans = [(damage.first_lost, damage.stop_lost) for damage in told]
        again = all((damage.first_lost, damage.stop_lost) in spans for damage in recovery.damages)
        return again and not recovery.cut_bytes

    def _appended(self, made: list[Entry]) -> None:
        self.model.entries |= {entry.index: entry for entry in made}
        self.model.next_index = made[-1].index + 1

    def _truncate(self, index: int) -> None:
        model = self.model
        for base, stop in model.groups:
            if base < index < stop:
                index = stop  # only a whole group can be cut off
        if index >= model.next_index:
            return
        self.log.truncate(index)
        model.entries = {i: entry for i, entry in model.entries.items() if i < index}
        model.groups = tuple(group for group in model.groups if group[1] <= index)
        model.next_index = index
