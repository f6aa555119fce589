"""`headrace journal set`, `get`, `delete` and `range`: values under keys."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer

from headrace.cli.console import Console, printable
from headrace.cli.journal_open import JournalName, Place
from headrace.cli.journal_shown import ValueType, data_bytes, parse_data, shown_data, value_facts
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import parse_duration
from headrace.journal import NoSuchKey

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.", show_default=False)]


@dataclass(frozen=True, slots=True)
class Keeping:
    """How a value is kept."""

    type: Annotated[ValueType, typer.Option(help="What VALUE is.")] = "string"
    ttl: Annotated[
        float | None, typer.Option(parser=parse_duration, metavar="TIME", help="It is gone after so long.")
    ] = None
    volatile: Annotated[bool, typer.Option("--volatile", help="In memory only, on a server.")] = False
    no_overwrite: Annotated[bool, typer.Option("--no-overwrite", help="Refuse if the key has a value.")] = (
        False
    )


@with_options
def set_value(
    name: JournalName,
    key: Key,
    value: Annotated[
        str, typer.Argument(metavar="VALUE|-", help="The value; - is stdin.", show_default=False)
    ],
    keeping: Keeping,
    place: Place,
    json: Json = False,
) -> None:
    """Keep a value under a key.

    The journal is made if there is none. The value is on the disk when this ends. A number below zero comes
    last, behind two dashes: -- -7.

    Example: headrace journal set pages visits 41 --type integer --ttl 7d
    """
    place.check_volatile(keeping.volatile)
    console, data = Console(json), parse_data(value, keeping.type)
    with place.opened(name, console) as journal:
        journal.set(
            key, data, ttl=keeping.ttl, persist=not keeping.volatile, overwrite=not keeping.no_overwrite
        )
    console.answer({"key": printable(key), "type": keeping.type}, f"set {key}")


@with_options
def get(
    name: JournalName,
    key: Key,
    *,
    touch: Annotated[bool, typer.Option("--touch", help="Let its time to live begin anew.")] = False,
    place: Place,
    json: Json = False,
) -> None:
    """Print the value under a key.

    Buffers are printed as they are, all else as a line. With --json all that is known of it is told.

    Example: headrace journal get pages visits
    """
    console = Console(json)
    with place.opened(name, console) as journal:
        found = journal.get(key, touch=touch)
    if found is None:
        raise NoSuchKey(f"there is no value under {key!r}")
    if json:
        console.answer(value_facts(found), "")
    else:
        console.write(data_bytes(found.value))


@with_options
def delete(
    name: JournalName,
    key: Key,
    *,
    now: Annotated[
        bool,
        typer.Option("--now", help="Without a trace: a late write of before may bring it back."),
    ] = False,
    place: Place,
    json: Json = False,
) -> None:
    """Delete a value, with all its keys.

    Example: headrace journal delete pages visits
    """
    console = Console(json)
    with place.opened(name, console) as journal:
        journal.delete(key, now=now)
    console.answer({"key": printable(key), "deleted": True}, f"deleted {key}")


@dataclass(frozen=True, slots=True)
class Keys:
    """The options that choose keys."""

    low: Annotated[str, typer.Option("--from", metavar="KEY", help="The first key.")] = ""
    high: Annotated[
        str | None, typer.Option("--to", metavar="KEY", help="The last key.", show_default="the very last")
    ] = None
    match: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Keys that match this (RE2), anywhere unless it is anchored."),
    ] = None
    count: Annotated[int | None, typer.Option(min=0, metavar="N", help="At most so many.")] = None


@with_options
def range_values(name: JournalName, keys: Keys, place: Place, json: Json = False) -> None:
    """Print the values from one key to another, both included, in the order of the keys.

    A line is the key, a tab and the value; with --json an object a line.

    Example: headrace journal range pages --from a --to m --count 10
    """
    if keys.match is not None and (keys.low or keys.high is not None):
        raise typer.BadParameter("give --match, or --from and --to, not both", param_hint="--match")
    console, encoder = Console(json), msgspec.json.Encoder()
    with place.opened(name, console) as journal:
        found = (
            journal.range(keys.low, keys.high, keys.count)
            if keys.match is None
            else journal.match(keys.match, keys.count)
        )
        for value in found:
            if json:
                console.write(encoder.encode(value_facts(value)) + b"\n")
            else:
                shown = shown_data(value.value)
                text = shown if isinstance(shown, str) else encoder.encode(shown).decode()
                console.write(f"{printable(value.key)}\t{text}\n".encode())
    sys.stdout.flush()
