"""`headrace stream ls`: the streams of a store, one a line."""

from __future__ import annotations

import typer

from headrace.cli.console import Console, Exit, printable
from headrace.cli.options import Json
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, opened_store
from headrace.kernel.errors import HeadraceError

_COLUMNS = ("name", "entries", "bytes", "order_by", "last_index")


def ls(store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """List the streams: how many entries, how large, ordered by what.

    A stream that cannot be opened is told on stderr; the exit code is then 3.
    """
    console, rows, failed = Console(json), list[dict[str, object]](), False
    with opened_store(store) as opened:
        names = opened.streams()
        with console.progress("looking") as advance:
            for done, name in enumerate(names):
                advance(done, len(names))
                try:
                    with opened.stream(name) as stream:
                        info = stream.info()
                except HeadraceError as error:
                    console.note(f"stream {name!r} cannot be opened ({error.code}): {error}")
                    failed = True
                    continue
                last = info.next_index - 1 if info.entries else None
                row = (name, info.entries, info.bytes, info.order_by or "index", last)
                rows.append(dict(zip(_COLUMNS, row, strict=True)))
    if json:
        console.answer({"store": printable(store), "streams": rows}, "")
    elif rows:
        heads = [column.replace("_", " ") for column in _COLUMNS]
        console.table(heads, [["-" if cell is None else cell for cell in row.values()] for row in rows])
    elif not failed:
        console.note(f"{store} has no streams yet: make one with `headrace stream create`")
    if failed:
        raise typer.Exit(Exit.DAMAGE)
