"""A series does what its events do one after the other, in memory and on the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.journal import JournalSettings, batch_operations, checks, open_journal
from headrace.journal.batch_verbs import _domains
from headrace.journal.errors import BadRequest
from headrace.journal.events import Event, Kind, from_batch
from headrace.journal.job_operations import domain_of
from headrace.journal.series import Series, batches_of, flat
from headrace.journal.state import State
from headrace.journal.sweep import job_series
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import TooLarge

NOW = 1_000_000
few = st.integers(0, 2)
steps = st.lists(
    st.tuples(st.integers(1, 6), few | st.lists(few, min_size=6, max_size=6), few, st.booleans(), few),
    min_size=1,
    max_size=5,
)


def put(first: int, count: int, domains: Any, later: int, values: bool) -> Series:
    """New jobs: in one domain or several, due by now or later, without values or with small and large."""
    ids = list(range(first, first + count))
    given = [f"d{number}" for number in domains[:count]] if isinstance(domains, list) else f"d{domains}"
    columns: Any = {
        "domain": given,
        "priority": [number % 2 for number in ids] if isinstance(domains, list) else 7,
        "due": NOW + 10 * later,
        "stamp": NOW,
        "attempts": 0,
        "type": 1,
        "value": [b"v" * (150 * (number % 3)) for number in ids] if values else b"",
    }
    keys: Any = [b"r%d" % number for number in ids]
    return Series(Event(Kind.PUT, NOW, ids, keys, **columns), count)  # type: ignore[arg-type]


def said(state: State) -> Any:
    """Everything that can be known of the jobs."""
    jobs, residents = state.jobs, state.residents
    tables = [jobs.pending, jobs.leased, jobs.worked_on, jobs.dead]
    rows = [{key: msgspec.structs.astuple(row) for key, row in table.items()} for table in tables]  # type: ignore[attr-defined]
    return rows, jobs.depth, jobs.finished, residents.bytes, residents.live_bytes, jobs.schedule.soonest


def order(state: State, now: int) -> list[int]:
    """In which the schedule gives out what is ready, and whose lease ends."""
    ended = sorted(row.id for row in state.jobs.schedule.due(now))
    while (row := state.jobs.schedule.first_of_any()) is not None:
        ended.append(row.id)
        state.apply(Event(Kind.DROP, now, row.id, row.resource), row.id)
    return ended


@given(steps)
@settings(deadline=None)
def test_a_series_folds_to_what_its_events_fold_to(steps: list[tuple[int, Any, int, bool, int]]) -> None:
    whole, singly = State(JournalSettings(), NOW), State(JournalSettings(), NOW)
    place = 1

    def both(each: Series) -> None:
        nonlocal place
        whole.jobs.fold_series(each, place)
        for number, event in enumerate(each.events()):
            singly.apply(Event._make(event), place + number)
        place += each.count
        assert said(whole) == said(singly)

    for count, domains, later, values, take in steps:
        both(put(place, count, domains, later, values))
        rows = whole.jobs.schedule.front("d0", 1 + take)
        if rows:
            ids, keys = [row.id for row in rows], [row.resource for row in rows]
            attempts = [row.attempts + 1 for row in rows]
            leased: Any = Event(Kind.TAKE, NOW, ids, keys, until=NOW + 30, attempts=attempts)  # type: ignore[arg-type]
            both(Series(leased, len(rows)))
            if take:
                again = ("d0", 7, NOW, None, None, NOW, 0, 1, b"")  # one is asked for while it is worked on
                for state in (whole, singly):
                    state.apply(Event(Kind.PUT, NOW, place, keys[0], None, *again), place)
                place += 1
                both(Series(Event(Kind.DONE, NOW, ids, keys), len(rows)))  # type: ignore[arg-type]
        if pending := list(whole.jobs.pending.values())[take:]:
            both(job_series(pending, NOW))  # as a sweep says them again
    for now in (NOW, NOW + 40):
        assert order(whole, now) == order(singly, now)


many = st.builds(
    put, st.integers(1, 9), st.integers(1, 6), few | st.lists(few, min_size=6, max_size=6), few, st.booleans()
)
single = st.tuples(st.just(6), few, few, st.binary(max_size=3)).map(lambda said: Event(*said))


@given(st.lists(many | single, max_size=6))
@settings(deadline=None)
def test_queued_events_and_series_are_one_batch_in_their_order(queued: list[Event | Series]) -> None:
    events = [Event._make(event) for event in flat(queued)]
    found = [Event._make(row) for batch in batches_of(queued) for row in _rows(batch)]
    assert found == events
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(flat(queued)), type=list[Event]) == events


def _rows(batch: Any) -> Any:
    assert batch.validate(full=True) is None
    return from_batch(batch)


def test_events_that_are_large_together_are_batches_of_their_own() -> None:
    three = Series(Event(Kind.DONE, NOW, [1, 2, 3], [b"a", b"b", b"cc"]), 3)  # type: ignore[arg-type]
    one = Event(Kind.DONE, NOW, 4, b"dddd", value=b"v")
    assert three.bytes == 4
    assert [batch.num_rows for batch in batches_of([three, one, one, three])] == [3, 2, 3]
    assert [batch.num_rows for batch in batches_of([three, one, one, three], 10)] == [3, 2, 3]
    assert [batch.num_rows for batch in batches_of([three, one, one, three], 9)] == [3, 1, 1, 3]


def test_a_batch_is_a_series_unless_somebody_has_asked_for_one_of_them(place: Path) -> None:
    with open_journal(place / "journal", clock=ManualClock()) as journal:
        queued = journal.engine._ledger._unpoured
        first = journal.put_batch([f"r{n}" for n in range(10)], once=("w", 1))
        assert [type(each) for each in queued] == [Event, Series]
        assert journal.put_batch(["r9", "s1", "s2", "s3", "s3"])[0] == first[9]
        assert [type(each) for each in queued] == [Event, Series] + [Event] * 5
        taken = journal.next_batch(20, "")
        assert taken.num_rows == 13
        assert journal.done_batch([*taken["id"].to_pylist(), 999, first[0]]) == [999, first[0]]
        assert journal.stats().done == 13
    with open_journal(place / "journal") as journal:
        assert not list(journal.jobs())


@pytest.mark.parametrize("large", ["SERIES_BYTES", "SERIES_EVENTS"])
def test_what_is_too_large_for_a_series_is_put_in_parts(
    place: Path, large: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_operations, large, 5)
    names = [f"https://example.com/{n}" for n in range(12)]
    with open_journal(place / "journal") as journal:
        ids = journal.put_batch(names, values=[b"%d" % n for n in range(12)])
        taken = journal.next_batch(12, "example.com")
        assert taken["id"].to_pylist() == ids
        assert taken["value"].to_pylist() == [b"%d" % n for n in range(12)]
        assert journal.done_batch(taken["id"].slice(3)) == []
    with open_journal(place / "journal") as journal:
        assert [job.resource for job in journal.jobs()] == names[:3]


def test_payloads_that_are_on_the_disk_only_are_read_when_their_turn_comes(place: Path) -> None:
    settings = JournalSettings(memory_bytes=3000)
    values = [bytes([n]) * 1000 for n in range(10)]
    with open_journal(place / "journal", settings) as journal:
        journal.put_batch([f"r{n}" for n in range(10)], values=values)
        journal.engine.pour()
        journal.engine._care()
        assert journal.stats().evicted
        assert journal.next_batch(10, "")["value"].to_pylist() == values


@given(
    st.lists(
        st.sampled_from(["https://a.org/x", "https://a.org/y", "https://a.org", "a:/b", "a://c/d", "[", ""])
    )
)
def test_the_domains_of_many_are_those_of_each(names: list[str]) -> None:
    for beginning in ("", "https://a.org/", "https://[::1]/", "x:/", "://h/"):
        many = [beginning + name for name in names]
        found = _domains(many, None)
        assert (found if isinstance(found, list) else [found] * len(many)) == [
            domain_of(name) for name in many
        ]


def test_of_many_resources_the_one_that_is_wrong_is_named(place: Path) -> None:
    with open_journal(place / "journal") as journal:
        for wrong in ("", 5, "\ud800"):
            with pytest.raises(BadRequest):
                journal.put_batch(["right", wrong])  # type: ignore[list-item]
        with pytest.raises(TooLarge):
            journal.put_batch(["right", "x" * 65_536])
        odd = checks.text(b"\xff")
        journal.put_batch(["right", odd])  # bytes that are no UTF-8 are kept
        assert {job.resource for job in journal.jobs()} == {"right", odd}
        assert journal.next_batch(2)["resource"].to_pylist() == ["right", "\ufffd"]
