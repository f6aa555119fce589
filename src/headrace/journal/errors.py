"""Errors of journals, beside those of the log."""

from __future__ import annotations

from headrace.kernel.errors import NotFound, Refused, Retryable, WriterTaken


class BadRequest(Refused):
    """Something about the request itself is wrong: a priority, a key, a time."""

    code = "bad_request"


class NoSuchKey(NotFound):
    """There is no value, and no job, under that key."""

    code = "no_such_key"


class KeyTaken(Refused):
    """The key has a value already, and it was not to be overwritten."""

    code = "key_taken"


class WrongType(Refused):
    """The operation does not fit the type of the value."""

    code = "wrong_type"


class OutOfRange(Refused):
    """The result does not fit the value's size."""

    code = "out_of_range"


class Locked(Retryable):
    """Somebody else has locked the value, or works on it."""

    code = "locked"


class LeaseLost(Refused):
    """The job is not leased to the caller any more: its lease ended, and it may be worked on elsewhere."""

    code = "lease_lost"


class MemoryFull(Retryable):
    """Values that are kept in memory only have reached their limit."""

    code = "memory_full"


class NotWhole(Retryable):
    """A copy of a journal that has just begun does not have everything yet."""

    code = "not_whole"


class JournalTaken(WriterTaken):
    """Another process works with the journal. `headrace journal serve` shares one."""

    code = "journal_taken"
