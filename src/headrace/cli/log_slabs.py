"""`headrace log import` and `export`: classic Queuefka slabs in and out.

Both make something new, aside first (see `aside`), so that there is all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.aside import made_aside
from headrace.cli.console import Advance, Console, Exit, printable
from headrace.cli.log_open import LogPath, SkipDamaged, check_raw, open_to_read
from headrace.cli.log_read import Damages, damage_explained
from headrace.cli.options import Json
from headrace.cli.quantities import format_size, parse_size, plural
from headrace.log import Log
from headrace.log.cursor import OnDamage
from headrace.log.queue import writer
from headrace.log.slab import LengthField, SlabDamage, read_slabs, slab_names, write_slabs

_RECORDS_AT_ONCE = 10_000


def import_(
    directory: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A directory of .slab files.", show_default=False, readable=False),
    ],
    path: LogPath,
    json: Json = False,
) -> None:
    """Make a new log from classic Queuefka slabs.

    What is damaged in them is told and passed over; the exit code is then 3.
    """
    console = Console(json)
    damages: list[SlabDamage] = []

    def tell(damage: SlabDamage) -> None:
        damages.append(damage)
        console.damage(damage)

    total = sum((directory / name).stat().st_size for name in slab_names(directory))
    with made_aside(path) as beside, console.progress("importing") as advance:
        done = 0

        def passed(size: int) -> None:
            nonlocal done
            done += size
            advance(done, max(total, 1))

        records = read_slabs(directory, tell, passed)
        with writer(beside) as out:
            while some := list(islice(records, _RECORDS_AT_ONCE)):
                out.write_many(some)
            out.flush()
            count = out.address
    facts = {"path": printable(path), "count": count, "bytes": total, "damages": damages}
    text = f"imported {plural(count, 'entry', 'entries')} from {format_size(total)} of slabs"
    console.answer(facts, f"{text}, {plural(len(damages), 'place')} damaged" if damages else text)
    if damages:
        raise typer.Exit(Exit.DAMAGE)


def export(
    path: LogPath,
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new directory.", show_default=False)],
    slab_bytes: Annotated[
        int, typer.Option(parser=parse_size, metavar="SIZE", help="Begin a new slab after so much.")
    ] = "1MiB",  # type: ignore[assignment]
    length: Annotated[
        LengthField, typer.Option(help="What a record's length counts: 4+n as documented, n as the code did.")
    ] = "4+n",
    skip_damaged: SkipDamaged = False,
    json: Json = False,
) -> None:
    """Write a log of plain bytes as classic Queuefka slabs."""
    console, damages = Console(json), Damages(Console(json))
    with open_to_read(path) as log:
        check_raw(log)
        with made_aside(directory) as beside, console.progress("exporting") as advance:
            count = 0

            def counted() -> Iterator[bytes]:
                nonlocal count
                for data in _records(log, damages if skip_damaged else None, advance):
                    count += 1
                    yield data

            with damage_explained(path):
                size = write_slabs(beside, counted(), slab_bytes=slab_bytes, length=length)
    facts = {"path": printable(directory), "count": count, "bytes": size, "damages": damages.found}
    console.answer(facts, f"exported {plural(count, 'entry', 'entries')} as {format_size(size)} of slabs")
    damages.end()


def _records(log: Log, on_damage: OnDamage | None, advance: Advance) -> Iterator[bytes]:
    info = log.info()
    for batch in log.read(on_damage=on_damage):
        yield from batch.records.column(0).to_pylist()
        advance(batch.next_index - info.first_index, max(info.entries, 1))
