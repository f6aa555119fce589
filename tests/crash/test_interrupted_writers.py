"""Ctrl-C at any line of publishing, by a program that catches it and goes on with the same publisher.

Entries stay whole: no value of one stands beside those of another. Each is there once, where `publish` said.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import headrace as hr
from headrace.kernel.errors import HeadraceError
from headrace.log.batcher import FlushPolicy
from headrace.log.queue import Writer, reader, writer
from headrace.stream.publisher import Publisher

from .interrupts import Interrupt

_WHERE = ("<publish", "/headrace/log/", "/headrace/stream/")


@dataclass(frozen=True, slots=True)
class Reading:
    key: int
    name: str
    value: float

    @classmethod
    def of(cls, number: int) -> Reading:
        return cls(number, f"n{number}", number / 2)


_ACTS: dict[str, Callable[[Publisher], object]] = {
    "publish": lambda publisher: publisher.publish(Reading.of(10)),
    "flush": lambda publisher: (publisher.publish(Reading.of(10)), publisher.flush()),
}


@pytest.mark.parametrize("unique_by", [None, "name"])
@pytest.mark.parametrize("act", _ACTS)
def test_entries_stay_whole_and_in_their_places(place: Path, act: str, unique_by: str | None) -> None:
    for at in range(0, 10_000, 1 if act == "publish" else 5):
        path = place / str(at)
        with hr.open(path) as store:
            stream = store.stream("readings", Reading, order_by="key", strict=True, unique_by=unique_by)
            publisher = stream.publisher(background=False)
            safe = {publisher.publish(Reading.of(number)): number for number in (1, 2)}
            publisher.flush()
            interrupt = Interrupt(at, _WHERE)
            interrupt.strike(lambda: _ACTS[act](publisher))  # noqa: B023 - it is called here and now
            safe |= _published_after(publisher)
            with contextlib.suppress(HeadraceError):
                publisher.close()
            found = {entry.index: entry.value for entry in stream.listen()}
        assert all(value == Reading.of(value.key) for value in found.values()), interrupt.where
        assert {index: found[index].key for index in safe} == safe, interrupt.where
        assert [value.key for value in found.values() if value.key != 10] == list(safe.values())
        shutil.rmtree(path)
        if not interrupt.where:
            assert at > 5
            return
    raise AssertionError("it never ended")


def _published_after(publisher: Publisher) -> dict[int, int]:
    """By index: what was published and flushed after the interrupt, if anything could be."""
    safe = {}
    for number in (20, 30):
        try:
            index = publisher.publish(Reading.of(number))
            publisher.flush()
        except HeadraceError:
            break
        safe[index] = number
    return safe


def test_addresses_of_a_queue_stay_those_of_its_records(place: Path) -> None:
    for at in range(10_000):
        path = place / str(at)
        out = writer(path, flush=FlushPolicy(seconds=3600))
        safe = {out.write(b"1"): b"1", out.write(b"2"): b"2"}
        interrupt = Interrupt(at, _WHERE)
        interrupt.strike(lambda: _write_one(out))  # noqa: B023 - it is called here and now
        safe |= {out.write(data): data for data in (b"3", b"44", b"5")}
        out.close()
        with reader(path) as records:
            found = dict(enumerate(records))
        assert {address: found[address] for address in safe} == safe, interrupt.where
        shutil.rmtree(path)
        if not interrupt.where:
            assert at > 5
            return
    raise AssertionError("it never ended")


def _write_one(out: Writer) -> None:
    out.write(b"x")
    out.write(b"xx")
