"""The noun `log`: its verbs in the order in which people meet them."""

from __future__ import annotations

import typer

from headrace.cli.log_bench import bench
from headrace.cli.log_care import info, repair, verify
from headrace.cli.log_create import create
from headrace.cli.log_read import cat, tail
from headrace.cli.log_slabs import export, import_
from headrace.cli.log_write import append, trim

app = typer.Typer(no_args_is_help=True, help="Create, fill, read and look after a log: a directory on disk.")

for _name, _verb in (
    ("create", create),
    ("append", append),
    ("cat", cat),
    ("tail", tail),
    ("info", info),
    ("verify", verify),
    ("repair", repair),
    ("trim", trim),
    ("import", import_),
    ("export", export),
    ("bench", bench),
):
    app.command(_name)(_verb)
