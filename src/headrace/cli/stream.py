"""The noun `stream`: its verbs in the order in which people meet them."""

from __future__ import annotations

import typer

from headrace.cli.stream_care import drop, info, verify
from headrace.cli.stream_create import create
from headrace.cli.stream_export import export
from headrace.cli.stream_follow import follow, unfollow
from headrace.cli.stream_list import ls
from headrace.cli.stream_publish import publish
from headrace.cli.stream_query import query
from headrace.cli.stream_read import cat, tail

app = typer.Typer(no_args_is_help=True, help="Create, fill, read, query and look after typed streams.")

for _name, _verb in (
    ("ls", ls),
    ("create", create),
    ("publish", publish),
    ("cat", cat),
    ("tail", tail),
    ("info", info),
    ("verify", verify),
    ("drop", drop),
    ("export", export),
    ("query", query),
    ("follow", follow),
    ("unfollow", unfollow),
):
    app.command(_name)(_verb)
