"""What commands do with a journal, wherever it is: in a store, or behind a server.

A command opens the journal of a store, does one thing and gives it free, so that the next command can have
it. One that waits for a job gives it free as well, and looks again when the log has moved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from headrace.journal import BadRequest, Data, Job, Journal, JournalTaken, LeaseLost, Nothing, Value
from headrace.journal.reading import ReadValues
from headrace.journal.value_verbs import ValueVerbs
from headrace.kernel.errors import NotFound
from headrace.log import Log
from headrace.log.copy import Origin
from headrace.store import JOURNALS_DIRECTORY, Store

if TYPE_CHECKING:
    from headrace.client.fj import FjClient
    from headrace.client.remote import RemoteStore

_PATIENCE_S = 1.0
"""How long another command may have the journal before that is told."""
_LOOK_S = 0.05
_DIGITS_MAX = 19
"""Of an id."""
_LAST_KEY = b"\xff" * 255

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Put:
    """How jobs are put. Times are in seconds."""

    priority: int = 128
    after: float | None = None
    domain: str | None = None
    ttl: float | None = None
    persist: bool = True
    value: Data = None


@dataclass(frozen=True, slots=True)
class Take:
    """Which job is wanted, and how."""

    domain: str | None = None
    lease: float | None = None
    wait: float | None = None
    delete: bool = False


@dataclass(frozen=True, slots=True)
class Named:
    """A leased job, as it was named: by its id or its resource."""

    text: str
    by_resource: bool = False
    """Also if it looks like an id."""

    @property
    def id(self) -> int | None:
        """None: it is named by its resource."""
        looks_so = self.text.isascii() and self.text.isdigit() and len(self.text) <= _DIGITS_MAX
        return int(self.text) if looks_so and not self.by_resource else None

    def lost(self) -> LeaseLost:
        return LeaseLost(f"no job of {self.text!r} is leased: its lease ended, or it was finished")


class Verbs(Protocol):
    def put(self, resource: str, how: Put) -> int | None:
        """The job's id, where it is told."""
        ...

    def put_many(self, groups: Iterable[Sequence[str]], how: Put) -> int:
        """Put one group of resources after the other, each safe before the next; how many."""
        ...

    def next(self, wanted: Take) -> Job | Nothing: ...

    def done(self, job: Named, until_us: int | None) -> None:
        """`until_us` is the end of the lease, as proof that it is the same."""
        ...

    def fail(self, job: Named, until_us: int | None, retry_in: float | None) -> None: ...

    def set(self, key: str, value: Data, *, ttl: float | None, persist: bool, overwrite: bool) -> None: ...

    def get(self, key: str, *, touch: bool) -> Value | None: ...

    def delete(self, key: str, *, now: bool) -> None: ...

    def range(self, low: str, high: str | None, count: int | None) -> Iterator[Value]: ...

    def match(self, pattern: str, count: int | None) -> Iterator[Value]: ...


class Embedded:
    """The journal `name` of a store. `opened` opens the store; `making` opens it to put something in."""

    def __init__(
        self,
        name: str,
        opened: Callable[[], AbstractContextManager[Store]],
        making: Callable[[], AbstractContextManager[Store]],
    ) -> None:
        self._name = name
        self._opened = opened
        self._making = making

    def put(self, resource: str, how: Put) -> int | None:
        with self._journal(make=True) as journal:
            return journal.put(
                resource,
                priority=how.priority,
                after=how.after,
                value=how.value,
                domain=how.domain,
                ttl=how.ttl,
                persist=how.persist,
            )

    def put_many(self, groups: Iterable[Sequence[str]], how: Put) -> int:
        count = 0
        with self._journal(make=True) as journal:  # once: opening takes its time if there are many jobs
            for resources in groups:
                values = [how.value] * len(resources)
                journal.put_batch(
                    resources, priority=how.priority, after=how.after, values=values, domain=how.domain
                )
                count += len(resources)
        return count

    def next(self, wanted: Take) -> Job | Nothing:
        end = None if wanted.wait is None else time.monotonic() + wanted.wait
        while True:
            with self._journal() as journal:
                found = journal.next(wanted.domain, lease=wanted.lease, delete=wanted.delete)
                path, clock = journal.engine.log.path, journal.engine.clock
            reached = journal.engine.log.next_index
            if end is None or not isinstance(found, Nothing) or time.monotonic() >= end:
                return found
            look_at = end
            if found.next_at_us is not None:
                look_at = min(end, time.monotonic() + max(0, found.next_at_us - clock.now_us()) / 1e6)
            _wait_for_more(path, reached, look_at)

    def done(self, job: Named, until_us: int | None) -> None:
        with self._journal() as journal:
            engine = journal.engine
            engine.do(lambda now: engine.jobs.done(now, _id_of(journal, job), until_us))

    def fail(self, job: Named, until_us: int | None, retry_in: float | None) -> None:
        pause = None if retry_in is None else round(retry_in * 1e6)
        with self._journal() as journal:
            engine = journal.engine
            engine.do(
                lambda now: engine.jobs.fail(
                    now, _id_of(journal, job), until_us, None if pause is None else now + pause
                )
            )

    def set(self, key: str, value: Data, *, ttl: float | None, persist: bool, overwrite: bool) -> None:
        with self._journal(make=True) as journal:
            journal.set(key, value, ttl=ttl, persist=persist, overwrite=overwrite)

    def get(self, key: str, *, touch: bool) -> Value | None:
        with self._values() as values:
            return values.get(key, touch=touch)

    def delete(self, key: str, *, now: bool) -> None:
        with self._journal() as journal:
            journal.delete(key, now=now)

    def range(self, low: str, high: str | None, count: int | None) -> Iterator[Value]:
        with self._values() as values:
            yield from values.range(low, high, count)

    def match(self, pattern: str, count: int | None) -> Iterator[Value]:
        with self._values() as values:
            yield from values.match(pattern, count)

    @contextmanager
    def _values(self) -> Iterator[ValueVerbs]:
        """To be read: a copy of another journal cannot be opened for more."""
        with self._opened() as store:
            log = log_path(store, self._name)
            if copy_of(log) is not None:
                yield ReadValues(log.parent)
                return
        with self._journal() as journal:
            yield journal

    @contextmanager
    def _journal(self, make: bool = False) -> Iterator[Journal]:
        with self._making() if make else self._opened() as store:
            if not make:
                check_journal(store, self._name)
            with patient(lambda: store.journal(self._name)) as journal:
                yield journal


class Remote:
    """The journal that a server has."""

    def __init__(self, client: FjClient) -> None:
        self._client = client

    def put(self, resource: str, how: Put) -> int | None:
        self._client.put(
            resource,
            priority=how.priority,
            after=how.after,
            value=how.value,
            domain=how.domain,
            ttl=how.ttl,
            persist=how.persist,
        )
        return None

    def put_many(self, groups: Iterable[Sequence[str]], how: Put) -> int:
        count = 0
        for resources in groups:
            with self._client.pipeline() as pipeline:
                for resource in resources:
                    pipeline.put(
                        resource, priority=how.priority, after=how.after, value=how.value, domain=how.domain
                    )
            pipeline.results()
            count += len(resources)
        return count

    def next(self, wanted: Take) -> Job | Nothing:
        return self._client.next(
            wanted.domain or "", lease=wanted.lease, wait=wanted.wait, delete=wanted.delete
        )

    def done(self, job: Named, until_us: int | None) -> None:
        self._client.done(self._leased(job.text, until_us))

    def fail(self, job: Named, until_us: int | None, retry_in: float | None) -> None:
        if until_us is None:
            raise BadRequest("a server takes a job back by its lease: give --lease-until, see `next --json`")
        self._client.fail(self._leased(job.text, until_us), retry_in)

    def set(self, key: str, value: Data, *, ttl: float | None, persist: bool, overwrite: bool) -> None:
        self._client.set(key, value, ttl=ttl, persist=persist, overwrite=overwrite)

    def get(self, key: str, *, touch: bool) -> Value | None:
        return self._client.get(key, touch=touch)

    def delete(self, key: str, *, now: bool) -> None:
        self._client.delete(key, now=now)

    def range(self, low: str, high: str | None, count: int | None) -> Iterator[Value]:
        if count != 0:
            yield from self._client.range(low, _LAST_KEY if high is None else high, count or 0)

    def match(self, pattern: str, count: int | None) -> Iterator[Value]:
        if count != 0:
            yield from self._client.match(pattern, count or 0)

    def _leased(self, resource: str, until_us: int | None) -> Job:
        """A server knows jobs by their resource."""
        return Job(0, resource, "", 0, 0, None, 0, until_us or 0, self._client)


def check_journal(store: Store | RemoteStore, name: str) -> None:
    if not store.has_journal(name):
        where = f"in {store.path}" if isinstance(store, Store) else f"at {store.url}"
        advice = "see `headrace journal ls`, or make it with `headrace journal create` or `put`"
        raise NotFound(f"there is no journal {name!r} {where}: {advice}")


def log_path(store: Store, name: str) -> Path:
    """Where the log of a journal is, which anybody may read."""
    check_journal(store, name)
    return store.path / JOURNALS_DIRECTORY / name / "log"


def copy_of(log: Path) -> Origin | None:
    """Where it comes from, if it is the log of a copy."""
    with Log.open(log, read_only=True) as opened:
        return Origin.of(opened.meta)


def patient(open_it: Callable[[], T]) -> T:
    """Open what another command may have for a moment."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return open_it()
        except JournalTaken:
            if time.monotonic() >= end:
                raise
            time.sleep(_LOOK_S)


def _id_of(journal: Journal, job: Named) -> int:
    if (id_ := job.id) is not None:
        return id_
    row = journal.engine.state.jobs.worked_on.get(job.text.encode("utf-8", "surrogateescape"))
    if row is None:
        raise job.lost()
    return row.id


def _wait_for_more(path: Path, reached: int, look_at: float) -> None:
    """Until the log goes on beyond `reached`, or the time has come."""
    with Log.open(path, read_only=True) as log:
        while log.next_index <= reached and (left := look_at - time.monotonic()) > 0:
            time.sleep(min(_LOOK_S, left))
