"""The journal, measured: embedded, over loopback, how late it is, and how it grows."""

from collections.abc import Iterator

from bench.journal import due, embedded, growth, remote
from bench.measure import Run, Table


def run(run: Run) -> Iterator[Table]:
    for concept in (embedded, remote, due, growth):
        yield from concept.run(run)
