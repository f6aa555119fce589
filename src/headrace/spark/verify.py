"""Verifying on Spark: the segments of one stream or of all, checked beside one another.

It says what `headrace stream verify` says, because it is the same three steps (`headrace.log.verify`): the
driver sets out, Spark's workers check segments, and the driver concludes from what they found. The segments
of a node are checked where they are: tasks ask the node to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Unpack

from pyspark.sql import SparkSession

from headrace.kernel.errors import HeadraceError
from headrace.log.damage import Report
from headrace.log.segment_name import SegmentName
from headrace.log.verify import Outset, Sums, conclude
from headrace.spark.inventory import Inventory
from headrace.spark.job import NodeOptions, Progress, StorePlace, place_of, round_of, spread

_PART_BYTES = 128 << 20
_PART_FILES = 256


@dataclass(frozen=True, slots=True)
class Verified:
    """The report on each stream, and where it is; `unreadable` cannot be opened at all, and why."""

    paths: Mapping[str, str]
    reports: Mapping[str, Report]
    unreadable: Mapping[str, HeadraceError] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.unreadable and all(report.ok for report in self.reports.values())


@dataclass(frozen=True, slots=True)
class _Part:
    """Some neighbouring segments of a stream: what one task checks."""

    stream: str
    trimmed: int
    segments: tuple[SegmentName, ...]
    bytes: int


def verify(
    spark: SparkSession,
    store: StorePlace = None,
    stream: str | None = None,
    *,
    progress: Progress | None = None,
    **node: Unpack[NodeOptions],
) -> Verified:
    """Check every byte of a stream, or of all streams of a store. Nothing is changed."""
    inventory = place_of(spark, store, node).inventory
    outsets, unreadable = _outsets(inventory, stream)
    parts = [part for name, outset in outsets.items() for part in _parts(name, outset)]
    total, done, step = sum(part.bytes for part in parts), 0, round_of(spark)
    found: dict[str, list[Sums]] = {name: [] for name in outsets}
    for at in range(0, len(parts), step):
        together = parts[at : at + step]
        for part, sums in zip(together, spread(spark, together, partial(_check, inventory)), strict=True):
            found[part.stream] += sums
        done += sum(part.bytes for part in together)
        if progress is not None:
            progress(done, max(total, 1))
    reports = {name: conclude(outset, found[name]) for name, outset in outsets.items()}
    return Verified({name: inventory.where(name) for name in outsets}, reports, unreadable)


def _outsets(inventory: Inventory, wanted: str | None) -> tuple[dict[str, Outset], dict[str, HeadraceError]]:
    outsets, unreadable = dict[str, Outset](), dict[str, HeadraceError]()
    for name in inventory.streams() if wanted is None else [wanted]:
        try:
            outsets[name] = inventory.outset(name)
        except HeadraceError as error:
            if wanted is not None:
                raise
            unreadable[name] = error
    return outsets, unreadable


def _parts(stream: str, outset: Outset) -> Iterator[_Part]:
    """The segments, small ones together: ten thousand of them need not be ten thousand tasks."""
    names, size = list[SegmentName](), 0
    for name in outset.listing.segments:
        more = outset.sizes[name]
        if names and (size + more > _PART_BYTES or len(names) == _PART_FILES):
            yield _Part(stream, outset.trimmed, tuple(names), size)
            names, size = [], 0
        names.append(name)
        size += more
    if names:
        yield _Part(stream, outset.trimmed, tuple(names), size)


def _check(inventory: Inventory, part: _Part) -> list[Sums]:
    """One task."""
    return inventory.check(part.stream, part.segments, part.trimmed)
