"""Sessions: Spark with settings that suit streams, on one machine or on a cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from headrace.kernel.errors import Refused
from headrace.spark.tail_produce import ROCKSDB, STORE_CONF

JAVA_LEAST = 17


class JavaMissing(Refused):
    """Spark runs on Java, and there is none, or one that is too old."""

    code = "java_missing"


def session(
    store: str | os.PathLike[str] | None = None,
    *,
    master: str = "local[*]",
    name: str = "headrace",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session: the one that runs already, or a new one. `store` is where jobs look for streams."""
    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = os.cpu_count() or 2
    wanted = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
        **({STORE_CONF: os.path.abspath(store)} if store is not None else {}),
        **(settings or {}),
    }
    builder = SparkSession.Builder().master(master).appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def check_java() -> None:
    """Raise JavaMissing unless there is a Java that Spark runs on."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    advice = f"Spark needs Java {JAVA_LEAST} or later (on Debian: apt-get install openjdk-17-jre-headless)"
    if java is None:
        raise JavaMissing(f"there is no java{f' in JAVA_HOME ({home})' if home else ''}. {advice}")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', said.stderr + said.stdout)
    if found is None or int(found[1]) < JAVA_LEAST:
        raise JavaMissing(f"{java} is {said.stderr.splitlines()[0] if said.stderr else 'no Java'}. {advice}")
