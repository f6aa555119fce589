"""`headrace stream info`, `verify` and `drop`: what a stream is, whether it is whole, and its end."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import pyarrow as pa
import typer

from headrace.cli.console import Console, aligned, printable
from headrace.cli.log_care import settings_facts, tell_report
from headrace.cli.options import Json
from headrace.cli.quantities import format_size, plural
from headrace.cli.stream_open import (
    DEFAULT_STORE,
    StoreDir,
    StreamName,
    is_raw,
    opened_store,
    opened_stream,
    stream_of,
    unique_of,
    variants_of,
)
from headrace.kernel.errors import Damaged, Refused
from headrace.log import LogInfo
from headrace.log.keys import decode_float, decode_int
from headrace.log.segment_reader import Batch
from headrace.stream import Stream
from headrace.stream.id_index import IDS_FILE
from headrace.wire.fields import describe_field, describe_schema
from headrace.wire.json_rows import column_values


def info(name: StreamName, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Say what a stream holds, how it is ordered and how it is set."""
    with opened_stream(store, name) as stream:
        found, raw, head = stream.info(), is_raw(stream), _head(stream)
        unique_by, window = unique_of(stream)
        ids = stream.log.path / IDS_FILE
        ids_bytes = ids.stat().st_size if unique_by and ids.exists() else 0
        facts = {field: getattr(found, field) for field in LogInfo.__slots__} | {
            "name": name,
            "path": printable(found.path),
            "schema": describe_schema(found.schema),
            "raw": raw,
            "variants": variants_of(stream),
            "strict": stream.log.meta.strict,
            "head": head,
            "entries": found.entries,
            "last_index": found.next_index - 1 if found.entries else None,
            "unique_by": unique_by,
            "unique_window": window,
            "foreign": [each for each in found.foreign if not each.startswith(IDS_FILE)],
        }
    Console(json).answer(facts, aligned(_lines(facts, found, ids_bytes)))


def verify(name: StreamName, store: StoreDir = DEFAULT_STORE, json: Json = False) -> None:
    """Read and check every byte of a stream.

    What is damaged, and exactly which entries are lost, is listed; the exit code is then 3.
    """
    console = Console(json)
    with opened_stream(store, name) as stream:
        with console.progress("verifying") as advance:
            report = stream.verify(advance)
        path = stream.log.path
    tell_report(console, path, report)


def drop(
    name: StreamName,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Remove a stream and all its entries, for ever."""
    console = Console(json)
    with opened_store(store) as opened:
        with stream_of(opened, name) as stream:
            found = stream.info()
        what = f"stream {name!r} with {plural(found.entries, 'entry', 'entries')}"
        check_meant(what, yes, json)
        opened.drop(name)
    facts = {"name": name, "entries": found.entries, "freed_bytes": found.bytes}
    console.answer(facts, f"dropped {what}, freed {format_size(found.bytes)}")


def check_meant(what: str, yes: bool, json: bool) -> None:
    """Ask whether it is to be removed, unless that was said."""
    if yes:
        return
    if json or not _on_terminal():
        raise Refused(f"{what} would be gone for ever: say --yes if you mean it")
    typer.confirm(f"Remove {what} for ever?", abort=True, err=True)


def _on_terminal() -> bool:
    return sys.stdin.isatty()


def _head(stream: Stream) -> Any:
    """HEAD as JSON can hold it: at least the last entry's key. None: no key yet, or it cannot be read."""
    order_by = stream.order_by
    if order_by is None:
        return None
    key: int | None = None
    start = max(stream.next_index - 1, stream.log.first_index, 0)
    try:
        for item in stream.log.read_all(start, columns=[order_by], on_damage=lambda damage: None):
            key = item.last_key if isinstance(item, Batch) else item.key
    except Damaged:
        return None
    return None if key is None else _shown_key(key, stream.schema.field(order_by).type)


def _shown_key(key: int, kind: pa.DataType) -> Any:
    if pa.types.is_floating(kind):
        value = pa.array([decode_float(key)], pa.float64())
    elif pa.types.is_unsigned_integer(kind):
        value = pa.array([key], pa.uint64())
    else:
        value = pa.array([decode_int(key)], pa.int64()).cast(kind)
    return column_values(value)[0]


def _lines(facts: dict[str, Any], found: LogInfo, ids_bytes: int) -> list[tuple[str, object]]:
    fields = ["plain bytes"] if facts["raw"] else [describe_field(field) for field in found.schema]
    lines: list[tuple[str, object]] = [("name", facts["name"]), ("path", found.path), ("id", found.id)]
    lines += [("field" if not at else "", field) for at, field in enumerate(fields)]
    lines += [("variants", ", ".join(facts["variants"]))] if facts["variants"] else []
    strict = ", strictly increasing" if facts["strict"] else ""
    lines.append(("order by", f"{found.order_by or 'index'}{strict}"))
    if found.order_by is not None:
        lines.append(("HEAD", "-" if facts["head"] is None else facts["head"]))
    if facts["unique_by"]:
        window = facts["unique_window"]
        among = "" if window is None else f" among the last {plural(window, 'entry', 'entries')}"
        lines.append(("unique ids", f"{facts['unique_by']}{among}, {format_size(ids_bytes)}"))
    lines += [
        ("entries", found.entries),
        ("first index", found.first_index),
        ("next index", found.next_index),
        ("durable until", found.durable_index),
        ("segments", found.segments),
        ("total size", format_size(found.bytes)),
        ("writer epoch", found.epoch),
        *settings_facts(found.settings, found.free_containers),
    ]
    lines += [(f"position {name}", index) for name, index in found.positions.items()]
    lines += [("kept copy", f"kept/{name}") for name in found.kept]
    lines += [("foreign file", name) for name in facts["foreign"]]
    return lines
