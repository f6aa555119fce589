"""`headrace spark run`: a pipeline file, with a session that is there when it begins."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.console import Console
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import plural
from headrace.cli.spark_open import SparkOptions, opened_spark, spark_installed
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir
from headrace.kernel.errors import NotFound


@with_options
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python script.", show_default=False)],
    spark: SparkOptions,
    args: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGS", help="The script's own arguments; options among them after --."),
    ] = None,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Run a pipeline file on Spark.

    It runs as a script does. `headrace.spark.session()` and `SparkSession.builder.getOrCreate()` give it the
    session of this command, and the names `spark` and `store` are there as well. Streaming queries that it
    starts are waited for. What it prints is the output; the exit code is its own. HEADRACE_TRACEBACK=1 shows
    where an error of its code came from.
    """
    if not file.is_file():
        raise NotFound(f"there is no file {file}: give the path of a Python script")
    with spark_installed():
        from headrace.spark.run import PipelineFailed
        from headrace.spark.run import run as run_file
    try:
        with opened_spark(store, spark) as session:
            done = run_file(session, file, args or (), store=store)
    except PipelineFailed as error:
        if os.environ.get("HEADRACE_TRACEBACK") and isinstance(error.__cause__, Exception):
            raise error.__cause__ from None
        raise
    queries = f", {plural(done.queries, 'streaming query', 'streaming queries')}" if done.queries else ""
    Console(json).note(f"ran {file} in {done.seconds:.1f} s{queries}")
    if done.code:
        raise typer.Exit(done.code)
