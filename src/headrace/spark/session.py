"""Sessions: Spark with settings that suit streams, on one machine or on a cluster."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.kernel.errors import Refused
from headrace.spark.conf import ROCKSDB, SHUFFLE_PARTITIONS, STATE_STORE, STORE_CONF, is_url

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
    log: str | os.PathLike[str] | None = None,
) -> SparkSession:
    """A Spark session: the one that runs already, or a new one. `store` is where jobs look for streams:
    a directory, or the url of a node.

    What Spark itself has to say goes to stderr, or to the file `log`.
    """
    check_java()
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = _launcher() if master.startswith("local") else sys.executable
    cores = os.cpu_count() or 2
    wanted = {
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        SHUFFLE_PARTITIONS: str(cores),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        STATE_STORE: ROCKSDB,
        **({} if store is None else {STORE_CONF: str(store) if is_url(store) else os.path.abspath(store)}),
        **(settings or {}),
    }
    builder = SparkSession.Builder().master(master).appName(name)
    for key, value in wanted.items():
        builder = builder.config(key, value)
    with _stderr_to(log):  # Spark's JVM is started here, and keeps the stderr that it finds
        return builder.getOrCreate()


def _launcher() -> str:
    """A Python for workers on this machine that takes PySpark from where it is installed.

    Spark puts a zip file of PySpark before it, from which nothing is ever compiled for good: each of the ten
    Pythons that the first batch of a query starts would compile all of it again.
    """
    folder = tempfile.mkdtemp(prefix="headrace-python-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = Path(folder) / "python3"
    script.write_text(
        f"#!/bin/sh\nPYTHONPATH=${{PYTHONPATH#*/pyspark.zip:}}\nexport PYTHONPATH\n"
        f'exec {shlex.quote(sys.executable)} "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


@contextmanager
def _stderr_to(log: str | os.PathLike[str] | None) -> Iterator[None]:
    """Let processes that are started meanwhile write their stderr to a file."""
    if log is None:
        yield
        return
    kept = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(file)


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
