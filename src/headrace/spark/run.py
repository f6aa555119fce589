"""Running a pipeline file: a Python script, with a session made before it begins.

    headrace spark run totals.py --store data -- 2026-11-16

The file runs as `python totals.py 2026-11-16` would. What it gets by `headrace.spark.session()` or
`SparkSession.builder.getOrCreate()` is the session that was made; two names are there from the beginning as
well: `spark`, the session, and `store`, the path of the store or the url of its node. Streaming queries that
it has started and not waited for are waited for.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.kernel.errors import Broken, HeadraceError, NotFound
from headrace.spark.conf import STORE_CONF, is_url
from headrace.spark.explain import explain, plain_words
from headrace.store import Store


class PipelineFailed(Broken):
    """The code of a pipeline file raised an error."""

    code = "pipeline_failed"


@dataclass(frozen=True, slots=True)
class Ran:
    """What was run; `code` is what the file gave to `sys.exit`, and `queries` were started by it."""

    file: str
    seconds: float
    queries: int
    code: int


def run(
    spark: SparkSession,
    file: str | os.PathLike[str],
    args: Sequence[str] = (),
    *,
    store: Store | str | os.PathLike[str] | None = None,
) -> Ran:
    """Run a pipeline file with this session, and wait for the queries that it starts."""
    path = Path(file)
    if not path.is_file():
        raise NotFound(f"there is no file {path}: give the path of a Python script")
    where = store.path if isinstance(store, Store) else store or spark.conf.get(STORE_CONF, None)
    if where is not None and not is_url(where):
        where = os.path.abspath(where)
    names: dict[str, object] = {"spark": spark, "store": where}
    before = {query.id for query in spark.streams.active}
    begun = time.monotonic()
    with _as_a_script(path, args):
        code = _execute(path, names)
    started = [query for query in spark.streams.active if query.id not in before]
    try:
        for query in started:
            with plain_words():
                query.awaitTermination()
    except BaseException:
        for query in started:
            query.stop()
        raise
    return Ran(str(path), time.monotonic() - begun, len(started), code)


def _execute(path: Path, names: dict[str, object]) -> int:
    """The exit code of the script."""
    try:
        runpy.run_path(str(path), init_globals=names, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        raise PipelineFailed(f"{path.name} ended: {end.code}") from end
    except (HeadraceError, PySparkException, Py4JError, ConnectionError) as error:
        known = explain(error)
        known.args = (f"{_place(path, error)}: {known}",)
        raise known from error
    except Exception as error:
        raise PipelineFailed(f"{_place(path, error)}: {type(error).__name__}: {error}") from error
    return 0


def _place(path: Path, error: BaseException) -> str:
    """The line of the file that led to the error."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path.name}, line {error.lineno}"
    lines = [each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename == str(path)]
    return f"{path.name}, line {lines[-1]}" if lines else path.name


@contextmanager
def _as_a_script(path: Path, args: Sequence[str]) -> Iterator[None]:
    """What a script sees: its own arguments, and the modules beside it."""
    argv, folders = sys.argv, list(sys.path)
    sys.argv, sys.path[0:0] = [str(path), *args], [str(path.resolve().parent)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, folders
