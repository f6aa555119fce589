"""Ctrl-C at any line of a change: what is acknowledged afterwards is safe, and nothing is there twice.

A program may catch the interrupt and go on. Then the log goes on, or refuses until it is opened again.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.kernel.errors import HeadraceError
from headrace.log import Containers, Finalize, Log, Settings

from .entries import SCHEMA, Entry, batch_of
from .interrupts import Interrupt
from .judge import look
from .scenes import append, as_dict, entries

_STEP = 3
"""Every third line is struck: the places that matter are longer than that, and there are thousands."""


def _group(log: Log) -> None:
    at = log.next_index
    batches = [batch_of(entries(at, 4, 2)), batch_of(entries(at + 4, 4, 2))]
    log.append_group(batches, writer="w", sequence=1)


def _large_group(log: Log) -> None:
    at = log.next_index
    batches = (batch_of(entries(at + 4 * number, 4, 2)) for number in range(2))
    log.append_group(batches, writer="w", sequence=1)


def _held(log: Log) -> None:
    append(log, 4, 2)
    append(log, 4, 2)
    log.sync()


_RING = Settings(containers=Containers(bytes=1 << 16, initial=3))
_CHANGES: dict[str, tuple[Settings, Callable[[Log], object]]] = {
    "append": (Settings(), lambda log: append(log, 4, 2)),
    "sync": (Settings(), lambda log: (append(log, 4, 2), log.sync())),
    "held": (Settings(write_buffers=3), _held),
    "group": (Settings(), _group),
    "large group": (Settings(), _large_group),
    "roll": (Settings(), Log.roll),
    "roll in a ring": (_RING, Log.roll),
    "roll by itself": (Settings(finalize=Finalize(entries=6)), lambda log: append(log, 4, 2)),
    "trim": (Settings(finalize=Finalize(entries=2)), lambda log: log.trim(4)),
    "truncate": (Settings(), lambda log: log.truncate(4)),
    "evolve": (Settings(), lambda log: log.evolve(SCHEMA, {"about": "it"})),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_after_an_interrupt_at_any_line_what_is_acknowledged_is_safe(place: Path, change: str) -> None:
    settings, act = _CHANGES[change]
    for at in range(0, 10_000, _STEP):
        path = place / str(at)
        log = Log.open(path, SCHEMA, settings)
        before = append(log, 3) + append(log, 3)
        log.sync()
        interrupt = Interrupt(at, ("/headrace/log/",))
        interrupt.strike(lambda: act(log))  # noqa: B023 - it is called here and now
        after = _acknowledged_after(log)
        _let_go(log)
        _check(path, before, after, interrupt.where, cut=change in ("trim", "truncate"))
        shutil.rmtree(path)
        if not interrupt.where:
            assert at > 50
            return
    raise AssertionError("it never ended")


def _acknowledged_after(log: Log) -> list[Entry]:
    """What the program is told to be safe after the interrupt."""
    safe: list[Entry] = []
    for generation in (3, 4, 5):
        try:
            made = entries(log.next_index, 2, generation)
            assert log.append(batch_of(made)) == made[0].index
            log.sync()
        except HeadraceError:
            break
        safe += made
    return safe


def _let_go(log: Log) -> None:
    with contextlib.suppress(HeadraceError):
        log.close()


def _check(path: Path, before: list[Entry], after: list[Entry], where: str, *, cut: bool) -> None:
    with Log.open(path) as log:
        assert log.recovery.damages == (), where
    seen, report = look(path)
    assert report.ok, where
    for index, entry in as_dict(before).items():
        assert seen.entries.get(index) == entry or cut, f"{index} is lost after {where}"
    for index, entry in as_dict(after).items():
        assert seen.entries.get(index) == entry, f"{index} is lost after {where}"
    others = [entry for entry in seen.entries.values() if entry.generation == 2]
    assert len(others) in (0, 4, 8), where
