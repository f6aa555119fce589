"""A process with a Spark of its own that runs the job of `jobs` until it is killed.

python -m spark.tail_child STORE CHECKPOINT BATCH_ENTRIES; it says "ready", and starts when it is sent a line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.spark import session

from .jobs import fills


def main() -> None:
    store, checkpoint, batch_entries = sys.argv[1:]
    spark = session(store, master="local[2]", settings={"spark.driver.host": "localhost"})
    print("ready", flush=True)
    sys.stdin.readline()
    fills(spark, Path(store), batch_entries=int(batch_entries)).start(checkpoint).awaitTermination()


if __name__ == "__main__":
    main()
