"""Plans: any stretch of any stream, cut into parts that follow one another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.stream.samples import temporary_store

import headrace as hr
from headrace.kernel.errors import NotFound
from headrace.log.disk import Disk
from headrace.log.log import Log
from headrace.log.plan import Span, plan_spans
from headrace.log.segment_name import FinalName, Listing
from headrace.log.settings import Finalize
from headrace.spark.options import parse_options
from headrace.spark.origin import FileOrigin
from headrace.spark.projection import projection
from headrace.spark.reader import BatchReader, SpanPartition

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])


@contextmanager
def made_of(batches: list[int], entries_of_a_segment: int) -> Iterator[Log]:
    """The log of a stream of batches of these sizes."""
    with temporary_store() as store:
        finalize = Finalize(entries=entries_of_a_segment)
        stream = store.stream("s", SCHEMA, settings=hr.Settings(finalize=finalize))
        with stream.publisher() as publisher:
            for size in batches:
                first = publisher.next_index
                publisher.publish_batch(pa.table({"n": range(first, first + size)}))
        yield stream.log


def check_cover(spans: list[Span], start: int, stop: int) -> None:
    """They begin and end where they should and follow one another; none is empty."""
    if start >= stop:
        assert spans == []
        return
    assert (spans[0].start, spans[-1].stop) == (start, stop)
    assert all(one.stop == other.start for one, other in pairwise(spans))
    assert all(span.start < span.stop for span in spans)


@settings(max_examples=60)
@given(
    batches=st.lists(st.integers(1, 30), min_size=1, max_size=20),
    entries_of_a_segment=st.integers(1, 100),
    rows=st.none() | st.integers(1, 200),
    stretch=st.tuples(st.integers(0, 200), st.integers(0, 600)),
)
@example(batches=[30, 30], entries_of_a_segment=30, rows=10, stretch=(0, 60))
@example(batches=[30, 30, 5], entries_of_a_segment=30, rows=10, stretch=(0, 65))
@example(batches=[30, 30, 30], entries_of_a_segment=60, rows=10, stretch=(5, 55))
def test_parts_cover_a_stretch_exactly_and_batches_are_not_cut(
    batches: list[int], entries_of_a_segment: int, rows: int | None, stretch: tuple[int, int]
) -> None:
    start, stop = (min(sum(batches), index) for index in stretch)
    with made_of(batches, entries_of_a_segment) as log:
        finals = Listing.of(Disk().names(log.path)).finals
        spans = plan_spans(Disk(), log.path, log.meta, start, stop, rows)
        check_cover(spans, start, stop)
        read = [n for span in spans for batch in log.read(span.start, span.stop) for n in values(batch)]
    assert read == list(range(start, stop))
    bases = {sum(batches[:at]) for at in range(len(batches))}
    finalized = finals[-1].next_index if finals else 0
    for span in spans[1:]:  # where there are footers, a part begins where a batch does
        assert span.start in bases or span.start >= finalized, f"{span} cuts a batch of {batches}"
    if rows is not None:
        largest = max(batches)
        assert all(span.stop - span.start <= 2 * rows + largest + entries_of_a_segment for span in spans)


def values(batch: object) -> list[int]:
    column: list[int] = batch.records.column(0).to_pylist()  # type: ignore[attr-defined]
    return column


@given(rows=st.integers(1, 50), entries=st.integers(1, 300))
@example(rows=1, entries=10)
def test_the_active_segment_is_cut_into_like_parts(rows: int, entries: int) -> None:
    """It has no footer to go by, so its parts are of the size asked for."""
    with temporary_store() as store, Log.open(store.path / "log", SCHEMA) as log:
        spans = plan_spans(Disk(), log.path, log.meta, 0, entries, rows)
    check_cover(spans, 0, entries)
    assert all(span.stop - span.start == rows for span in spans[:-1])
    assert spans[-1].stop - spans[-1].start <= max(rows, rows * 3 // 2)


def named(directory: Path, count: int, entries: int) -> None:
    """Segments of which only the names are there: a plan that looks inside fails."""
    directory.mkdir()
    for at in range(count):
        (directory / str(FinalName(at * entries, at * entries + entries - 1, at, at))).touch()


def test_ten_thousand_small_segments_are_planned_by_their_names(place: Path) -> None:
    with Log.open(place / "meta", SCHEMA) as log:
        meta = log.meta
    named(place / "many", 10_000, 100)
    disk = CountingDisk()
    spans = plan_spans(disk, place / "many", meta, 50, 999_950, 100_000)
    check_cover(spans, 50, 999_950)
    assert len(spans) == 10
    assert all(span.start % 100 == 0 for span in spans[1:])
    assert disk.opened_files == 0
    spans = plan_spans(disk, place / "many", meta, 0, 1_000_000, None)
    check_cover(spans, 0, 1_000_000)
    assert (os.cpu_count() or 2) <= len(spans) <= 100
    assert disk.opened_files == 0, "a plan over thousands of segments reads one directory"


class CountingDisk(Disk):
    opened_files = 0

    def open(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        self.opened_files += 1
        return super().open(*args, **kwargs)


def test_a_segment_that_is_trimmed_while_the_plan_is_made_is_no_harm(place: Path) -> None:
    """Its entries are planned for; who reads them says that they are gone."""

    class Trimming(Disk):
        def size(self, path: Path) -> int:
            raise NotFound(f"{path} is gone")

        def open(self, path: Path, *args, **kwargs):  # type: ignore[no-untyped-def]
            raise NotFound(f"{path} is gone")

    with made_of([100] * 10, 200) as log:
        check_cover(plan_spans(Trimming(), log.path, log.meta, 0, 1000, None), 0, 1000)
        check_cover(plan_spans(Trimming(), log.path, log.meta, 0, 1000, 50), 0, 1000)


def planned(store: hr.Store, **options: str) -> list[Span]:
    origin = FileOrigin(str(store.path), "s")
    parsed = parse_options({"path": "", **options})
    parts = BatchReader(origin, parsed, projection(origin.about(), parsed)).partitions()
    return [part.span for part in parts if isinstance(part, SpanPartition)]


@pytest.mark.parametrize(
    ("options", "start", "stop"),
    [
        ({}, 0, 100),
        ({"startIndex": "10", "endIndex": "20"}, 10, 20),
        ({"startIndex": "earliest", "endIndex": "1000"}, 0, 100),
        ({"startIndex": "latest"}, 0, 0),
        ({"startIndex": "90", "endIndex": "10"}, 0, 0),
        ({"startIndex": "1000"}, 0, 0),
        ({"startKey": "20", "endKey": "40"}, 10, 20),
        ({"startKey": "21", "endKey": "41"}, 11, 21),
        ({"startKey": "-5", "endKey": "1000"}, 0, 100),
        ({"startIndex": "5", "endKey": "40"}, 5, 20),
    ],
)
def test_a_stretch_by_index_or_key(store: hr.Store, options: dict[str, str], start: int, stop: int) -> None:
    with store.stream("s", SCHEMA, order_by="n").publisher() as publisher:
        publisher.publish_batch(pa.table({"n": range(0, 200, 2)}))
    check_cover(planned(store, partitionRows="7", **options), start, stop)
