"""Streams, measured: publishing and listening to typed entries, latency, and starting in the middle."""

from collections.abc import Iterator

from bench.measure import Run, Table
from bench.stream import latency, listening, publishing, starting


def run(run: Run) -> Iterator[Table]:
    for concept in (publishing, listening, latency, starting):
        yield from concept.run(run)
