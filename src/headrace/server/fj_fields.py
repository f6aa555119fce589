"""What the fields of FJ requests may hold, and what is told of errors."""

from __future__ import annotations

from headrace.journal.checks import RESERVED, TIME_MAX_US
from headrace.journal.errors import BadRequest, NoSuchKey
from headrace.journal.value import Type
from headrace.kernel.errors import HeadraceError, TooLarge
from headrace.wire.fj import SIZE_MAX, Reply, Request

TYPE_MAX = int(max(Type))
REPLY_BYTES = 4 << 20
"""About how much one reply carries before it says that there is more."""


def refusal(request: Request, error: HeadraceError, now: int) -> Reply:
    """What the client is told of an error; it makes the same exception of it again."""
    text = b"does not exist" if isinstance(error, NoSuchKey) else f"{error.code}: {error}".encode()[:60_000]
    return Reply(request.identifier, 0, now, None, text)


def second_key(request: Request) -> bytes:
    if not request.upper:
        raise BadRequest("a second key is needed (query 1)")
    check_key(request.upper)
    return request.upper


def check_key(key: bytes) -> None:
    if not key:
        raise BadRequest("a key is needed")
    if key.startswith(RESERVED):
        raise BadRequest("keys that begin with a zero byte are the journal's own")


def check_type(kind: int) -> None:
    """A byte may say more than there are types, and than a column of the log takes."""
    if kind > TYPE_MAX:
        raise BadRequest(f"there is no type {kind}: 0 to {TYPE_MAX} are known")


def check_cursor(cursor: bytes | None) -> None:
    """It holds the last key, and the upper one or the expression: long ones do not fit together."""
    if cursor is not None and len(cursor) > SIZE_MAX:
        raise TooLarge(
            f"the cursor behind this page would have {len(cursor)} bytes, and {SIZE_MAX} fit: "
            "ask for more values at a time, or up to a shorter key"
        )


def moment(time: int | None) -> int | None:
    if time is not None and time > TIME_MAX_US:
        raise BadRequest(f"times are microseconds since 1970; {time} is beyond all bounds")
    return time


def number(text: bytes, most: int, what: str) -> int | None:
    """A decimal number; None if it is left out."""
    if not text:
        return None
    if not text.isdigit() or len(text) > 19 or int(text) > most:
        raise BadRequest(f"{text[:40].decode(errors='replace')!r} is no {what}")
    return int(text)
