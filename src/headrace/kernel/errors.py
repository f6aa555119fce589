"""Errors, grouped by what the caller can do about them.

    Retryable   try again later: nothing was changed            (disk full, log full)
    Refused     the request is wrong or not allowed             (schema, names, a taken writer)
    Damaged     data on disk is not what was written            (checksums, missing segments)
    Closed      you closed it
    Broken      it failed under you: reopen, recovery decides   (failed fsync, fenced writer)

Each class has a stable `code`, which travels over the wire and into the CLI's last line, and each
message is one sentence for a person: what happened, to what, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar


class HeadraceError(Exception):
    """The root of everything headrace raises on purpose."""

    code: ClassVar[str] = "error"


class Retryable(HeadraceError):
    code = "retryable"


class Refused(HeadraceError):
    code = "refused"


class Damaged(HeadraceError):
    code = "damaged"


class Closed(HeadraceError):
    code = "closed"


class Broken(HeadraceError):
    code = "broken"


# --- Retryable


class DiskFull(Retryable):
    """No room on the disk. What was asked for is not in the log; free some room and ask again."""

    code = "disk_full"


class LogFull(Retryable):
    """Every container of a ring holds live entries. Trim the log, or allow more containers."""

    code = "log_full"


class Busy(Retryable):
    """Too many at once. Try again later."""

    code = "busy"


class TooSlow(Retryable):
    """A peer took too long to send what it had begun. Send it again."""

    code = "too_slow"


class BadFrame(Retryable):
    """What came over a line is not the frame that must come next. Nothing of it was taken; ask again."""

    code = "bad_frame"


# --- Refused


class NotFound(Refused):
    code = "not_found"


class NotALog(Refused):
    """The path is a file, or a directory with other things in it."""

    code = "not_a_log"


class BadName(Refused):
    code = "bad_name"


class BadSettings(Refused):
    code = "bad_settings"


class NewerFormat(Refused):
    """Written by a newer headrace. Nothing was touched."""

    code = "newer_format"


class SchemaMismatch(Refused):
    code = "schema_mismatch"


class KeyOrder(Refused):
    """An order key would go backwards."""

    code = "key_order"


class WriterTaken(Refused):
    """Another writer, in this process or another, holds the log."""

    code = "writer_taken"


class ReadOnly(Refused):
    code = "read_only"


class TooLarge(Refused):
    code = "too_large"


class Trimmed(Refused):
    """The index asked for has been removed by trim or retention."""

    code = "trimmed"


class Truncated(Refused):
    """Entries that a reader had passed were cut off behind it."""

    code = "truncated"


class Diverged(Refused):
    """A copy and its source have different histories: one of them was cut, replaced or written to."""

    code = "diverged"


class IsReplica(Refused):
    """The log is a copy of another, which only its follower may write."""

    code = "is_replica"


class MissingExtra(Refused):
    """A part of headrace that is installed separately is not there."""

    code = "missing_extra"


class NoPermission(Refused):
    code = "no_permission"


class Unauthorized(Refused):
    """A node does not know who is asking: no token, or one that is unknown, revoked or expired."""

    code = "unauthorized"


# --- Broken


class DiskFailed(Broken):
    """The disk failed in a way that leaves the last writes in doubt. Reopen: recovery decides."""

    code = "disk_failed"


class Fenced(Broken):
    """A newer writer took the log over. This one can never append again."""

    code = "fenced"


# --- over the wire


_kinds: dict[str, type[HeadraceError]] = {}


def by_code(code: str, sentence: str) -> HeadraceError:
    """The exception that was raised elsewhere with this code; one of a newer headrace is Refused."""
    if code not in _kinds:
        _kinds.update((kind.code, kind) for kind in _all_kinds(HeadraceError))
    kind = _kinds.get(code, HeadraceError)
    if kind is HeadraceError:
        return Refused(f"{code}: {sentence}" if sentence else code)
    try:
        return kind(sentence)
    except TypeError:  # made of more than a sentence: then its group says what to do
        groups = (Retryable, Refused, Damaged, Closed, Broken)
        return next(group for group in kind.__mro__ if group in groups)(sentence)


def _all_kinds(root: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    """Subclasses first: one that has no code of its own must not take the place of its parent."""
    for kind in root.__subclasses__():
        yield from _all_kinds(kind)
    yield root
