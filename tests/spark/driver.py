"""A driver to be killed: reads the stream `in`, writes the stream `out` or the journal `jobs` until it is.

python -m tests.spark.driver <store, or url of a node> <checkpoint> <rows of a batch> <out or jobs>
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

from pyspark.sql import DataFrame

ROOT = Path(__file__).parents[2]


def doubled(frame: DataFrame) -> DataFrame:
    """What the query makes of numbers: shuffled, so that it has stages and tasks to be killed in."""
    return frame.selectExpr("n * 2 AS n", "text").repartition(3)


def as_jobs(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("concat('n:', n) AS resource", "text AS value").repartition(2)


def run(store: str, checkpoint: str, rows: str, target: str) -> None:
    from headrace.spark import session

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: never outlive the test
    spark = session(master="local[2]", settings={"spark.driver.host": "localhost"})
    where = {"url" if store.startswith("http") else "path": store}
    frame = spark.readStream.format("headrace").options(**where, stream="in", maxRowsPerTrigger=rows).load()
    made, to = (
        (as_jobs(frame), {"journal": "jobs"})
        if target == "jobs"
        else (doubled(frame), {"stream": "out", "orderBy": "n"})
    )
    options = {**where, **to, "checkpointLocation": checkpoint}
    made.writeStream.format("headrace").options(**options).start().awaitTermination()


def start(store: Path | str, checkpoint: Path, rows: int, target: str = "out") -> subprocess.Popen[bytes]:
    """The driver as a process that leads a session of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.driver", str(store), str(checkpoint), str(rows), target],
        cwd=ROOT,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def kill_all(driver: subprocess.Popen[bytes]) -> None:
    """kill -9 for the driver, its JVM and its Python workers: all processes of its session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == driver.pid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue
    driver.kill()
    driver.wait()
    assert driver.stderr is not None
    driver.stderr.close()


if __name__ == "__main__":
    run(*sys.argv[1:])
