"""The noun `spark`: its verbs in the order in which people meet them.

Nothing here imports Spark before a command needs it: `headrace log` works, and is quick, without it.
"""

from __future__ import annotations

import typer

from headrace.cli.spark_archive import archive
from headrace.cli.spark_compact import compact
from headrace.cli.spark_redrive import redrive
from headrace.cli.spark_run import run
from headrace.cli.spark_verify import verify

app = typer.Typer(
    no_args_is_help=True, help="Archive, verify, compact and process streams on Spark; redrive jobs."
)

for _name, _verb in (
    ("run", run),
    ("archive", archive),
    ("compact", compact),
    ("verify", verify),
    ("redrive", redrive),
):
    app.command(_name)(_verb)
