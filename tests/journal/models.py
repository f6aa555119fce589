"""What a journal should do, in plain Python: lists, linear search, and the time of each thing written down.

Nothing here is quick, and nothing is on a disk. `test_model.py` does the same to a model and to a journal,
and compares every answer. Whoever doubts what an operation means can read it here.

Of a model, `reopen` is all that is left of durability: what was not to persist is gone, and locks with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.journal import Data, KeyTaken, LeaseLost, Locked, NoSuchKey, OutOfRange, WrongType
from headrace.kernel.backoff import Backoff

# --- jobs


@dataclass(eq=False)
class ModelJob:
    id: int | None
    """None until the journal tells it, if it gave a new one without being asked."""
    born: int
    """Of two jobs with one priority and due time the older comes first, but those in memory only first."""
    resource: str
    persist: bool
    domain: str = ""
    priority: int = 0
    due: int = 0
    expires: int | None = None
    value: Data = None
    attempts: int = 0
    state: str = "pending"
    until: int = 0


@dataclass
class JobModel:
    max_attempts: int | None = None
    retry: Backoff = field(default_factory=Backoff)
    keep_highest_priority: bool = False
    jobs: list[ModelJob] = field(default_factory=list)
    ids: set[int] = field(default_factory=set)
    born: int = 0

    def one(self, state: str, resource: str) -> ModelJob | None:
        found = [job for job in self.jobs if job.state == state and job.resource == resource]
        assert len(found) <= 1, f"{len(found)} jobs of {resource!r} are {state}"
        return found[0] if found else None

    def tick(self, now: int) -> None:
        """Lives and leases end when somebody looks. Who is not wanted any more is not asked first."""
        self.jobs[:] = [
            job for job in self.jobs if job.state != "pending" or job.expires is None or job.expires > now
        ]
        for job in [job for job in self.jobs if job.state == "leased" and job.until <= now]:
            self.give_back(now, job, job.until)

    def put(self, now: int, job: ModelJob) -> ModelJob:
        """`job.id` is what the journal said."""
        self.tick(now)
        known = self.one("pending", job.resource)
        if known is not None and known.id is None:
            known.id = job.id
        if known is not None and (known.persist or not job.persist):
            assert job.id == known.id, "a pending job is updated, not doubled"
            if self.keep_highest_priority:
                job.priority = min(job.priority, known.priority)
            known.priority, known.due, known.domain = job.priority, job.due, job.domain
            known.value, known.expires = job.value, job.expires
            return known
        if known is not None:  # it was not to persist, and now it is
            self.jobs.remove(known)
        assert job.id not in self.ids, "an id is never used twice"
        self.ids.add(job.id)
        self.born += 1
        job.born = self.born
        self.jobs.append(job)
        return job

    def named(self, resource: str, id_: int) -> None:
        """The journal told the id of the pending job of a resource."""
        job = self.one("pending", resource)
        if job is not None and job.id is None:
            job.id = id_

    def is_beside(self, job: ModelJob) -> bool:
        return job.state == "pending" and self.one("leased", job.resource) is not None

    def ready(self, now: int, domain: str | None) -> list[ModelJob]:
        """Those that could be given out now, the next one first."""
        found = [
            job
            for job in self.jobs
            if job.state == "pending"
            and job.due <= now
            and (job.expires is None or job.expires > now)
            and domain in (None, job.domain)
            and not self.is_beside(job)
        ]
        return sorted(found, key=lambda job: (job.priority, job.due, job.persist, job.born))

    def take(self, job: ModelJob, until: int, delete: bool) -> None:
        job.attempts += 1
        if delete:
            self.jobs.remove(job)
        else:
            job.state, job.until = "leased", until

    def next_at(self, now: int, domain: str | None) -> int | None:
        """When something becomes due, or a lease ends."""
        self.tick(now)
        times = [job.until for job in self.jobs if job.state == "leased" and domain in (None, job.domain)]
        times += [
            job.due
            for job in self.jobs
            if job.state == "pending"
            and job.due > now
            and domain in (None, job.domain)
            and not self.is_beside(job)
        ]
        return min(times, default=None)

    def leased(self, now: int, id_: int, until: int | None = None) -> ModelJob:
        self.tick(now)
        for job in self.jobs:
            if job.id == id_ and job.state == "leased" and until in (None, job.until):
                return job
        raise LeaseLost

    def done(self, now: int, id_: int, until: int | None) -> None:
        self.jobs.remove(self.leased(now, id_, until))

    def fail(self, now: int, id_: int, until: int, retry_us: int | None) -> None:
        job = self.leased(now, id_, until)
        self.give_back(now, job, now + (self.retry.pause_us(job.attempts) if retry_us is None else retry_us))

    def newer(self, job: ModelJob) -> bool:
        """Whether a pending job takes the place of this one. It does so on the disk, too, if this one was
        there; then it is a new one there, and who has its id will not find it.
        """
        second = self.one("pending", job.resource)
        if second is not None and job.persist and not second.persist:
            self.born += 1
            second.persist, second.born, second.id = True, self.born, None
        return second is not None

    def give_back(self, now: int, job: ModelJob, due: int) -> None:
        if self.newer(job) or (job.expires is not None and job.expires <= now):
            self.jobs.remove(job)
        elif self.max_attempts is not None and job.attempts >= self.max_attempts:
            earlier = self.one("dead", job.resource)
            if earlier is not None and earlier.persist and not job.persist:
                self.jobs.remove(job)
                return
            if earlier is not None:
                self.jobs.remove(earlier)
            job.state, job.until = "dead", now
        else:
            job.state, job.due, job.until = "pending", due, 0

    def extend(self, now: int, id_: int, until: int, new_until: int) -> None:
        self.leased(now, id_, until).until = new_until

    def cancel(self, now: int, resource: str) -> None:
        self.tick(now)
        job = self.one("pending", resource)
        if job is None:
            raise NoSuchKey
        self.jobs.remove(job)

    def redrive(self, now: int, resources: list[str] | None) -> int:
        self.tick(now)
        count = 0
        for job in [job for job in self.jobs if job.state == "dead"]:
            if resources is not None and job.resource not in resources:
                continue
            if self.newer(job):
                self.jobs.remove(job)
            else:
                job.state, job.due, job.attempts, job.until = "pending", now, 0, 0
                count += 1
        return count

    def reopen(self) -> None:
        self.jobs = [job for job in self.jobs if job.persist]


# --- values


@dataclass(eq=False)
class ModelValue:
    keys: list[str]
    value: Data
    stamp: int
    expires: int | None
    ttl: int | None
    persist: bool
    created: int
    modified: int
    lease: int = 0
    owner: str | None = None
    lock_until: int = 0


@dataclass
class ValueModel:
    values: list[ModelValue] = field(default_factory=list)
    deleted: dict[str, int] = field(default_factory=dict)
    """Key -> the largest timestamp of its deletions."""
    hidden: dict[str, int] = field(default_factory=dict)
    """Deletions that a value in memory only stands for. They may come back when it is gone, or not."""

    def find(self, now: int, key: str) -> ModelValue | None:
        self.values = [value for value in self.values if value.expires is None or value.expires > now]
        for value in self.values:
            if key in value.keys:
                return value
        return None

    def to_change(self, now: int, key: str, owner: str | None) -> ModelValue:
        value = self.find(now, key)
        if value is None:
            raise NoSuchKey
        self.check_lock(now, value, owner)
        return value

    def check_lock(self, now: int, value: ModelValue, owner: str | None) -> None:
        if value.owner is not None and value.lock_until > now and value.owner != owner:
            raise Locked

    def set(self, now: int, key: str, new: ModelValue, overwrite: bool, owner: str | None) -> bool | None:
        """None: it may have been set or not."""
        value = self.find(now, key)
        if value is not None:
            if not overwrite:
                raise KeyTaken
            self.check_lock(now, value, owner)
            if new.stamp < value.stamp:
                return False
        elif new.stamp < self.deleted.get(key, new.stamp):
            return False
        elif new.stamp < self.hidden.get(key, new.stamp):
            return None
        self.store(key, value, new)
        return True

    def store(self, key: str, value: ModelValue | None, new: ModelValue) -> None:
        tombstone = self.deleted.pop(key, None)
        if not new.persist and tombstone is not None:
            self.hidden[key] = tombstone
        elif new.persist:
            self.hidden.pop(key, None)
        if value is None:
            self.values.append(new)
        else:
            value.value, value.stamp, value.expires, value.ttl = new.value, new.stamp, new.expires, new.ttl
            value.persist, value.modified = new.persist, new.modified

    def latest(self, now: int, key: str) -> int:
        """When it is now for a key: never before what is known of it, though clocks may go back."""
        value = self.find(now, key)
        return max(now, value.stamp if value is not None else 0, self.deleted.get(key, 0))

    def delete(self, now: int, key: str, stamp: int | None, erase: bool, owner: str | None) -> bool:
        value = self.find(now, key)
        if stamp is None:
            stamp = now if value is None else max(now, value.stamp)
        if value is not None:
            self.check_lock(now, value, owner)
            if stamp < value.stamp:
                return False
            self.values.remove(value)
        for each in value.keys if value is not None else [key]:
            if erase:
                self.deleted.pop(each, None)
                if value is None or value.persist:
                    self.hidden.pop(each, None)
            else:
                self.deleted[each] = max(stamp, self.deleted.get(each, stamp))
        if value is None:
            raise NoSuchKey
        return True

    def rewrite(self, now: int, key: str, owner: str | None, change: Callable[[Data], Data]) -> Data:
        """ADD, NOT and TRUNCATE: a new value, all at once."""
        value = self.to_change(now, key, owner)
        value.value = change(value.value)
        value.modified, value.stamp = now, max(now, value.stamp)
        return value.value

    def touch(self, now: int, value: ModelValue) -> None:
        if value.ttl is not None and (value.expires is None or now + value.ttl > value.expires):
            value.expires = now + value.ttl

    def rename(self, now: int, key: str, other: str, owner: str | None) -> None:
        value = self.to_change(now, key, owner)
        if key == other:
            return
        self.link(now, key, other, owner)
        value.keys.remove(key)
        self.hidden.pop(key, None)
        value.modified = now

    def link(self, now: int, key: str, other: str, owner: str | None) -> None:
        value = self.to_change(now, key, owner)
        if self.find(now, other) is not None:
            raise KeyTaken
        tombstone = self.deleted.pop(other, None)
        if tombstone is not None and not value.persist:
            self.hidden[other] = tombstone
        value.keys.append(other)

    def reopen(self) -> None:
        self.values = [value for value in self.values if value.persist]
        for value in self.values:
            value.owner, value.lock_until = None, 0


def added(value: Data, step: int | float) -> Data:
    if type(value) is int and type(step) is int:
        if not -(1 << 63) <= value + step < 1 << 63:
            raise OutOfRange
        return value + step
    if type(value) is float:
        return value + step
    raise WrongType


def flipped(value: Data) -> Data:
    if not isinstance(value, bool):
        raise WrongType
    return not value


def resized(value: Data, size: int) -> Data:
    """Of texts and bytes; what becomes of numbers is told in test_value.py."""
    if isinstance(value, str):
        return value[:size].ljust(size, "\0")
    assert isinstance(value, bytes)
    return value[:size].ljust(size, b"\0")
