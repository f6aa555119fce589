"""The node beside Redis Streams and NATS JetStream: publishing, reading, latency, idle followers."""

from collections.abc import Iterator
from contextlib import ExitStack

from bench.measure import Run, Table
from bench.node import followers, large, latency, publishing, reading, spark
from bench.node.contenders import contenders


def run(run: Run) -> Iterator[Table]:
    with run.fresh() as path, ExitStack() as stack:
        there = contenders(run, path, stack)
        for concept in (publishing, reading, latency, followers):
            yield from concept.run(run, there)
        yield from large.run(run, there.node)
        yield from spark.run(run, there.node)
