"""The node's clock jumps, forward and back, while it is used: what is held stays held, and nothing is lost.

Leases of publishers and of positions are measured by a clock that cannot jump. What is stored with a time of
its own (expiry of tokens, leases of jobs, ages of segments) follows the clock: what is too late has ended,
and is told so. What was due once stays due.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.client.node_line import Patience
from headrace.kernel.clock import SystemClock
from headrace.kernel.errors import Unauthorized, WriterTaken
from headrace.log.settings import Finalize, Retention
from headrace.server.position_leases import PositionLeases
from headrace.server.tokens import TokenFile
from headrace.stream import PublisherTaken
from stream.samples import Number
from waiting import until

from .http_node import Served, served

YEAR_S = 365 * 86_400
JUMPS = (YEAR_S, -2 * YEAR_S, 3600, -3600, 2 * YEAR_S)
ONCE = Patience(away_s=0)


class Jumping:
    def __init__(self) -> None:
        self.ahead_s = 0.0

    def now_us(self) -> int:
        return time.time_ns() // 1000 + round(self.ahead_s * 1_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Jumping:
    """That of everything in this process."""
    jumping = Jumping()
    monkeypatch.setattr(SystemClock, "now_us", lambda self: jumping.now_us())
    return jumping


@pytest.fixture
def node(place: Path, clock: Jumping) -> Iterator[Served]:
    with served(place / "store") as one:
        yield one


def url(node: Served) -> str:
    return f"http://127.0.0.1:{node.ask.port}"


def test_whoever_publishes_alone_still_does_and_nobody_else(node: Served, clock: Jumping) -> None:
    with hr.connect(url(node)) as store, hr.connect(url(node)) as other:
        stream = store.stream("s", Number)
        heard: list[int] = []
        stream.listener(lambda entry: heard.append(entry.value.n))
        with stream.publisher() as publisher:
            for n, jump in enumerate(JUMPS):
                clock.ahead_s += jump
                assert publisher.publish(Number(n)) == n
                publisher.flush()
                with pytest.raises(PublisherTaken):
                    other.stream("s", Number).publisher()
        until(lambda: heard == list(range(len(JUMPS))), "all heard, in order")
        with other.stream("s", Number).publisher() as next_one:
            assert next_one.publish(Number(9)) == len(JUMPS)


def test_a_repeated_batch_is_recognised_whatever_the_time_is(node: Served, clock: Jumping) -> None:
    with hr.connect(url(node)) as store, store.stream("s", Number).publisher() as publisher:
        table = pa.table({"n": [1, 2]})
        for number, jump in enumerate(JUMPS):
            assert not publisher.publish_batch(table, once=("me", number)).repeated
            clock.ahead_s += jump
            assert publisher.publish_batch(table, once=("me", number)).repeated


def test_positions_are_held_by_a_clock_that_does_not_jump(node: Served, clock: Jumping) -> None:
    """A node gives them the clock of its loop; as the lease of a publisher above."""
    leases = PositionLeases(node.loop.time)
    for jump in JUMPS:
        leases.take("s", "p", "me")
        clock.ahead_s += jump
        with pytest.raises(WriterTaken):
            leases.take("s", "p", "another")


def test_a_token_ends_by_the_clock_and_is_good_again_if_that_was_wrong(place: Path, clock: Jumping) -> None:
    hr.open(place / "store").close()
    tokens = TokenFile(place / "store")
    short = tokens.create("short", ["admin:*"], expires="1h").secret
    for_ever = tokens.create("ever", ["admin:*"]).secret
    with served(place / "store") as one:

        def names(secret: str) -> list[str]:
            with hr.connect(url(one), secret, patience=ONCE) as store:
                return store.streams()

        with hr.connect(url(one), for_ever) as store, hr.connect(url(one), short, patience=ONCE) as brief:
            store.stream("s", Number)
            following = brief.stream("s", Number).listener(lambda entry: None)
            until(lambda: one.desk.followers == 1)
            clock.ahead_s = 7200
            until(lambda: following.error is not None, "the follower to be sent away")
            assert isinstance(following.error, Unauthorized)
            with pytest.raises(Unauthorized, match="expired"):
                names(short)
            assert names(for_ever) == ["s"]
            clock.ahead_s = -YEAR_S  # before it was made
            assert names(short) == names(for_ever) == ["s"]


def test_a_lease_of_a_job_that_ended_by_a_jump_is_lost_and_one_that_did_not_is_kept(
    node: Served, clock: Jumping
) -> None:
    with hr.connect(url(node)) as store:
        jobs = store.journal("pages")
        jobs.put("r", value=1)
        first = jobs.next(lease="1h")
        assert first
        clock.ahead_s = -YEAR_S
        assert not jobs.next()  # it is held, for longer than was asked
        clock.ahead_s = 7200
        second = jobs.next(lease="1h")
        assert second
        assert (second.resource, second.attempts) == ("r", 2)
        with pytest.raises(hr.Refused) as raised:
            first.done()
        assert raised.value.code == "lease_lost"
        clock.ahead_s = 0
        second.done()
        assert jobs.stats().pending == jobs.stats().leased == 0


def test_jobs_that_were_due_once_stay_due_also_after_a_restart(place: Path, clock: Jumping) -> None:
    names = [f"r{number}" for number in range(len(JUMPS))]
    with served(place / "store") as one, hr.connect(url(one)) as store:
        jobs = store.journal("pages")
        for name, jump in zip(names, JUMPS, strict=True):
            clock.ahead_s += jump
            jobs.put(name, persist=name != "r1")
        assert len({info.id for info in jobs.jobs()}) == len(names)
        clock.ahead_s = -10 * YEAR_S
        found = jobs.next(delete=True)
        assert found
        assert found.resource in names
    left = {*names} - {"r1", found.resource}  # r1 was kept in memory only
    with served(place / "store") as one, hr.connect(url(one)) as store:
        jobs = store.journal("pages")
        assert {jobs.next(delete=True).resource for _ in left} == left
        assert not jobs.next()


def test_waiting_for_a_job_ends_although_the_clock_goes_back(node: Served, clock: Jumping) -> None:
    with hr.connect(url(node)) as store:
        jobs = store.journal("pages")
        jobs.put("later", after="1h")
        clock.ahead_s = -YEAR_S
        assert not jobs.next(wait="200ms")
        clock.ahead_s = 7200
        assert jobs.next(wait="200ms")


def test_retention_by_age_keeps_what_seems_to_come_from_the_future(place: Path, clock: Jumping) -> None:
    age = hr.Settings(finalize=Finalize(bytes=1 << 12), retention=Retention(age_s=3600), durability="os")
    numbers = itertools.count()
    with served(place / "store") as one, hr.connect(url(one)) as store:
        stream = store.stream("s", Number, settings=age)

        def publish() -> None:
            with stream.publisher() as publisher:
                for _ in range(20):
                    count = next(numbers) * 1000
                    publisher.publish_batch(pa.table({"n": list(range(count, count + 1000))}))

        publish()
        first: Callable[[], int] = lambda: one.desk.stream.log.first_index  # noqa: E731
        for ahead_s in (-YEAR_S, 60):  # some of it is a year old now: but what lies before it is not
            clock.ahead_s = ahead_s
            publish()
            assert first() == 0
        clock.ahead_s = 7200
        publish()
        assert 0 < first() <= 60_000
        assert [entry.index for entry in stream.listen(first())] == list(range(first(), 80_000))
