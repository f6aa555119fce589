"""What replies mean: values, jobs, and errors as the exceptions that the server had.

An error is the text `code: sentence`. The code is that of an exception class, so a client catches
what an embedded journal raises. Two texts are fixed by the protocol instead: "does not exist" and
"nothing to work on".
"""

from __future__ import annotations

from headrace.journal.errors import BadRequest, NoSuchKey
from headrace.journal.value import Type, Value, decode
from headrace.kernel.errors import HeadraceError, Refused, by_code
from headrace.wire.fj import BUSY, SIZE_MAX, Pair, Reply

NO_KEY = b"does not exist"
NO_JOB = b"nothing to work on"
_TYPES = {int(kind): kind for kind in Type}


def check(reply: Reply, key: bytes) -> Reply:
    """The reply, unless it is an error: that is raised."""
    if reply.error:
        raise failure(reply.error, key)
    return reply


def carried_out(key: bytes, reply: Reply) -> None:
    """How to read a reply that says nothing, if all is well."""
    if reply.error:
        raise failure(reply.error, key)


def failure(error: bytes, key: bytes = b"") -> HeadraceError:
    """The exception that an error text stands for."""
    if error == NO_KEY:
        return NoSuchKey(f"there is no value and no job under {text(key)!r}")
    said = error.decode("utf-8", "replace")
    code, _, sentence = said.partition(": ")
    return by_code(code, sentence)


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def raw(name: str | bytes) -> bytes:
    """A key or a resource as bytes."""
    if isinstance(name, str):
        found = name.encode("utf-8", "surrogateescape")
    elif isinstance(name, bytes):
        found = name
    else:  # bytes(3) would be three zeros
        raise BadRequest(f"a key or resource is a text, not {name!r}")
    if len(found) > SIZE_MAX:
        raise BadRequest(f"a key or resource has at most {SIZE_MAX} bytes, not {len(found)}")
    return found


def named(name: str | bytes) -> bytes:
    """The same of what is put or set: who spools it learns here what the server would refuse later."""
    found = raw(name)
    if not found:
        raise BadRequest(f"a key or resource is a text that is not empty, not {name!r}")
    return found


def value_of(pair: Pair, *, reply: Reply | None = None) -> Value:
    """A value; what is told of a single one only is in its reply."""
    kind = _TYPES.get(pair.type or 0, Type.BUFFER)
    data = decode(kind, pair.value) if pair.value else _nothing(kind)
    if reply is None:
        return Value(text(pair.key), data, kind)
    return Value(
        text(pair.key),
        data,
        kind,
        expires_us=reply.timeout,
        timestamp_us=reply.timestamp,
        locked=bool(reply.flags & BUSY),
    )


def _nothing(kind: Type) -> bytes | str | None:
    """No bytes: an empty text or buffer. Of the others it is what a probe sees."""
    if kind == Type.STRING:
        return ""
    return b"" if kind == Type.BUFFER else None


def pairs_of(reply: Reply) -> list[Pair]:
    return reply.pairs or []


def only_pair(reply: Reply, key: bytes) -> Pair:
    if reply.pairs:
        return reply.pairs[0]
    raise Refused(f"the server answered without the value of {text(key)!r}: it may not speak this version")
