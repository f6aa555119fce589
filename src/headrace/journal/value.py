"""Values: what is kept under keys, and how Python's types become the six of the FJ protocol.

    0 void      nothing                          None
    1 buffer    the bytes                        bytes
    2 string    UTF-8                            str
    3 integer   little endian, 1, 2, 4 or 8      int (written with 8)
    4 float     IEEE 754, 4 or 8                 float (written with 8)
    5 boolean   one byte, 0 or 1                 bool

A value whose bytes do not fit its type (a client may send any) reads as the bytes themselves.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import IntEnum

from headrace.journal.errors import BadRequest, OutOfRange, WrongType
from headrace.journal.job import Data

INTEGER_SIZES = (1, 2, 4, 8)
_INFINITY = struct.pack("<d", math.inf)
_FLOATS = {4: struct.Struct("<f"), 8: struct.Struct("<d")}


class Type(IntEnum):
    VOID = 0
    BUFFER = 1
    STRING = 2
    INTEGER = 3
    FLOAT = 4
    BOOLEAN = 5


# Plain numbers, for what is asked of every job: to look up a member of an enum costs 0.2 µs.
_VOID, _BUFFER, _STRING = int(Type.VOID), int(Type.BUFFER), int(Type.STRING)
_INTEGER, _FLOAT, _BOOLEAN = int(Type.INTEGER), int(Type.FLOAT), int(Type.BOOLEAN)


@dataclass(frozen=True, slots=True)
class Value:
    """One value with what is known of it. Times are microseconds since 1970."""

    key: str
    value: Data
    type: Type
    expires_us: int | None = None
    ttl_us: int | None = None
    persist: bool = True
    created_us: int = 0
    modified_us: int = 0
    accessed_us: int = 0
    timestamp_us: int = 0
    """The time its last writer gave; of two writers the one with the larger wins."""
    locked: bool = False
    """Whether somebody has locked it or works on it."""
    keys: tuple[str, ...] = ()
    """All its keys, if there are several."""


def encode(data: Data) -> tuple[int, bytes]:
    """The type and the bytes."""
    if data is None:
        return _VOID, b""
    if isinstance(data, bytes | bytearray | memoryview):
        return _BUFFER, bytes(data)
    if isinstance(data, str):
        return _STRING, data.encode("utf-8", "surrogateescape")
    if isinstance(data, bool):
        return _BOOLEAN, bytes((data,))
    if isinstance(data, int):
        if not -(1 << 63) <= data < 1 << 63:
            raise OutOfRange(f"an integer has 64 bits; {data} does not fit")
        return _INTEGER, data.to_bytes(8, "little", signed=True)
    if isinstance(data, float):
        return _FLOAT, _FLOATS[8].pack(data)
    raise BadRequest(f"a value is bytes, str, int, float, bool or None, not {type(data).__name__}")


def decode(kind: int, raw: bytes) -> Data:
    if kind == _VOID:
        return raw or None
    if kind == _STRING:
        return raw.decode("utf-8", "surrogateescape")
    if kind == _INTEGER and len(raw) in INTEGER_SIZES:
        return int.from_bytes(raw, "little", signed=True)
    if kind == _FLOAT and len(raw) in _FLOATS:
        return float(_FLOATS[len(raw)].unpack(raw)[0])
    if kind == _BOOLEAN and len(raw) == 1:
        return raw[0] != 0
    return raw


def added(kind: int, raw: bytes, delta_kind: int, delta: bytes) -> bytes:
    """What ADD makes of a number: it keeps its type and size, or OutOfRange."""
    number, step = decode(kind, raw), decode(delta_kind, delta)
    if kind == Type.INTEGER and isinstance(number, int) and isinstance(step, int) and delta_kind == kind:
        total = number + step
        limit = 1 << (8 * len(raw) - 1)
        if not -limit <= total < limit:
            raise OutOfRange(f"{number} + {step} does not fit an integer of {len(raw)} bytes")
        return total.to_bytes(len(raw), "little", signed=True)
    if kind == Type.FLOAT and isinstance(number, float) and delta_kind in (Type.INTEGER, Type.FLOAT):
        if not isinstance(step, int | float):
            raise WrongType("ADD takes a number")
        try:
            packed = _FLOATS[len(raw)].pack(number + step)
        except OverflowError:
            packed = _INFINITY
        if (
            math.isinf(_FLOATS[len(packed)].unpack(packed)[0])
            and math.isfinite(number)
            and math.isfinite(step)
        ):
            raise OutOfRange(f"{number} + {step} does not fit a float of {len(raw)} bytes")
        return packed
    raise WrongType(f"ADD needs two numbers of one kind, not {_name(kind)} and {_name(delta_kind)}")


def flipped(kind: int, raw: bytes) -> bytes:
    """What NOT makes of a boolean."""
    if kind != Type.BOOLEAN or len(raw) != 1:
        raise WrongType(f"NOT needs a boolean, not {_name(kind)}")
    return bytes((not raw[0],))


def _name(kind: int) -> str:
    return Type(kind).name.lower() if kind in set(Type) else f"type {kind}"
