"""Many threads in one journal: an exact account, shared syncs, and waiting without missing anything."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.journal import Job, Journal, JournalSettings, Type, ledger, open_journal, sweep
from headrace.journal.new_jobs import NewJob
from headrace.journal.value_operations import NewValue
from headrace.kernel.clock import ManualClock
from headrace.kernel.errors import Closed, DiskFull
from headrace.log.disk import BytesLike, Disk, File

THREADS = 6
PATIENCE_S = 60
"""Never reached unless something hangs."""


def together(*targets: Callable[[], object]) -> None:
    """Run all at once, in threads; what one raises is raised."""
    failed: list[BaseException] = []

    def guarded(target: Callable[[], object]) -> None:
        try:
            target()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "it hangs"
    if failed:
        raise failed[0]


@pytest.fixture
def _busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The background pours and sweeps all the time."""
    monkeypatch.setattr(ledger, "_POUR_AFTER_S", 0.001)
    monkeypatch.setattr(sweep, "_SLACK_EVENTS", 20)
    monkeypatch.setattr(sweep, "_STEP_EVENTS", 30)


@pytest.mark.usefixtures("_busy")
@pytest.mark.parametrize("durability", ["fsync", "interval", "os"])
def test_every_job_that_is_put_is_worked_on_once_whoever_takes_it(place: Path, durability: str) -> None:
    each, total = 60, 60 * THREADS
    worked: Counter[str] = Counter()
    lock = threading.Lock()
    settings = JournalSettings(durability=durability, memory_bytes=2000)  # type: ignore[arg-type]
    with open_journal(place / "journal", settings) as journal:

        def put(who: int) -> None:
            for number in range(each):
                journal.put(f"{who}/{number}", value=b"x" * (number % 7) * 60)

        def work(who: int) -> None:
            chance = Random(who)
            while sum(worked.values()) < total:
                job = journal.next(wait=0.02)
                if not isinstance(job, Job):
                    continue
                assert job.value == b"x" * (int(job.resource.split("/")[1]) % 7) * 60
                if chance.random() < 0.2:
                    job.fail(0)
                    continue
                job.done()
                with lock:
                    worked[job.resource] += 1

        together(
            *[lambda who=who: put(who) for who in range(THREADS)],
            *[lambda who=who: work(who) for who in range(3)],
        )
        assert set(worked.values()) == {1}
        assert len(worked) == total
        assert list(journal.jobs()) == []
    with open_journal(place / "journal") as journal:
        assert list(journal.jobs()) == []


@pytest.mark.usefixtures("_busy")
def test_nothing_is_added_twice_or_forgotten(place: Path) -> None:
    with open_journal(place / "journal") as journal:
        journal.set("count", 0)

        def add() -> None:
            for _ in range(100):
                journal.add("count", 1)

        together(*[add] * THREADS)
        assert journal.get("count").value == 100 * THREADS
    with open_journal(place / "journal") as journal:
        assert journal.get("count").value == 100 * THREADS


@pytest.mark.usefixtures("_busy")
def test_a_resource_that_all_put_and_take_is_never_in_two_hands(place: Path) -> None:
    holders: list[int] = []
    with open_journal(place / "journal", JournalSettings(durability="os")) as journal:

        def fight(who: int) -> None:
            for _ in range(80):
                journal.put("one")
                job = journal.next()
                if isinstance(job, Job):
                    holders.append(who)
                    assert len(holders) == 1
                    holders.remove(who)
                    job.done()

        together(*[lambda who=who: fight(who) for who in range(THREADS)])


def test_threads_share_the_syncs_of_the_disk(place: Path) -> None:
    """While one sync is under way others queue what they have; the next one takes all of it."""
    under_way, others = threading.Event(), threading.Event()

    class SlowFile(File):
        def sync(self) -> None:
            if slow and self.path.name.startswith("tail"):
                syncs.append(self.path.name)
                under_way.set()
                others.wait(PATIENCE_S)
            super().sync()

    class SlowDisk(Disk):
        file_class = SlowFile

    slow, syncs = False, list[str]()
    with open_journal(place / "journal", disk=SlowDisk()) as journal:
        slow = True
        first = threading.Thread(target=journal.put, args=("first",))
        first.start()
        assert under_way.wait(PATIENCE_S)
        rest = [threading.Thread(target=journal.put, args=(f"r{n}",)) for n in range(20)]
        for thread in rest:
            thread.start()
        while journal.engine._ledger.upcoming < 21:
            pass
        others.set()
        for thread in [first, *rest]:
            thread.join(PATIENCE_S)
        assert len(syncs) <= 3
        slow = False
        assert journal.stats().pending == 21


@pytest.mark.parametrize("failing", [False, True])
def test_others_work_while_a_thread_writes_and_what_they_do_is_written_later(
    place: Path, failing: bool
) -> None:
    writes: list[str] = []

    class File_(File):
        def write_one(self, data: BytesLike, offset: int) -> int:
            if watched and self.path.name.startswith("tail"):
                writes.append(self.path.name)
                if len(writes) == 1:
                    journal.engine.now(lambda now: journal.engine.jobs.put(now, second))
                    if failing:
                        raise DiskFull("no room for it, just now")
            return super().write_one(data, offset)

    class Disk_(Disk):
        file_class = File_

    watched, second = False, NewJob(b"second", "", 1, 0, 0, b"", 0)
    with open_journal(place / "journal", disk=Disk_()) as journal:
        watched = True
        if failing:
            with pytest.raises(DiskFull):
                journal.put("first")  # it is done all the same, and written with the next
        else:
            journal.put("first")
        assert len(writes) == 1
        journal.put("third")
        assert len(writes) == 2
        watched = False
    with open_journal(place / "journal") as journal:
        assert sorted(job.resource for job in journal.jobs()) == ["first", "second", "third"]


# --- waiting


def waits(journal: Journal, *arguments: object, **options: object) -> tuple[threading.Thread, list[object]]:
    """A thread that waits for a job, and what it gets."""
    got: list[object] = []

    def wait() -> None:
        try:
            got.append(journal.next(*arguments, **{"wait": "1h", **options}))  # type: ignore[arg-type]
        except Closed as error:
            got.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while not journal.engine.waiting:
        pass
    return thread, got


@pytest.mark.parametrize(
    "act",
    [
        lambda journal, job: journal.put("new"),
        lambda journal, job: journal.put_batch(["new"]),
        lambda journal, job: job.fail(0),
        lambda journal, job: (journal.put("taken"), job.done()),
        lambda journal, job: journal.redrive(),
    ],
    ids=["put", "put_batch", "fail", "done with another beside it", "redrive"],
)
def test_whoever_waits_is_woken_by_what_makes_a_job_ready(place: Path, act: Callable[..., object]) -> None:
    with open_journal(place / "journal", JournalSettings(max_attempts=2)) as journal:
        journal.put("dead")
        for _ in range(2):
            journal.next().fail(0)
        journal.put("taken")
        job = journal.next()
        thread, got = waits(journal)
        act(journal, job)
        thread.join(PATIENCE_S)
        assert got
        assert isinstance(got[0], Job)


def test_whoever_waits_is_woken_when_the_time_of_a_job_comes(place: Path) -> None:
    with open_journal(place / "journal") as journal:
        journal.put("soon", after=0.2)
        journal.put("much later", after="1h")
        job = journal.next(wait="1h")
        assert job
        assert job.resource == "soon"


def test_whoever_waits_gets_a_job_whose_lease_ends(place: Path) -> None:
    with open_journal(place / "journal") as journal:
        journal.put("r")
        assert journal.next(lease=0.2)
        again = journal.next(wait="1h")
        assert again
        assert again.attempts == 2


def test_whoever_waits_for_one_domain_sleeps_on_when_another_gets_a_job(place: Path) -> None:
    with open_journal(place / "journal") as journal:
        thread, got = waits(journal, "a.org")
        journal.put("https://b.org/1")
        while not journal.engine.waiting:
            pass
        assert not got
        journal.put("https://a.org/1")
        thread.join(PATIENCE_S)
        assert isinstance(got[0], Job)
        assert got[0].domain == "a.org"


def test_waiting_ends_empty_handed_when_its_time_is_over(place: Path) -> None:
    with open_journal(place / "journal") as journal:
        assert not journal.next(wait=0.01)


def test_whoever_waits_when_the_journal_is_closed_is_told(place: Path) -> None:
    journal = open_journal(place / "journal")
    thread, got = waits(journal)
    journal.close()
    thread.join(PATIENCE_S)
    assert isinstance(got[0], Closed)


def test_a_closed_journal_says_so_and_may_be_closed_again(place: Path) -> None:
    journal = open_journal(place / "journal")
    journal.close()
    journal.close()
    assert journal.closed
    for operation in (lambda: journal.put("r"), journal.next, journal.stats, lambda: journal.get("k")):
        with pytest.raises(Closed):
            operation()


# --- listening


def test_who_listens_is_told_of_each_change_in_its_order(place: Path) -> None:
    clock = ManualClock(1_700_000_000_000_000)
    told: list[tuple[str, Type]] = []
    with open_journal(place / "journal", clock=clock) as journal:
        stop = journal.listen("a", lambda *change: told.append(change))
        journal.set("a", 1)
        journal.set("b", 1)
        journal.set("a", "text")
        journal.link("a", "c")
        journal.set("c", b"through another key")
        journal.rename("a", "d")
        journal.set("a", True, ttl=5)
        clock.advance(6)
        journal.get("b")
        stop()
        journal.set("a", 1)
    kinds = [Type.INTEGER, Type.STRING, Type.BUFFER, Type.VOID, Type.BOOLEAN, Type.VOID]
    assert told == [("a", kind) for kind in kinds]


def test_who_listens_hears_every_change_of_every_thread(place: Path) -> None:
    told: list[str] = []
    with open_journal(place / "journal") as journal:
        for who in range(THREADS):
            journal.listen(f"k{who}", lambda key, kind: told.append(key))

        def change(who: int) -> None:
            for number in range(50):
                journal.set(f"k{who}", number)

        together(*[lambda who=who: change(who) for who in range(THREADS)])
    assert Counter(told) == {f"k{who}": 50 for who in range(THREADS)}


def test_nobody_is_told_of_a_change_before_it_is_safe(place: Path) -> None:
    told: list[str] = []
    with open_journal(place / "journal") as journal:
        journal.listen("slow", lambda key, kind: told.append(key))
        engine = journal.engine
        _results, ticket = engine.run(
            [(lambda now: engine.values.set(now, NewValue(b"slow", 1, b"v", now)), 9)]
        )
        engine.settle(0)
        assert told == []
        engine.settle(ticket)
        assert told == ["slow"]
