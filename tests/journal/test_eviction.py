"""Values beyond the limit leave memory and are read back; those in memory only are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.crash.workload import examples

from headrace.journal import Journal, JournalSettings, MemoryFull, open_journal, sweep
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import Damaged

KIB = 1024


def settle_down(journal: Journal) -> None:
    """What the background does."""
    journal.engine._ledger.pour()
    journal.engine._care()


def value(number: int) -> bytes:
    return f"{number}:".encode().ljust(KIB, b"v")


def test_memory_stays_within_its_limit_and_every_value_can_be_read(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(memory_bytes=20 * KIB, durability="os")) as journal:
        for number in range(100):
            journal.set(f"k{number:03}", value(number))
            journal.put(f"r{number:03}", value=value(number))
        settle_down(journal)
        stats = journal.stats()
        assert stats.memory_bytes <= 20 * KIB
        assert stats.evicted >= 180
        for number in range(100):
            assert journal.get(f"k{number:03}").value == value(number)
        assert [each.value for each in journal.range()] == [value(number) for number in range(100)]
        assert {job.value for job in journal.jobs()} == {value(number) for number in range(100)}
        settle_down(journal)
        assert journal.stats().memory_bytes <= 20 * KIB
        assert [journal.next().value for _ in range(100)] == [value(number) for number in range(100)]


def test_opening_does_not_bring_everything_into_memory(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(memory_bytes=20 * KIB, durability="os")) as journal:
        journal.put_batch([f"r{number}" for number in range(300)], values=[value(n) for n in range(300)])
        for number in range(300, 310):
            journal.put(f"r{number}", value=value(number))
    with open_journal(place / "j") as journal:
        settle_down(journal)
        assert journal.stats().memory_bytes <= 20 * KIB
        assert journal.next_batch(310)["value"].to_pylist() == [value(number) for number in range(310)]


def test_what_was_used_last_stays(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(memory_bytes=10 * KIB, durability="os")) as journal:
        for number in range(9):
            journal.set(f"k{number}", value(number))
        settle_down(journal)
        journal.get("k0")
        journal.set("one more", value(9))
        journal.set("and another", value(10))
        settle_down(journal)
        rows = journal.engine.state.values.by_key
        assert rows[b"k0"].value is not None
        assert rows[b"k1"].value is None
        assert journal.get("k1").value == value(1)


def test_what_only_the_tail_has_is_never_evicted(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(memory_bytes=1, durability="os")) as journal:
        journal.set("poured", value(1))
        journal.engine._ledger.pour()
        journal.set("in the tail", value(2))
        with journal.engine._ledger.lock:
            journal.engine.state.residents.evict(journal.engine._ledger.poured)
        rows = journal.engine.state.values.by_key
        assert rows[b"poured"].value is None
        assert rows[b"in the tail"].value is not None
        assert [each.value for each in journal.range()] == [value(2), value(1)]


def test_an_evicted_value_can_be_changed_in_place(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(memory_bytes=1, durability="os")) as journal:
        journal.set("k", value(1))
        journal.put("r", value=value(2))
        settle_down(journal)
        journal.resize("k", 200)
        journal.link("k", "l")
        settle_down(journal)
        journal.rename("k", "m")
        settle_down(journal)
        assert journal.get("l").value == value(1)[:200]
        job = journal.next()
        assert job
        job.fail(0)
        settle_down(journal)
        assert journal.next().value == value(2)


def test_an_evicted_value_whose_bytes_are_damaged_is_told_and_others_can_be_read(place: Path) -> None:
    with open_journal(place / "j", JournalSettings(memory_bytes=1, durability="os")) as journal:
        for number in range(2):
            journal.set(f"k{number}", bytes([65 + number]) * 50_000)
            settle_down(journal)
        file = next(path for path in (place / "j" / "log").iterdir() if path.name.endswith(".active"))
        raw = bytearray(file.read_bytes())
        raw[raw.index(b"A" * 100) + 50] ^= 1
        file.write_bytes(raw)
        with pytest.raises(Damaged):
            journal.get("k0")
        assert journal.get("k1").value == b"B" * 50_000
        journal.set("k0", "again")
        assert journal.get("k0").value == "again"


# --- values in memory only


def test_values_in_memory_only_are_never_evicted_and_refused_beyond_their_limit(place: Path) -> None:
    settings = JournalSettings(memory_bytes=KIB, volatile_bytes=20 * KIB, durability="os")
    with open_journal(place / "j", settings) as journal:
        kept = 0
        with pytest.raises(MemoryFull):
            for number in range(100):
                journal.set(f"k{number:03}", value(number), persist=False)
                kept += 1
        assert 5 < kept <= 20
        settle_down(journal)
        assert [each.value for each in journal.range()] == [value(number) for number in range(kept)]
        journal.set("persisted", value(1))
        journal.delete("k000")
        journal.set("room again", value(2), persist=False)
        journal.set("k001", b"smaller", persist=False)
    with open_journal(place / "j") as journal:
        assert [each.key for each in journal.range()] == ["persisted"]


@examples(30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["set", "set", "delete", "persist", "grow", "link", "expire", "put", "take"]),
            st.sampled_from("abc"),
            st.integers(0, 400),
        ),
        max_size=40,
    )
)
def test_the_account_of_the_memory_is_exact_whatever_is_done(
    place: Path, steps: list[tuple[str, str, int]]
) -> None:
    clock = ManualClock(1_700_000_000_000_000)
    name = str(len(list(place.iterdir())))
    with open_journal(
        place / name, JournalSettings(memory_bytes=600, durability="os"), clock=clock
    ) as journal:
        for what, key, size in steps:
            if what in ("set", "persist"):
                journal.set(key, bytes(size), persist=what == "persist", ttl=5 if size > 300 else None)
            elif what == "put":
                journal.put(key, value=bytes(size), persist=size % 2 == 0)
            elif what == "take":
                journal.next(delete=size % 2 == 0)
            elif what == "expire":
                clock.advance(6)
                settle_down(journal)
            elif journal.probe(key) is not None:
                if what == "delete":
                    journal.delete(key)
                elif what == "grow":
                    journal.resize(key, size)
                elif journal.probe(key + "!") is None:
                    journal.link(key, key + "!")
        state = journal.engine.state
        rows = {id(row): row for row in [*state.jobs.rows(), *state.values.by_key.values()]}.values()
        residents = state.residents
        assert residents.bytes == sum(len(row.value) for row in rows if row.value is not None)
        assert residents.live_bytes == sum(len(journal.engine.read(row)) for row in rows)
        for row in list(rows):
            if row.volatile:
                assert row.value is not None


@pytest.mark.parametrize("rounds", [3])
def test_the_sweep_says_evicted_values_again(
    place: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "_SLACK_EVENTS", 10)
    monkeypatch.setattr(sweep, "_STEP_EVENTS", 20)
    with open_journal(place / "j", JournalSettings(memory_bytes=4 * KIB, durability="os")) as journal:
        for number in range(30):
            journal.set(f"k{number:02}", value(number))
        for _ in range(rounds):
            for number in range(100):
                journal.set("changing", number)
            settle_down(journal)
        assert journal.engine.log.first_index > 0 or journal.engine.swept > 30
        assert [each.value for each in journal.range("k")] == [value(number) for number in range(30)]
    with open_journal(place / "j") as journal:
        assert [each.value for each in journal.range("k")] == [value(number) for number in range(30)]
