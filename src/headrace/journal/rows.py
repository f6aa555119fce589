"""Rows: a job and a value as the journal keeps them in memory. There may be millions: slots, no dicts."""

from __future__ import annotations

from enum import IntEnum
from sys import intern

import msgspec

from headrace.journal.events import Event


class Where(IntEnum):
    """What a job is, and which of the tables has it."""

    GONE = 0
    PENDING = 1
    LEASED = 2
    DEAD = 3
    BESIDE = 4
    """Pending, but its resource is being worked on: it waits until that is over."""


class JobRow(msgspec.Struct, gc=False, eq=False):
    """A Struct, because C makes it, many of them in one call; and it holds nothing that could refer to it."""

    id: int
    """Index of the event that made it; negative, and not in the log at all, if it is volatile."""
    resource: bytes
    domain: str
    priority: int
    due: int
    stamp: int
    place: int
    """Index of the last complete event."""
    type: int
    value: bytes | None
    """The payload; None while it is on the disk only, at `place`."""
    expires: int | None = None
    attempts: int = 0
    lease: int = 0
    """When it ends; for a dead job when it died."""
    where: int = int(Where.GONE)

    @classmethod
    def of(cls, event: Event, place: int) -> JobRow:
        """What a complete event says, except for the payload; it is nowhere yet."""
        _, _, id_, key, _, domain, priority, due, _, expires, stamp, attempts, kind, _, _, _ = event
        assert id_ is not None
        assert key is not None
        due = due or 0
        if stamp == due:
            stamp = due  # one number in memory, not two that are equal
        if place == id_:
            place = id_
        name, rank, tries = intern(domain or ""), priority or 0, attempts or 0
        return cls(id_, key, name, rank, due, stamp or 0, place, kind or 0, b"", expires, tries)

    def said_again(self, new: JobRow) -> None:
        """Everything that a complete event says, and that `of` made `new` of."""
        for name in _SAID:
            setattr(self, name, getattr(new, name))

    def __lt__(self, other: JobRow) -> bool:
        """Heaps ask this only of two rows of one job, equal in all that counts: either may go first."""
        return False

    @property
    def size(self) -> int:
        return 0 if self.value is None else len(self.value)

    @property
    def volatile(self) -> bool:
        return self.id < 0


_SAID = ("id", "resource", "domain", "priority", "due", "stamp", "place", "type", "expires", "attempts")


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
