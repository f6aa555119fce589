"""What callers give is looked at here, before anything is changed: one clear error for each mistake."""

from __future__ import annotations

from typing import Any

from headrace.journal.errors import BadRequest
from headrace.kernel.errors import TooLarge

KEY_BYTES_MAX = 65_535
"""Of a key, and of a resource: what fits the wire."""
RESERVED = b"\0"
"""Keys that begin so are the journal's own: nobody else sets them, and no range shows them."""
TIME_MAX_US = 253_402_300_799_999_999
"""The end of the year 9999, beyond which few calendars go."""


def resource_bytes(resource: str) -> bytes:
    return _text_bytes(resource, "resource")


def resources_bytes(resources: list[str]) -> list[bytes]:
    """Of many. Nearly always there is nothing to complain of, which C can tell."""
    try:
        raws = list(map(str.encode, resources))
    except (TypeError, UnicodeEncodeError):
        raws = []
    if raws and all(raws) and max(map(len, raws)) <= KEY_BYTES_MAX:
        return raws
    return [resource_bytes(resource) for resource in resources]


def key_bytes(key: str) -> bytes:
    raw = _text_bytes(key, "key")
    if raw.startswith(RESERVED):
        raise BadRequest("keys that begin with a zero byte are the journal's own")
    return raw


def pattern_bytes(pattern: str) -> bytes:
    return _text_bytes(pattern, "pattern") if pattern != "" else b""


def text(raw: bytes) -> str:
    """Bytes as text that becomes the same bytes again."""
    return raw.decode("utf-8", "surrogateescape")


def domain(name: Any) -> str:
    """A domain as it is stored: text that is valid UTF-8."""
    if not isinstance(name, str):
        raise BadRequest(f"a domain is a text, not {name!r}")
    raw = name if name.isascii() else name.encode("utf-8", "replace")
    if len(raw) > KEY_BYTES_MAX:
        raise TooLarge(f"a domain has up to {KEY_BYTES_MAX} bytes, not {len(raw)}")
    return raw if isinstance(raw, str) else raw.decode()


def priority(number: Any) -> int:
    if type(number) is not int or not 0 <= number <= 255:
        raise BadRequest(f"a priority is a number from 0 to 255, not {number!r}")
    return number


def time_us(time: Any) -> int:
    if type(time) is not int or not 0 <= time <= TIME_MAX_US:
        raise BadRequest(f"a time is microseconds since 1970, up to the year 9999, not {time!r}")
    return time


def count(number: Any, what: str) -> int:
    if type(number) is not int or number < 0:
        raise BadRequest(f"{what} is a number from 0 on, not {number!r}")
    return number


def numbers(values: Any, what: str) -> list[int]:
    """A list of integers."""
    try:
        found = list(values)
    except TypeError:
        raise BadRequest(f"{what} are a list of numbers, not {values!r}") from None
    for number in found:
        if type(number) is not int:
            raise BadRequest(f"{what} are a list of numbers, and {number!r} is none")
    return found


def texts(values: Any, what: str) -> list[str]:
    """A list of texts; a single text is a mistake, not a list of its letters."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise BadRequest(f"{what} are a list of texts, not {values!r}")
    return list(values)


def once(given: Any) -> tuple[str, int]:
    """Who writes, and a number that grows."""
    if not isinstance(given, tuple) or len(given) != 2:
        raise BadRequest(f"once is a writer and a number, not {given!r}")
    writer, sequence = given
    if not isinstance(writer, str) or not writer or len(writer) > 200 or not writer.isprintable():
        raise BadRequest(f"a writer is a text of up to 200 characters, not {writer!r}")
    if type(sequence) is not int or not -(1 << 63) <= sequence < 1 << 63:
        raise BadRequest(f"a sequence number is an integer of 64 bits, not {sequence!r}")
    return writer, sequence


def job_id(given: Any) -> int:
    if type(given) is not int:
        raise BadRequest(f"a job, or the id of one, is needed, not {given!r}")
    return given


def size(value: bytes, limit: int) -> None:
    if len(value) > limit:
        raise TooLarge(f"a value has up to {limit} bytes, not {len(value)}")


def new_size(given: Any, limit: int) -> int:
    """What a value is to be cut or filled up to."""
    if type(given) is not int or not 0 <= given <= limit:
        raise BadRequest(f"a value has 0 to {limit} bytes, not {given!r}")
    return given


def _text_bytes(given: Any, what: str) -> bytes:
    if not isinstance(given, str) or not given:
        raise BadRequest(f"a {what} is a text that is not empty, not {given!r}")
    try:
        raw = given.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise BadRequest(f"the {what} {given!r} is no text that has bytes") from None
    if len(raw) > KEY_BYTES_MAX:
        raise TooLarge(f"a {what} has up to {KEY_BYTES_MAX} bytes, not {len(raw)}")
    return raw
