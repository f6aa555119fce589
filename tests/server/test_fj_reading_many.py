"""What GET does to values beside reading them, for one key and for many alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.journal import Journal, open_journal
from headrace.kernel.clock import ManualClock
from headrace.wire.fj import BUSY, DATA, RANGE, REGEX, UPDATE_TIMEOUT, WORKED_ON, Function

from .fj_asked import Asking

START_US = 1_700_000_000_000_000
MINUTE_US = 60_000_000


@pytest.fixture
def journal(place: Path) -> Iterator[Journal]:
    with open_journal(place / "j", clock=ManualClock(START_US)) as journal:
        for key in ("a", "b", "c"):
            journal.set(key, 1, ttl="1m")
        journal.link("b", "b2")
        yield journal


@pytest.fixture
def ask(journal: Journal) -> Asking:
    return Asking(journal)


def _busy(ask: Asking) -> list[bool]:
    return [bool(ask(Function.GET, key, DATA).flags & BUSY) for key in (b"a", b"b", b"b2", b"c")]


def _range(ask: Asking, flags: int, timeout: int | None = None) -> list[bytes]:
    reply = ask(Function.GET, b"a", DATA | RANGE | flags, timeout=timeout, count=0, upper=b"b2")
    return [pair.key for pair in reply.pairs or []]


def test_a_range_with_a_timeout_leases_its_values(ask: Asking) -> None:
    assert _range(ask, 0, START_US + MINUTE_US) == [b"a", b"b", b"b2"]
    assert _busy(ask) == [True, True, True, False]
    assert _range(ask, WORKED_ON, START_US + MINUTE_US) == []


def test_an_expression_with_a_timeout_leases_its_values(ask: Asking) -> None:
    ask(Function.GET, b"^c$", DATA | REGEX, timeout=START_US + MINUTE_US)
    assert _busy(ask) == [False, False, False, True]


def test_a_range_that_updates_the_timeout_moves_the_expiry_of_its_values(
    journal: Journal, ask: Asking
) -> None:
    later = START_US + 60 * MINUTE_US
    _range(ask, UPDATE_TIMEOUT, later)
    assert [value.expires_us for value in journal.range()] == [later, later, later, START_US + MINUTE_US]
    assert not any(_busy(ask))


def test_a_range_whose_values_are_to_end_at_once_is_read_a_last_time(journal: Journal, ask: Asking) -> None:
    assert _range(ask, UPDATE_TIMEOUT, START_US) == [b"a", b"b", b"b2"]
    assert [value.key for value in journal.range()] == ["c"]


def test_what_a_range_leased_is_leased_when_the_journal_is_opened_again(
    place: Path, journal: Journal, ask: Asking
) -> None:
    _range(ask, 0, START_US + MINUTE_US)
    journal.close()
    with open_journal(place / "j", clock=ManualClock(START_US)) as again:
        assert _busy(Asking(again)) == [True, True, True, False]
