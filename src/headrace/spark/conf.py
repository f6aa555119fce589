"""Names of Spark's settings that headrace sets, and setting some of them for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

STORE_CONF = "spark.headrace.path"
"""Where jobs look for streams, unless they are told."""
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def is_url(store: object) -> bool:
    """Whether a store is one of a node."""
    return str(store).startswith(("http://", "https://"))


@contextmanager
def settings_for(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session while a query is started: it keeps what it was started with."""
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
