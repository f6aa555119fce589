"""Many jobs in one request of FJ: what its value holds then. docs/protocols/fj.md, "Many at once".

    to put them      for each: size of the resource (16 bits), type (8), size of the payload (32), both
    they are done    for each: size of the resource (16 bits), the resource

Numbers are big endian, as everywhere in the header of a request.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from headrace.kernel.errors import TooLarge
from headrace.wire.errors import ProtocolError
from headrace.wire.fj import SIZE_MAX

_JOB = Struct(">HBI")
_KEY = Struct(">H")


def pack_jobs(jobs: Iterable[tuple[bytes, int, bytes]]) -> bytes:
    """Resources with the type and bytes of their payloads."""
    parts: list[bytes] = []
    for resource, kind, payload in jobs:
        if len(resource) > SIZE_MAX:
            raise TooLarge(f"a resource has up to {SIZE_MAX} bytes, not {len(resource)}")
        parts += (_JOB.pack(len(resource), kind, len(payload)), resource, payload)
    return b"".join(parts)


def unpack_jobs(data: bytes) -> list[tuple[bytes, int, bytes]]:
    """What `pack_jobs` packed, or ProtocolError."""
    jobs, at, end, head = [], 0, len(data), _JOB.size
    while at + head <= end:
        size, kind, payload = _JOB.unpack_from(data, at)
        middle = at + head + size
        jobs.append((data[at + head : middle], kind, data[middle : middle + payload]))
        at = middle + payload
    if at != end:
        raise ProtocolError("the list of jobs in this request is cut short")
    return jobs


def pack_keys(keys: Iterable[bytes]) -> bytes:
    parts: list[bytes] = []
    for key in keys:
        if len(key) > SIZE_MAX:
            raise TooLarge(f"a resource has up to {SIZE_MAX} bytes, not {len(key)}")
        parts += (_KEY.pack(len(key)), key)
    return b"".join(parts)


def unpack_keys(data: bytes) -> list[bytes]:
    """What `pack_keys` packed, or ProtocolError."""
    keys, at, end = [], 0, len(data)
    while at + 2 <= end:
        stop = at + 2 + (data[at] << 8 | data[at + 1])
        keys.append(data[at + 2 : stop])
        at = stop
    if at != end:
        raise ProtocolError("the list of resources in this request is cut short")
    return keys
