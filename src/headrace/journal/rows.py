"""Rows: a job and a value as the journal keeps them in memory. There may be millions: slots, no dicts."""

from __future__ import annotations

from enum import IntEnum
from sys import intern

from headrace.journal.events import Event


class Where(IntEnum):
    """What a job is, and which of the tables has it."""

    GONE = 0
    PENDING = 1
    LEASED = 2
    DEAD = 3
    BESIDE = 4
    """Pending, but its resource is being worked on: it waits until that is over."""


class JobRow:
    __slots__ = (
        "attempts",
        "domain",
        "due",
        "expires",
        "id",
        "lease",
        "place",
        "priority",
        "resource",
        "stamp",
        "type",
        "value",
        "where",
    )

    lease: int
    """When it ends; for a dead job when it died."""
    where: int
    value: bytes | None
    """The payload; None while it is on the disk only, at `place`."""

    # No __init__: a row is made for every job, and `fill` says all but these three.

    def fill(self, event: Event, place: int) -> None:
        """What a complete event says, except for the payload."""
        _, _, id_, key, _, domain, priority, due, _, expires, stamp, attempts, kind, _, _, _ = event
        assert id_ is not None
        assert key is not None
        self.id = id_
        """Index of the event that made it; negative, and not in the log at all, if it is volatile."""
        self.resource = key
        self.domain = intern(domain or "")
        self.priority = priority or 0
        self.due = due or 0
        self.stamp = due or 0 if stamp == due else stamp or 0  # one number in memory, not two that are equal
        self.expires = expires
        self.attempts = attempts or 0
        self.type = kind or 0
        self.place = id_ if place == id_ else place
        """Index of the last complete event."""

    def __lt__(self, other: JobRow) -> bool:
        """Heaps ask this only of two rows of one job, equal in all that counts: either may go first."""
        return False

    def copy(self) -> JobRow:
        new = JobRow.__new__(JobRow)
        for name in JobRow.__slots__:
            setattr(new, name, getattr(self, name))
        return new

    @property
    def size(self) -> int:
        return 0 if self.value is None else len(self.value)

    @property
    def volatile(self) -> bool:
        return self.id < 0


class ValueRow:
    __slots__ = (
        "accessed",
        "created",
        "expires",
        "keys",
        "lease",
        "lock_owner",
        "lock_until",
        "modified",
        "place",
        "stamp",
        "ttl",
        "type",
        "value",
        "volatile",
    )

    def __init__(self, key: bytes) -> None:
        self.keys = [key]
        self.type = 0
        self.value: bytes | None = b""
        """None while it is on the disk only, at `place`."""
        self.expires: int | None = None
        self.ttl: int | None = None
        self.volatile = False
        self.created = 0
        self.modified = 0
        self.accessed = 0
        self.stamp = 0
        self.lease = 0
        self.lock_owner: object = None
        self.lock_until = 0
        self.place = 0

    @property
    def size(self) -> int:
        return 0 if self.value is None else len(self.value)
