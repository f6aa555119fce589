"""The noun `journal`: its verbs in the order in which people meet them."""

from __future__ import annotations

import typer

from headrace.cli.journal_care import create, redrive
from headrace.cli.journal_follow import drop, follow, unfollow
from headrace.cli.journal_forward import forward
from headrace.cli.journal_jobs import done, fail, next_job, put
from headrace.cli.journal_look import ls, stats, watch
from headrace.cli.journal_open import JournalCommand
from headrace.cli.journal_serve import serve
from headrace.cli.journal_values import delete, get, range_values, set_value

app = typer.Typer(no_args_is_help=True, help="Jobs without duplicates, and keys with values.")

for _name, _verb in (
    ("ls", ls),
    ("create", create),
    ("put", put),
    ("next", next_job),
    ("done", done),
    ("fail", fail),
    ("set", set_value),
    ("get", get),
    ("delete", delete),
    ("range", range_values),
    ("watch", watch),
    ("stats", stats),
    ("redrive", redrive),
    ("serve", serve),
):
    app.command(_name, cls=JournalCommand)(_verb)
for _name, _verb in (
    ("follow", follow),
    ("unfollow", unfollow),
    ("drop", drop),
    ("forward", forward),  # its --server is where it sends to
):
    app.command(_name)(_verb)
