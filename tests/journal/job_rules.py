"""What can be done with jobs, to a journal and to its model."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from headrace.journal import Nothing
from headrace.kernel.errors import HeadraceError

from .machine import SECOND_US, START_US, Machine, counted, data, mostly, rarely, seconds, some_seconds
from .models import ModelJob

RESOURCES = ["https://a.org/1", "https://a.org/2", "https://b.org/1", "http://C.org:80/x", "free text"]
DOMAINS = ["a.org", "b.org", "c.org", "", "other"]
priorities = st.sampled_from([0, 1, 1, 1, 255])


def host_of(resource: str) -> str:
    return {"https://a.org": "a.org", "https://b.org": "b.org", "http://C.org:80": "c.org"}.get(
        resource.rsplit("/", 1)[0], ""
    )


class JobRules(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.handles: list[Any] = []
        """Jobs that were given out, whatever has become of them."""
        self.tables: list[Any] = []
        """The same of those that were given out many at once."""
        self.owed: dict[str, set[str]] = {}
        """Domain -> those that must have their turn before it is served again."""

    @invariant()
    def a_domain_that_has_nothing_is_owed_nothing(self) -> None:
        if hasattr(self, "journal"):
            ready = {job.domain for job in self.jobs.ready(self.now, None)}
            for others in self.owed.values():
                others &= ready

    def _opened(self) -> None:
        super()._opened()
        self.owed.clear()

    @rule(
        resource=st.sampled_from(RESOURCES),
        priority=priorities,
        after=some_seconds,
        due=st.none() | st.integers(-3, 3),
        ttl=st.none() | st.none() | seconds,
        value=data,
        domain=st.none() | st.sampled_from(DOMAINS),
        persist=mostly,
    )
    def put(
        self,
        resource: str,
        priority: int,
        after: int | None,
        due: int | None,
        ttl: int | None,
        value: Any,
        domain: str | None,
        persist: bool,
    ) -> None:
        now = self.now
        due_us = None if due is None else START_US + due * SECOND_US
        id_ = self.journal.put(
            resource,
            priority=priority,
            after=after,
            due_us=due_us,
            value=value,
            domain=domain,
            ttl=ttl,
            persist=persist,
        )
        when = now + (after or 0) * SECOND_US if due_us is None else due_us
        where = host_of(resource) if domain is None else domain
        expires = None if ttl is None else now + ttl * SECOND_US
        self.jobs.put(now, ModelJob(id_, 0, resource, persist, where, priority, when, expires, value))

    @rule(resources=st.lists(st.sampled_from(RESOURCES), max_size=4), priority=priorities, after=some_seconds)
    def put_batch(self, resources: list[str], priority: int, after: int | None) -> None:
        now = self.now
        ids = self.journal.put_batch(
            resources, priority=priority, after=after, values=[n for n, _ in enumerate(resources)]
        )
        due = now + (after or 0) * SECOND_US
        for number, (resource, id_) in enumerate(zip(resources, ids, strict=True)):
            job = ModelJob(id_, 0, resource, True, host_of(resource), priority, due, None, number)
            self.jobs.put(now, job)

    @rule(domain=st.none() | st.sampled_from([*DOMAINS[:3], "other"]), lease=some_seconds, delete=rarely)
    def next(self, domain: str | None, lease: int | None, delete: bool) -> None:
        if lease == 0:
            lease = 3
        now = self.now
        found = self.journal.next(domain, lease=lease, delete=delete)
        self.jobs.tick(now)
        self._check_next(now, found, self.jobs.ready(now, domain)[:1], domain)
        if found:
            self._taken(now, found, lease, delete)

    @rule(lease=some_seconds)
    def next_in_turn(self, lease: int | None) -> None:
        lease = lease or 3
        now = self.now
        found = self.journal.next(lease=lease, fair=True)
        self.jobs.tick(now)
        ready = self.jobs.ready(now, None)
        domains = {job.domain for job in ready}
        firsts = [next(job for job in ready if job.domain == domain) for domain in domains]
        self._check_next(now, found, firsts, None)
        if found:
            waiting = self.owed.get(found.domain, set())
            assert not waiting, f"{found.domain!r} is served again before {waiting}"
            for others in self.owed.values():
                others.discard(found.domain)
            self.owed[found.domain] = domains - {found.domain}
            self._taken(now, found, lease, False)

    def _check_next(self, now: int, found: Any, wanted: list[ModelJob], domain: str | None) -> None:
        if not wanted:
            assert found == Nothing(self.jobs.next_at(now, domain)), (found, now, self.jobs.jobs)
            return
        if found:
            self.jobs.named(found.resource, found.id)
        assert found, f"{[job.resource for job in wanted]} should be given out, not {found}"
        assert found.id in {job.id for job in wanted}, (found, wanted)

    def _taken(self, now: int, found: Any, lease: int | None, delete: bool) -> None:
        job = next(job for job in self.jobs.jobs if job.id == found.id)
        until = 0 if delete else now + (30 if lease is None else lease) * SECOND_US
        self.jobs.take(job, until, delete)
        assert (found.resource, found.domain, found.priority) == (job.resource, job.domain, job.priority)
        assert (found.due_us, found.attempts, found.lease_until_us) == (job.due, job.attempts, until)
        assert (found.value, type(found.value)) == (job.value, type(job.value))
        self.handles.append(found)

    @rule(
        count=st.integers(0, 4),
        domain=st.none() | st.sampled_from(DOMAINS[:2]),
        lease=st.integers(1, 9),
        delete=rarely,
    )
    def next_batch(self, count: int, domain: str | None, lease: int, delete: bool) -> None:
        now = self.now
        table = self.journal.next_batch(count, domain, lease=lease, delete=delete)
        if count:
            self.jobs.tick(now)
        until = now + lease * SECOND_US
        rows = zip(
            table["id"].to_pylist(), table["resource"].to_pylist(), table["attempts"].to_pylist(), strict=True
        )
        wanted = []
        for job in self.jobs.ready(now, domain)[:count]:
            if len(wanted) < table.num_rows:
                self.jobs.named(job.resource, table["id"][len(wanted)].as_py())
            self.jobs.take(job, until, delete)
            wanted.append((job.id, job.resource, job.attempts))
        assert list(rows) == wanted
        self.tables.append(table)

    @rule(which=st.integers(0, 50))
    @precondition(lambda self: self.tables)
    def done_table(self, which: int) -> None:
        """Jobs that were taken together are done, but not those that somebody else has by now."""
        now, table = self.now, self.tables[which % len(self.tables)]
        lost = self.journal.done_batch(table)
        wanted = []
        for row in table.to_pylist():
            try:
                self.jobs.done(now, row["id"], round(row["lease_until"].timestamp() * SECOND_US))
            except HeadraceError:
                wanted.append(row["id"])
        assert lost == wanted

    @rule(which=st.integers(0, 50))
    @precondition(lambda self: self.handles)
    def done(self, which: int) -> None:
        job, now = self.handles[which % len(self.handles)], self.now
        self.both(lambda: self.journal.done(job), lambda: self.jobs.done(now, job.id, job.lease_until_us))

    @rule(some=st.lists(st.integers(0, 30), max_size=4))
    def done_batch(self, some: list[int]) -> None:
        now, ids = self.now, [job.id for job in self.jobs.jobs if job.id is not None] or [7]
        chosen = [ids[number % len(ids)] for number in some]
        lost = self.journal.done_batch(chosen)
        wanted = []
        for id_ in chosen:
            try:
                self.jobs.done(now, id_, None)
            except HeadraceError:
                wanted.append(id_)
        assert lost == wanted

    @rule(which=st.integers(0, 50), retry=some_seconds)
    @precondition(lambda self: self.handles)
    def fail(self, which: int, retry: int | None) -> None:
        job, now = self.handles[which % len(self.handles)], self.now
        pause = None if retry is None else retry * SECOND_US
        self.both(
            lambda: self.journal.fail(job, retry),
            lambda: self.jobs.fail(now, job.id, job.lease_until_us, pause),
        )

    @rule(which=st.integers(0, 50), lease=st.integers(1, 20))
    @precondition(lambda self: self.handles)
    def extend(self, which: int, lease: int) -> None:
        job, now = self.handles[which % len(self.handles)], self.now
        until = job.lease_until_us
        self.both(
            lambda: self.journal.extend(job, lease),
            lambda: self.jobs.extend(now, job.id, until, now + lease * SECOND_US),
        )

    @rule(resource=st.sampled_from(RESOURCES))
    def cancel(self, resource: str) -> None:
        now = self.now
        self.both(lambda: self.journal.cancel(resource), lambda: self.jobs.cancel(now, resource))

    @rule(resources=st.none() | st.lists(st.sampled_from(RESOURCES), max_size=3))
    def redrive(self, resources: list[str] | None) -> None:
        now = self.now
        self.both(lambda: self.journal.redrive(resources), lambda: self.jobs.redrive(now, resources))

    # --- comparing

    def look_at_jobs(self) -> None:
        now = self.now
        found = {job.id: job for job in self.journal.jobs()}
        self.jobs.tick(now)
        for info in found.values():
            if info.state == "pending":
                self.jobs.named(info.resource, info.id)
        assert len(found) == len(self.jobs.jobs), (found, self.jobs.jobs)
        for job in self.jobs.jobs:
            info = found[job.id]
            assert (info.resource, info.domain, info.state) == (job.resource, job.domain, job.state)
            assert (info.priority, info.due_us, info.attempts) == (job.priority, job.due, job.attempts)
            assert (info.value, type(info.value)) == (job.value, type(job.value))
            if job.state != "dead":
                assert (info.until_us or 0) == job.until
            else:
                assert info.until_us is not None
                assert info.until_us <= now
        self._look_at_stats(now)

    def _look_at_stats(self, now: int) -> None:
        stats = self.journal.stats()
        states = [job.state for job in self.jobs.jobs]
        pending = [job for job in self.jobs.jobs if job.state == "pending"]
        assert (stats.pending, stats.leased, stats.dead) == tuple(
            states.count(state) for state in ("pending", "leased", "dead")
        )
        assert stats.ready == len(self.jobs.ready(now, None))
        assert stats.by_priority == counted(job.priority for job in pending)
        assert stats.by_domain == counted(job.domain for job in pending)
        assert stats.oldest_due_us == min((job.due for job in pending), default=None)
        assert stats.memory_bytes >= 0
