"""Verifying on Spark: the segments of one stream or of all, checked beside one another.

It says what `headrace stream verify` says, because it is the same three steps (`headrace.log.verify`): the
driver sets out, Spark's workers check segments, and the driver concludes from what they found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.kernel.errors import HeadraceError
from headrace.log.damage import Report
from headrace.log.disk import Disk
from headrace.log.meta import Meta
from headrace.log.segment_name import SegmentName
from headrace.log.verify import Outset, Sums, check_segment, conclude, set_out
from headrace.spark.job import Progress, StorePath, round_of, spread, store_path
from headrace.spark.origin import existing_store

_PART_BYTES = 128 << 20
_PART_FILES = 256


@dataclass(frozen=True, slots=True)
class Verified:
    """The report on each stream; `unreadable` are those that cannot be opened at all, and why."""

    paths: Mapping[str, Path]
    reports: Mapping[str, Report]
    unreadable: Mapping[str, HeadraceError] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.unreadable and all(report.ok for report in self.reports.values())


@dataclass(frozen=True, slots=True)
class _Checked:
    """A stream that is being checked."""

    name: str
    path: Path
    meta: Meta
    outset: Outset


@dataclass(frozen=True, slots=True)
class _Part:
    """Some neighbouring segments of a stream: what one task checks."""

    stream: str
    path: Path
    meta: Meta
    trimmed: int
    segments: tuple[SegmentName, ...]
    bytes: int


def verify(
    spark: SparkSession,
    store: StorePath = None,
    stream: str | None = None,
    *,
    progress: Progress | None = None,
) -> Verified:
    """Check every byte of a stream, or of all streams of a store. Nothing is changed."""
    streams, unreadable = _streams(store_path(spark, store), stream)
    parts = [part for each in streams for part in _parts(each)]
    total, done, step = sum(part.bytes for part in parts), 0, round_of(spark)
    found: dict[str, list[Sums]] = {each.name: [] for each in streams}
    for at in range(0, len(parts), step):
        together = parts[at : at + step]
        for part, sums in zip(together, spread(spark, together, _check), strict=True):
            found[part.stream] += sums
        done += sum(part.bytes for part in together)
        if progress is not None:
            progress(done, max(total, 1))
    reports = {
        each.name: conclude(Disk(), each.path, each.meta, each.outset, found[each.name]) for each in streams
    }
    return Verified({each.name: each.path for each in streams}, reports, unreadable)


def _streams(path: str, wanted: str | None) -> tuple[list[_Checked], dict[str, HeadraceError]]:
    streams, unreadable = list[_Checked](), dict[str, HeadraceError]()
    with existing_store(path) as store:
        for name in store.streams() if wanted is None else [wanted]:
            try:
                log = store.stream(name).log
                streams.append(_Checked(name, log.path, log.meta, set_out(Disk(), log.path)))
            except HeadraceError as error:
                if wanted is not None:
                    raise
                unreadable[name] = error
    return streams, unreadable


def _parts(checked: _Checked) -> Iterator[_Part]:
    """The segments, small ones together: ten thousand of them need not be ten thousand tasks."""
    names, size = list[SegmentName](), 0

    def part() -> _Part:
        return _Part(checked.name, checked.path, checked.meta, checked.outset.trimmed, tuple(names), size)

    for name in checked.outset.listing.segments:
        more = checked.outset.sizes[name]
        if names and (size + more > _PART_BYTES or len(names) == _PART_FILES):
            yield part()
            names, size = [], 0
        names.append(name)
        size += more
    if names:
        yield part()


def _check(part: _Part) -> list[Sums]:
    """One task."""
    found = [check_segment(Disk(), part.path, name, part.meta, part.trimmed) for name in part.segments]
    return [sums for sums in found if sums is not None]
