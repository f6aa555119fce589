"""`headrace stream create`: a new stream with its type, its order and its policies.

Types are written as in a Python dataclass (int, float, str, bool, bytes, datetime, date, time, timedelta,
decimal, uuid) or by Arrow's names (int32, timestamp[ms, tz=UTC], list<string>, …). A field whose type ends
in `?` may be missing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
import typer

from headrace.cli.console import Console, printable
from headrace.cli.log_create import Policies
from headrace.cli.options import Json, with_options
from headrace.cli.row_files import FileFormat, open_rows, opened_file
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir, StreamName
from headrace.log.settings import SCAN, SHERLOCK, Settings
from headrace.store import open_store
from headrace.stream.agreement import StreamConfig
from headrace.stream.plain import PLAIN
from headrace.wire.fields import describe_field, describe_schema, parse_type

_PYTHON = {kind.__name__.lower(): made.arrow for kind, made in PLAIN.items()}
_LIST = re.compile(r"list[<\[](.+)[>\]]")


def parse_stream_field(text: str) -> pa.Field:
    """The field that `name:type` or `name:type?` describes, or ValueError with a sentence."""
    name, colon, kind = text.partition(":")
    name, kind = name.strip(), kind.strip()
    optional = kind.endswith("?")
    kind = kind.removesuffix("?").strip()
    if not colon or not name or not kind:
        raise ValueError(f"{text!r} is not name:type, such as user:str or amount:float?")
    return pa.field(name, _parse_kind(kind), nullable=optional)


def _parse_kind(text: str) -> pa.DataType:
    if text.lower() in _PYTHON:
        return _PYTHON[text.lower()]
    if match := _LIST.fullmatch(text):
        return pa.list_(_parse_kind(match[1].strip()))
    return parse_type(text)


@dataclass(frozen=True, slots=True)
class Ordering:
    """The options about order and ids."""

    order_by: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The order key: a field that never goes back.")
    ] = None
    strict: Annotated[bool, typer.Option("--strict", help="The order key must increase.")] = False
    unique_by: Annotated[
        str | None, typer.Option(metavar="FIELD", help="The id: an entry with one that is there is left out.")
    ] = None
    unique_window: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Look for ids in the last N entries only.")
    ] = None

    def check(self) -> None:
        if self.unique_window is not None and self.unique_by is None:
            raise typer.BadParameter("it needs --unique-by", param_hint="--unique-window")
        if self.strict and self.order_by is None:
            raise typer.BadParameter("it needs --order-by: indexes increase anyway", param_hint="--strict")


@with_options
def create(
    name: StreamName,
    *,
    field: Annotated[
        list[pa.Field] | None,
        typer.Option(
            parser=parse_stream_field,
            metavar="NAME:TYPE",
            help="A field, once for each. Without any, entries are plain bytes.",
            show_default=False,
        ),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take the fields of this Parquet, Arrow, CSV or JSON lines file."),
    ] = None,
    ordering: Ordering,
    profile: Annotated[
        Literal["scan", "sherlock"] | None,
        typer.Option(
            help="Segments as scans like them, or as the Sherlock design says.", show_default="scan"
        ),
    ] = None,
    policies: Policies,
    store: StoreDir = DEFAULT_STORE,
    json: Json = False,
) -> None:
    """Make a new, empty stream.

    Types are int, float, str, bool, bytes, datetime, date, time, timedelta, decimal, uuid, or Arrow's names.
    A field whose type ends in '?' may be missing. What is read from JSON lines or CSV with --like may be
    missing as well, except the order key and the id.
    """
    if field and like is not None:
        raise typer.BadParameter("give --field or --like, not both", param_hint="--like")
    ordering.check()
    schema: pa.Schema | None = None
    if like is not None:
        schema = schema_like(like, None)
    elif field:
        schema = pa.schema(field)
    schema = None if schema is None else _with_required(schema, ordering)
    config = StreamConfig(
        bytes if schema is None else schema,
        ordering.order_by,
        ordering.strict,
        ordering.unique_by,
        ordering.unique_window,
        _settings(policies, profile),
    )
    with open_store(store) as opened, opened.create(name, config) as stream:
        fields = ", ".join(describe_field(one) for one in stream.schema) if schema else "plain bytes"
        facts = {
            "name": name,
            "path": printable(stream.log.path),
            "id": stream.log.meta.id,
            "schema": describe_schema(stream.schema),
            "order_by": stream.order_by,
            "strict": ordering.strict,
            "unique_by": ordering.unique_by,
            "unique_window": ordering.unique_window,
            "settings": stream.log.settings,
        }
        ordered = f", ordered by {stream.order_by or 'index'}"
        Console(json).answer(facts, f"created stream {name}: {fields}{ordered}")


def schema_like(path: Path, form: FileFormat | None) -> pa.Schema:
    """The fields that a file has, or seems to have."""
    with opened_file(str(path)) as file:
        return open_rows(file, str(path), form).schema()


def _with_required(schema: pa.Schema, ordering: Ordering) -> pa.Schema:
    """An order key or an id that is missing could not be stored: let the type say so."""
    needed = {ordering.order_by, ordering.unique_by}
    return pa.schema([one.with_nullable(False) if one.name in needed else one for one in schema])


def _settings(policies: Policies, profile: str | None) -> Settings:
    settings = policies.settings()
    if profile is not None:
        if policies.segment_bytes is not None:
            raise typer.BadParameter("give --profile or --segment-bytes, not both", param_hint="--profile")
        settings = replace(settings, finalize=SHERLOCK if profile == "sherlock" else SCAN)
    return settings.checked()
