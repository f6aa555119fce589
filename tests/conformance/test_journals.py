"""One suite over a journal in a directory and one on a node: what jobs do, wherever they are."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.journal.errors import BadRequest, LeaseLost, MemoryFull, NoSuchKey
from headrace.journal.job import Job, Nothing
from headrace.journal.job_verbs import JOB_TABLE
from headrace.kernel.durations import BadDuration
from headrace.kernel.errors import BadName, BadSettings, Closed, TooLarge

from .journals import WAYS, Journals, journals_of


@pytest.fixture(scope="module", params=WAYS)
def journals(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journals]:
    with journals_of(request.param, tmp_path_factory.mktemp("journals") / "store") as made:
        yield made


@pytest.fixture
def jobs(journals: Journals) -> Any:
    return journals.new()


def same(one: Any, other: Any) -> bool:
    """Of one type, too; NaN is NaN."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and bool(one == other)


texts = st.binary(min_size=1, max_size=30).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(),
    st.text(max_size=30).filter(lambda text: text.isascii() or text.encode("utf-8", "replace") != b""),
    st.binary(max_size=30),
    texts,
)
quick = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


# --- putting and taking


def test_a_job_is_put_taken_and_done(jobs: Any) -> None:
    id_ = jobs.put("https://example.com/a", priority=10, value="full")
    job = jobs.next("example.com", lease="1h")
    assert isinstance(job, Job)
    assert (job.id, job.resource, job.domain, job.priority) == (
        id_,
        "https://example.com/a",
        "example.com",
        10,
    )
    assert (job.value, job.attempts) == ("full", 1)
    assert job.lease_until_us > job.due_us
    assert jobs.next() == Nothing(job.lease_until_us)
    assert jobs.done(job) is None
    assert jobs.next() == Nothing(None)
    stats = jobs.stats()
    assert (stats.done, stats.pending, stats.leased) == (1, 0, 0)


def test_a_pending_job_is_updated_and_not_doubled(jobs: Any) -> None:
    assert jobs.put("r", priority=9, value=1) == jobs.put("r", priority=3, value=2)
    job = jobs.next()
    assert (job.priority, job.value) == (3, 2)
    assert jobs.put("r") != job.id  # it waits beside the one that is worked on
    assert not jobs.next()
    job.done()
    assert jobs.next().resource == "r"


def test_a_job_is_due_later(jobs: Any) -> None:
    jobs.put("after", after="1h")
    nothing = jobs.next()
    assert isinstance(nothing, Nothing)
    assert nothing.next_at_us is not None
    jobs.put("at", due_us=nothing.next_at_us - 7_200_000_000, after="1h")
    assert jobs.next().due_us == nothing.next_at_us - 7_200_000_000


def test_the_smallest_priority_comes_first_or_the_domains_in_turn(jobs: Any) -> None:
    jobs.put_batch(["a1", "a2", "b1"], priority=[1, 2, 3], domain=["a", "a", "b"])
    assert [jobs.next(fair=True).domain for _ in range(2)] == ["a", "b"]
    jobs.put_batch(["c1", "c2"], priority=[9, 0], domain="c")
    assert [jobs.next("c").priority for _ in range(2)] == [0, 9]
    assert jobs.stats().by_priority == {2: 1}
    assert jobs.stats().by_domain == {"a": 1}


@quick
@given(resource=texts, value=values)
def test_a_job_comes_back_exactly_as_it_was_put(jobs: Any, resource: str, value: Any) -> None:
    jobs.put(resource, value=value)
    job = jobs.next(delete=True)
    assert job.resource == resource
    assert same(job.value, value)
    assert job.lease_until_us == 0
    assert jobs.stats().leased == 0


def test_a_job_wants_not_be_kept_for_ever(jobs: Any) -> None:
    jobs.put("short", after="1h", ttl="1ms")
    jobs.put("memory", persist=False)
    assert jobs.next(wait="5s").resource == "memory"
    assert not jobs.next(wait="2ms")
    assert jobs.stats().pending == 0


def test_next_waits_until_there_is_a_job(jobs: Any) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(jobs.next, "example.com", wait="30s")
        jobs.put("https://example.com/late")
        assert waiting.result(30).resource == "https://example.com/late"
    assert not jobs.next(wait=0.01)
    assert not jobs.next(wait=0)


def test_a_lease_that_ends_gives_the_job_to_the_next(jobs: Any) -> None:
    jobs.put("r")
    first = jobs.next(lease="1ms")
    second = jobs.next(wait="30s", lease="1h")
    assert (second.id, second.attempts) == (first.id, 2)
    with pytest.raises(LeaseLost):
        first.done()
    second.done()


# --- batches


def test_a_batch_is_done_only_under_the_leases_with_which_it_was_taken(jobs: Any) -> None:
    jobs.put_batch(["late", "later"])
    mine = jobs.next_batch(2, lease="1ms")
    assert jobs.next(wait="30s", lease="1h")
    theirs = jobs.next(wait="30s", lease="1h")
    assert sorted(jobs.done_batch(mine)) == sorted(mine["id"].to_pylist())
    jobs.put("own")
    again = jobs.next_batch(1, lease="1h")
    assert jobs.done_batch(pa.concat_tables([mine, again]).slice(1)) == mine["id"].to_pylist()[1:]
    assert jobs.done_batch([theirs]) == []
    assert jobs.done_batch([theirs]) == [theirs.id]
    assert jobs.done_batch(again.slice(1)) == []
    assert jobs.stats().leased == 1
    with pytest.raises(BadRequest, match="lease_until"):
        jobs.done_batch(mine.drop_columns(["lease_until"]))
    with pytest.raises(BadRequest, match="microseconds"):
        jobs.done_batch(mine.set_column(6, "lease_until", mine["id"]))


def test_many_are_put_taken_and_done_at_once(jobs: Any) -> None:
    names = [f"http://h{number % 3}/{number}" for number in range(100)]
    ids = jobs.put_batch(names, values=range(100), after="0s")
    assert len(set(ids)) == 100
    table = jobs.next_batch(60, "h1", lease="1h")
    assert isinstance(table, pa.Table)
    assert table.schema == JOB_TABLE
    assert set(table.column("resource").to_pylist()) == set(names[1::3])
    assert jobs.next_batch(0).num_rows == 0
    assert jobs.next_batch(200, delete=True).num_rows == 67
    assert jobs.done_batch(table.column("id")) == []
    assert jobs.done_batch([*table.column("id").to_pylist()[:2], -5]) == [
        *table.column("id").to_pylist()[:2],
        -5,
    ]
    assert jobs.next_batch(10).schema == JOB_TABLE
    assert jobs.put_batch([]) == []


def test_a_batch_is_put_once(jobs: Any) -> None:
    assert len(jobs.put_batch(["a", "b"], once=("wörter & so", -3))) == 2
    assert jobs.put_batch(["c"], once=("wörter & so", -3)) == []
    assert len(jobs.put_batch(["c"], once=("wörter & so", 5))) == 1
    assert jobs.stats().pending == 3


@quick
@given(st.lists(st.tuples(texts, values, st.integers(0, 255)), max_size=10, unique_by=lambda job: job[0]))
def test_a_batch_is_kept_exactly(jobs: Any, batch: list[tuple[str, Any, int]]) -> None:
    jobs.put_batch(
        [each[0] for each in batch], values=[each[1] for each in batch], priority=[each[2] for each in batch]
    )
    found = {job.resource: job for job in iter(lambda: jobs.next(delete=True), Nothing(None))}
    assert len(found) == len(batch)
    for resource, value, priority in batch:
        assert found[resource].priority == priority
        assert same(found[resource].value, value)


# --- the end of a job


def test_a_block_is_done_at_its_end_and_failed_when_it_raises(jobs: Any) -> None:
    jobs.put("r")
    with pytest.raises(ZeroDivisionError), jobs.next():
        raise ZeroDivisionError
    assert jobs.stats().pending == 1  # it comes again, after a pause
    jobs.put("s")
    with jobs.next() as job:
        assert (job.resource, job.attempts) == ("s", 1)
    assert (jobs.stats().pending, jobs.stats().done) == (1, 1)
    with jobs.next() as nothing:
        assert not nothing


def test_a_job_that_fails_too_often_is_dead_until_it_is_put_back(journals: Journals) -> None:
    jobs = journals.new(max_attempts=2)
    assert jobs.settings.max_attempts == 2
    for resource in ("a", "b"):
        jobs.put(resource)
        for _ in range(2):
            jobs.fail(jobs.next(), retry_in=0)
    assert jobs.stats().dead == 2
    assert jobs.redrive(["b", "none"]) == 1
    dead = {info.resource: info for info in jobs.jobs()}
    assert (dead["a"].state, dead["b"].state) == ("dead", "pending")
    assert jobs.redrive_as([(dead["a"].id, "a2", b"\xff", 7), (99_999, "x", None, 1)]) == 1
    assert jobs.redrive() == 0
    assert (jobs.next().resource, jobs.next().value) == ("a2", None)


def test_a_dead_job_that_is_put_back_without_a_resource_keeps_its_own_and_its_domain(
    journals: Journals,
) -> None:
    jobs = journals.new(max_attempts=1)
    jobs.put("caf\udce9", domain="shop", value=1)
    jobs.fail(jobs.next())
    (dead,) = jobs.jobs()
    assert jobs.redrive_as([(dead.id, None, 2, 7), (99_999, None, 1, 1)]) == 1
    (info,) = jobs.jobs()
    assert (info.resource, info.domain, info.state, info.value, info.priority) == (
        "caf\udce9",
        "shop",
        "pending",
        2,
        7,
    )


def test_a_job_is_kept_longer(jobs: Any) -> None:
    jobs.put("r")
    job = jobs.next(lease="1m")
    before = job.lease_until_us
    job.extend("2h")
    assert job.lease_until_us > before
    with pytest.raises(LeaseLost):
        jobs.done(job.id, before)
    jobs.extend(job.id, "3h")
    with pytest.raises(LeaseLost):
        job.done()
    (info,) = jobs.jobs()
    jobs.fail(info.id, 0, info.until_us)
    again = jobs.next()
    jobs.done(again.id, again.lease_until_us)
    assert list(jobs.jobs()) == []


def test_a_pending_job_is_cancelled(jobs: Any) -> None:
    jobs.put("r")
    jobs.cancel("r")
    assert not jobs.next()
    with pytest.raises(NoSuchKey):
        jobs.cancel("r")


def test_all_jobs_are_told(jobs: Any) -> None:
    ids = jobs.put_batch([f"r{number}" for number in range(1200)], values=["v"] * 1200)
    jobs.next()
    told = list(jobs.jobs())
    assert sorted(info.id for info in told) == sorted(ids)
    assert {info.state for info in told} == {"pending", "leased"}
    assert {info.value for info in told} == {"v"}
    assert next(jobs.jobs()).id in ids  # and one may stop early


def test_no_job_is_given_to_two_workers(jobs: Any) -> None:
    jobs.put_batch([f"r{number}" for number in range(60)])
    taken: list[int] = []

    def work() -> None:
        while job := jobs.next():
            taken.append(job.id)
            job.done()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(taken) == len(set(taken)) == 60


# --- what is refused


@pytest.mark.parametrize(
    ("verb", "arguments", "named", "error"),
    [
        ("put", ("",), {}, BadRequest),
        ("put", (5,), {}, BadRequest),
        ("put", (...,), {}, BadRequest),
        ("put", ("\ud800",), {}, BadRequest),
        ("put", ("r" * 70_000,), {}, TooLarge),
        ("put", ("r",), {"priority": 256}, BadRequest),
        ("put", ("r",), {"priority": "high"}, BadRequest),
        ("put", ("r",), {"after": "soon"}, BadDuration),
        ("put", ("r",), {"ttl": -1}, BadDuration),
        ("put", ("r",), {"due_us": -1}, BadRequest),
        ("put", ("r",), {"domain": 5}, BadRequest),
        ("put", ("r",), {"value": [1]}, BadRequest),
        ("put", ("r",), {"value": b"x" * 2000}, TooLarge),
        ("put", ("r",), {"value": b"x" * 900, "persist": False}, MemoryFull),
        ("put_batch", ("text",), {}, BadRequest),
        ("put_batch", (["a", 5],), {}, BadRequest),
        ("put_batch", (["a"],), {"values": [1, 2]}, BadRequest),
        ("put_batch", (["a"],), {"values": [b"x" * 2000]}, TooLarge),
        ("put_batch", (["a"],), {"priority": [-1]}, BadRequest),
        ("put_batch", (["a"],), {"due_us": [-1]}, BadRequest),
        ("put_batch", (["a"],), {"after": "soon"}, BadDuration),
        ("put_batch", (["a"],), {"once": ("", 1)}, BadRequest),
        ("next", (), {"lease": 0}, BadRequest),
        ("next", (), {"wait": "long"}, BadDuration),
        ("next", (5,), {}, BadRequest),
        ("next_batch", (-1,), {}, BadRequest),
        ("next_batch", (1,), {"lease": "soon"}, BadDuration),
        ("done", (99,), {}, LeaseLost),
        ("done", ("99",), {}, BadRequest),
        ("fail", (99,), {}, LeaseLost),
        ("fail", (99,), {"retry_in": "soon"}, BadDuration),
        ("extend", (99, "1h"), {}, LeaseLost),
        ("extend", (99, "soon"), {}, BadDuration),
        ("done_batch", ("text",), {}, BadRequest),
        ("done_batch", ([1.5],), {}, BadRequest),
        ("cancel", ("none",), {}, NoSuchKey),
        ("redrive", ("text",), {}, BadRequest),
        ("redrive_as", ([(1, "", None, 1)],), {}, BadRequest),
        ("redrive_as", ([(1, "r", None, 256)],), {}, BadRequest),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_wrong_is_refused_and_changes_nothing(
    small: Any, verb: str, arguments: Any, named: Any, error: type[Exception]
) -> None:
    with pytest.raises(error) as raised:
        getattr(small, verb)(*arguments, **named)
    assert type(raised.value) is error
    stats = small.stats()
    assert (stats.pending, stats.leased) == (0, 0)


@pytest.fixture(scope="module")
def small(journals: Journals) -> Any:
    return journals.new(value_bytes=1000, volatile_bytes=900)


def test_settings_belong_to_a_journal(journals: Journals) -> None:
    jobs = journals.store.journal("set", hr.JournalSettings(lease="5m", fair=True))
    assert jobs.settings == hr.JournalSettings(lease="5m", fair=True)
    assert journals.store.journal("set", jobs.settings).settings == jobs.settings
    assert journals.store.journal("set").settings == jobs.settings
    assert "set" in journals.store.journals()
    with pytest.raises(BadSettings):
        journals.store.journal("set", hr.JournalSettings())
    with pytest.raises(BadRequest):
        journals.store.journal("wrong", hr.JournalSettings(max_attempts=0))
    with pytest.raises(BadName):
        journals.store.journal("../out")


def test_what_is_closed_says_so(journals: Journals) -> None:
    with journals.new() as jobs:
        jobs.put("r")
    assert jobs.closed
    for verb in (jobs.next, jobs.stats, lambda: jobs.get("k"), lambda: list(jobs.range())):
        with pytest.raises(Closed):
            verb()
    again = journals.store.journal(jobs.name)
    assert again.next().resource == "r"
