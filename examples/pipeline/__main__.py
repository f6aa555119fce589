"""A declarative pipeline: Spark is told what there is to be, and finds out what there is to do.

    python examples/pipeline

`spark-pipeline.yaml` and `transformations/` are the pipeline; this publishes orders and runs it twice with
Spark's own `spark-pipelines`. The second run reads only what has come since. It needs `headrace[pipelines]`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import headrace as hr

HERE, PLACE = Path(__file__).parent, Path("pipeline-data").absolute()
STORE = PLACE / "store"
MIDNIGHT = datetime(2026, 7, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Order:
    at: datetime
    amount: float


def publish(store: hr.Store, minutes: range) -> None:
    with store.stream("orders", Order, order_by="at").publisher() as publisher:
        for minute in minutes:
            publisher.publish(Order(MIDNIGHT + timedelta(minutes=minute), 2.5))


def run_pipeline() -> None:
    """What `spark-pipelines run` does in a shell; the spec wants an absolute place for its checkpoints."""
    shutil.copytree(HERE / "transformations", PLACE / "transformations", dirs_exist_ok=True)
    spec = (HERE / "spark-pipeline.yaml").read_text().replace("file:///STORAGE", f"{PLACE.as_uri()}/storage")
    (PLACE / "spark-pipeline.yaml").write_text(spec)
    env = os.environ | {"PYSPARK_PYTHON": sys.executable, "PIPELINE_STORE": str(STORE)}
    command = [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", "spark-pipeline.yaml"]
    done = subprocess.run(command, cwd=PLACE, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)


def totals(store: hr.Store) -> list[dict[str, object]]:
    return [entry.value for entry in store.stream("totals").listen()]


shutil.rmtree(PLACE, ignore_errors=True)
with hr.open(STORE) as store:
    publish(store, range(301))
    run_pipeline()
    first = totals(store)
    print(f"after 301 orders there are {len(first)} hours of {first[0]['orders']} orders")
    publish(store, range(301, 601))
    run_pipeline()
    second = totals(store)
    print(f"300 more: {len(second)} hours, {second[-1]['amount']} each")
    assert (len(first), len(second)) == (5, 10)
    assert all(each["orders"] == 60 and each["amount"] == 150.0 for each in second)
