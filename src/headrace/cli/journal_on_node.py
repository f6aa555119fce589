"""A journal on a node, for commands: the verbs of a journal in a store, asked of the node.

    headrace journal get pages visits --server http://localhost:7400

A node has many journals, so its commands take the name, as those on a store do.
"""

from __future__ import annotations

import queue
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.cli.console import Console, printable
from headrace.cli.journal_shown import shown_data, shown_time
from headrace.cli.journal_verbs import Named, Put, Take, check_journal
from headrace.journal import Data, Job, Nothing, Type, Value
from headrace.journal.journal import JobInfo

if TYPE_CHECKING:
    from headrace.client.remote import RemoteStore
    from headrace.client.remote_journal import RemoteJournal


class OnNode:
    """The journal `name` of a node; see `Verbs`."""

    def __init__(self, store: RemoteStore, name: str, console: Console) -> None:
        self._store = store
        self._name = name
        self._console = console

    def put(self, resource: str, how: Put) -> int | None:
        return self._made().put(
            resource,
            priority=how.priority,
            after=how.after,
            value=how.value,
            domain=how.domain,
            ttl=how.ttl,
            persist=how.persist,
        )

    def put_many(self, groups: Iterable[Sequence[str]], how: Put) -> int:
        journal, count = self._made(), 0
        for resources in groups:
            values = [how.value] * len(resources)
            journal.put_batch(
                resources, priority=how.priority, after=how.after, values=values, domain=how.domain
            )
            count += len(resources)
        return count

    def next(self, wanted: Take) -> Job | Nothing:
        return self._there().next(wanted.domain, lease=wanted.lease, wait=wanted.wait, delete=wanted.delete)

    def done(self, job: Named, until_us: int | None) -> None:
        journal = self._there()
        journal.done(_id_of(journal, job), until_us)

    def fail(self, job: Named, until_us: int | None, retry_in: float | None) -> None:
        journal = self._there()
        journal.fail(_id_of(journal, job), retry_in, until_us)

    def set(self, key: str, value: Data, *, ttl: float | None, persist: bool, overwrite: bool) -> None:
        self._made().set(key, value, ttl=ttl, persist=persist, overwrite=overwrite)

    def get(self, key: str, *, touch: bool) -> Value | None:
        return self._there().get(key, touch=touch)

    def delete(self, key: str, *, now: bool) -> None:
        self._there().delete(key, now=now)

    def range(self, low: str, high: str | None, count: int | None) -> Iterator[Value]:
        yield from self._there().range(low, high, count)

    def match(self, pattern: str, count: int | None) -> Iterator[Value]:
        yield from self._there().match(pattern, count)

    # --- what a server of one journal has no words for

    def counted(self) -> dict[str, Any]:
        """As `headrace journal stats` tells it."""
        stats = self._there().stats()
        return {
            "pending": stats.pending,
            "ready": stats.ready,
            "leased": stats.leased,
            "dead": stats.dead,
            "values": stats.values,
            "oldest_due": shown_time(stats.oldest_due_us),
            "by_priority": {str(priority): count for priority, count in stats.by_priority.items()},
            "by_domain": {printable(name): count for name, count in stats.by_domain.items()},
            "log_events": stats.log_events,
            "log_bytes": stats.log_bytes,
        }

    def job_rows(self, state: str | None, count: int | None) -> list[tuple[object, ...]]:
        """As `headrace journal ls NAME` lists them."""
        found = [info for info in self._there().jobs() if state is None or info.state == state]
        found.sort(key=lambda info: (info.state == "dead", info.priority, info.due_us, info.id))
        return [_row(info) for info in found[:count]]

    def redrive(self, resources: Sequence[str] | None) -> int:
        return self._there().redrive(resources)

    def changes(self, key: str) -> Iterator[tuple[str, Type]]:
        """What a key is whenever it has changed, from now on."""
        changed: queue.SimpleQueue[tuple[str, Type]] = queue.SimpleQueue()
        self._there().listen(key, lambda name, kind: changed.put((name, kind)))
        return iter(changed.get, None)

    def _there(self) -> RemoteJournal:
        check_journal(self._store, self._name)
        return self._store.journal(self._name)

    def _made(self) -> RemoteJournal:
        """That it was made now is told, since the name may be a slip."""
        new = not self._store.has_journal(self._name)
        journal = self._store.journal(self._name)
        if new:
            self._console.note(f"made the journal {self._name!r} at {self._store.url}")
        return journal


def _id_of(journal: RemoteJournal, job: Named) -> int:
    if (id_ := job.id) is not None:
        return id_
    for info in journal.jobs():
        if info.resource == job.text and info.state == "leased":
            return info.id
    raise job.lost()


def _row(info: JobInfo) -> tuple[object, ...]:
    return (
        info.id,
        info.state,
        info.priority,
        shown_time(info.due_us),
        info.attempts,
        shown_time(info.until_us),
        printable(info.resource),
        shown_data(info.value),
    )
