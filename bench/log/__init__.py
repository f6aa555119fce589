"""The log, measured: writing, reading, durability, and what stays the same as a log grows."""

from collections.abc import Iterator

from bench.log import batches, durable, growth, reading, writing
from bench.measure import Run, Table


def run(run: Run) -> Iterator[Table]:
    for concept in (writing, batches, reading, durable, growth):
        yield from concept.run(run)
