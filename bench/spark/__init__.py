"""Spark over headrace, measured: scans, the sink, TailProduce and planning."""

from collections.abc import Iterator

from bench.measure import Run, Table
from bench.spark import planning, scanning, sinking, tailing
from headrace.spark import JavaMissing, session


def run(run: Run) -> Iterator[Table]:
    try:
        spark = session(master="local[2]", settings={"spark.driver.memory": "4g"})
    except JavaMissing as error:
        run.say(f"Spark is not measured: {error}")
        return
    try:
        for concept in (scanning, sinking, tailing, planning):
            yield from concept.run(run, spark)
    finally:
        spark.stop()
