"""What the jobs share: which store they work on, and a list of work spread over Spark's workers.

Jobs whose work is files (verifying segments, writing Parquet) need none of Spark's rows. They give it a list;
each item is one task, with all that Spark does for tasks: cores, other machines, another try after a failure.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypedDict, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.kernel.errors import BadSettings, NotFound
from headrace.spark.conf import STORE_CONF, is_url
from headrace.spark.explain import plain_words
from headrace.spark.options import TOKEN_VARIABLE
from headrace.spark.place import Place
from headrace.store import STORE_FILE, Store

StorePlace = Store | Place | str | os.PathLike[str] | None
"""A store, its directory, or the url of a node; None: what the session says."""
Progress = Callable[[int, int], None]
"""Called with what is done and what there is in all, in the same unit."""

_ROUND_TASKS = 8
_LOOK_S = 0.3
Item = TypeVar("Item")
Made = TypeVar("Made")


class NodeOptions(TypedDict, total=False):
    """A node in the place of a directory, as the options of the same names say it."""

    url: str | None
    token: str | None
    ca: str | os.PathLike[str] | None


def place_of(spark: SparkSession | None, store: StorePlace, node: NodeOptions) -> Place:
    """Where the store is: as given, or as the session says (`session`). A url may stand for the store."""
    if isinstance(store, Place):
        return store
    given = node.get("url")
    if given is not None and store is not None:
        raise BadSettings("give a store or a url, not both")
    where = given or (store.path if isinstance(store, Store) else store)
    if where is None and spark is not None:
        where = spark.conf.get(STORE_CONF, None)
    if where is None:
        raise BadSettings("say where the store is: give it as `store`, or to headrace.spark.session")
    if is_url(where):
        ca, token = node.get("ca"), node.get("token") or os.environ.get(TOKEN_VARIABLE)
        place = Place(url=str(where), token=token, ca=None if ca is None else os.path.abspath(ca))
        assert place.node is not None
        place.node.check()
        return place
    path = os.path.abspath(where)
    if not os.path.exists(os.path.join(path, STORE_FILE)):
        raise NotFound(f"there is no store at {path}: say where it is")
    return Place(path)


def round_of(spark: SparkSession) -> int:
    """How many tasks are worth handing to Spark at a time: some for each core."""
    return _ROUND_TASKS * spark.sparkContext.defaultParallelism


def spread(spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Made]) -> list[Made]:
    """`work` of each item, done by Spark's workers; the results in the order of the items."""
    if not items:
        return []

    def do(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for at in batch.column(0).to_pylist():
                yield pa.record_batch(
                    {"at": pa.array([at]), "made": pa.array([pickle.dumps(work(items[at]))])}
                )

    with plain_words():
        numbers = spark.range(0, len(items), 1, len(items))
        rows = numbers.mapInArrow(do, "at bigint, made binary").collect()
    return [pickle.loads(row.made) for row in sorted(rows, key=lambda row: int(row.at))]


@contextmanager
def watched(spark: SparkSession, progress: Progress | None) -> Iterator[None]:
    """Tell how many tasks Spark has done of those that it knows of, while the block runs."""
    if progress is None:
        yield
        return
    ended = threading.Event()

    def look() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(_LOOK_S):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            tasks = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
            if tasks:
                progress(sum(done for done, _ in tasks), sum(total for _, total in tasks))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
