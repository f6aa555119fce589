"""Rows: a job and a value as the journal keeps them in memory. There may be millions: slots, no dicts."""

from __future__ import annotations

from enum import IntEnum


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

    def __init__(self, id: int, resource: bytes) -> None:  # noqa: A002
        self.id = id
        """Index of the event that made it; negative, and not in the log at all, if it is volatile."""
        self.resource = resource
        self.domain = ""
        self.priority = 0
        self.due = 0
        self.value: bytes | None = b""
        """The payload; None while it is on the disk only, at `place`."""
        self.type = 0
        self.attempts = 0
        self.lease = 0
        """When it ends; for a dead job when it died."""
        self.expires: int | None = None
        self.stamp = 0
        self.place = id
        """Index of the last complete event."""
        self.where = 0

    def copy(self) -> JobRow:
        new = JobRow(self.id, self.resource)
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
