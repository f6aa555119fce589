"""Sessions for commands: mistakes are found before Java starts, it is silent, and it is stopped at the end.

What Spark itself prints goes to a log file, of which nobody hears unless Spark failed: then the error says
where it is.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from headrace.kernel.errors import BadSettings
from headrace.spark.explain import SparkFailed, plain_words
from headrace.spark.session import session

Session = SparkSession
"""For those who may not import Spark themselves."""

_MASTER = re.compile(r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[[\d,\s]+\]|yarn|k8s://.+|spark://.+")
_CONNECT_S = 5.0
_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Where PySpark repeats, as JSON on stderr, what it also raises."""


@contextmanager
def quiet_session(
    store: Path | str | None,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[SparkSession]:
    """A session for one command. A session that runs already is used, and left running."""
    running = SparkSession.getActiveSession()
    if running is not None:
        with _silenced(), plain_words():
            yield running
        return
    check_master(master)
    with _silenced(), _log_file(log) as file, plain_words():
        spark = session(store, master=master, settings=settings, log=file)
        try:
            yield spark
        finally:
            with suppress(Exception):  # what it was stopped for is the error to tell
                spark.stop()


def check_master(master: str) -> None:
    """Raise unless this is a master; of Spark's own kind of cluster, one that answers."""
    if not _MASTER.fullmatch(master):
        raise BadSettings(
            f"{master!r} is no master of Spark: local[*], local[4], spark://host:7077, yarn, k8s://…"
        )
    if not master.startswith("spark://"):
        return
    reasons = []
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise BadSettings(
                f"{master!r} is no master of Spark: it lacks a host or a port, as in spark://host:7077"
            )
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
            return
        except (OSError, OverflowError) as error:
            reasons.append(f"{address}: {error}")
    raise SparkFailed(
        f"Spark's master cannot be reached ({'; '.join(reasons)}): is it running, and is its address right?"
    )


@contextmanager
def _silenced() -> Iterator[None]:
    """Without what PySpark itself logs: all of it is raised as well."""
    loggers: list[logging.Logger] = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    loggers.append(logging.getLogger("py4j"))
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


@contextmanager
def _log_file(wanted: Path | None) -> Iterator[Path]:
    """The file for what Spark prints: kept if the user wants it, or if Spark failed."""
    if wanted is not None:
        yield wanted
        return
    handle, name = tempfile.mkstemp(prefix="headrace-spark-", suffix=".log")
    os.close(handle)
    path = Path(name)
    try:
        yield path
    except SparkFailed as error:
        if path.stat().st_size:
            error.args = (f"{error} (Spark's log: {path})",)
        raise
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)
