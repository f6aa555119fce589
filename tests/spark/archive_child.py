"""A process that archives a stream and kills itself, and its JVM with it, in the middle of a commit.

python -m tests.spark.archive_child STORE STREAM TO RENAMES
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from headrace.log.disk import Disk
from headrace.spark import session
from headrace.spark.archive import archive


def main(store: str, stream: str, to: str, renames: int) -> None:
    real, done = Disk.rename, 0

    def rename(self: Disk, old: Path, new: Path) -> None:
        nonlocal done
        if new.suffix == ".parquet":
            if done == renames:
                os.kill(os.getpid(), signal.SIGKILL)
            done += 1
        real(self, old, new)

    Disk.rename = rename  # type: ignore[method-assign]
    settings = {"spark.driver.host": "localhost"}
    spark = session(store, master="local[2]", settings=settings, log=os.devnull)
    archive(spark, store, stream, to=to, rows_per_file=50)


if __name__ == "__main__":
    main(*sys.argv[1:4], int(sys.argv[4]))
