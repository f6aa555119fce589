"""Names of segment files: for finalized ones the name says it all.

    00000000000000000000-00000000000000016383.k8000…00-8000…ff.seg   first and last index, and keys
    00000000000000016384.0000000001.active                           first index and epoch
    0000000000000003.free                                            a container waiting to be used again

Order keys stand in their sortable form, as 16 hexadecimal digits: names sort as the log does, and any
key type is safe in a name. The last key is the segment's HEAD: it counts head markers after the last entry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from headrace.kernel.limits import INDEX_MAX

_FINAL = re.compile(r"([0-9]{20})-([0-9]{20})\.k([0-9a-f]{16})-([0-9a-f]{16})\.seg\Z")
_ACTIVE = re.compile(r"([0-9]{20})\.([0-9]{10})\.active\Z")
_FREE = re.compile(r"([0-9]{16})\.free\Z")
_EPOCH_MAX = (1 << 32) - 1


@dataclass(frozen=True, slots=True, order=True)
class FinalName:
    first_index: int
    last_index: int
    first_key: int
    last_key: int

    def __str__(self) -> str:
        return (
            f"{self.first_index:020d}-{self.last_index:020d}.k{self.first_key:016x}-{self.last_key:016x}.seg"
        )

    @property
    def next_index(self) -> int:
        return self.last_index + 1


@dataclass(frozen=True, slots=True, order=True)
class ActiveName:
    epoch: int
    first_index: int

    def __str__(self) -> str:
        return f"{self.first_index:020d}.{self.epoch:010d}.active"


@dataclass(frozen=True, slots=True, order=True)
class FreeName:
    number: int

    def __str__(self) -> str:
        return f"{self.number:016d}.free"


SegmentName = FinalName | ActiveName


@lru_cache(maxsize=1 << 16)
def parse_name(text: str) -> FinalName | ActiveName | FreeName | None:
    """What a file name says, or None for a file that is not a segment of ours: no log reaches such numbers.

    Remembered: a directory of thousands of segments is listed again and again.
    """
    if match := _FINAL.match(text):
        final = FinalName(int(match[1]), int(match[2]), int(match[3], 16), int(match[4], 16))
        return final if max(final.first_index, final.last_index) <= INDEX_MAX else None
    if match := _ACTIVE.match(text):
        active = ActiveName(epoch=int(match[2]), first_index=int(match[1]))
        return active if active.first_index <= INDEX_MAX and active.epoch <= _EPOCH_MAX else None
    if match := _FREE.match(text):
        return FreeName(int(match[1]))
    return None


@dataclass(frozen=True, slots=True)
class Listing:
    """The segments of a log, in order, as its directory names them.

    `obsolete` are leftovers of a truncation or take-over that a crash cut short: active segments of an
    older epoch, and finalized ones that start at or after the newest active segment.
    """

    finals: tuple[FinalName, ...]
    active: ActiveName | None
    free: tuple[FreeName, ...]
    obsolete: tuple[SegmentName, ...]

    @property
    def segments(self) -> list[SegmentName]:
        """All that count, in order."""
        return [*self.finals, *([self.active] if self.active else [])]

    @classmethod
    def of(cls, names: list[str]) -> Listing:
        """The listing of a directory's names. Sorted as text, finalized segments are in order."""
        parsed = [parsed for name in sorted(names) if (parsed := parse_name(name)) is not None]
        actives = sorted(name for name in parsed if isinstance(name, ActiveName))
        active = actives[-1] if actives else None
        finals: list[FinalName] = []
        obsolete: list[SegmentName] = list(actives[:-1])
        for name in parsed:
            if not isinstance(name, FinalName):
                continue
            if active is not None and name.first_index >= active.first_index:
                obsolete.append(name)
            else:
                finals.append(name)
        free = tuple(sorted(name for name in parsed if isinstance(name, FreeName)))
        return cls(tuple(finals), active, free, tuple(obsolete))
