"""`headrace log create`: a new log with its type and its policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import pyarrow as pa
import typer

from headrace.cli.console import Console, printable
from headrace.cli.log_open import LogPath, check_free
from headrace.cli.options import Json, with_options
from headrace.cli.quantities import parse_duration, parse_size
from headrace.log import Containers, Finalize, Log, Retention, Settings
from headrace.log.queue import RAW_SCHEMA
from headrace.log.settings import Compression, Durability
from headrace.wire.fields import describe_field, describe_schema, parse_field


def _size(help_text: str) -> Any:
    return typer.Option(parser=parse_size, metavar="SIZE", help=help_text, show_default=False)


@dataclass(frozen=True, slots=True)
class Policies:
    """The options that become the log's `Settings`."""

    durability: Annotated[
        Durability,
        typer.Option(help="When an append counts as done: on disk, synced now and then, or left to the OS."),
    ] = "fsync"
    compression: Annotated[Compression, typer.Option(help="How batches are compressed.")] = "none"
    segment_bytes: Annotated[int | None, _size("Begin a new segment after so much, such as 128MiB.")] = None
    container_bytes: Annotated[int | None, _size("Use preallocated files of this size again and again.")] = (
        None
    )
    retain_age: Annotated[
        float | None,
        typer.Option(
            parser=parse_duration,
            metavar="DURATION",
            help="Remove segments older than this, such as 7d.",
            show_default=False,
        ),
    ] = None
    retain_bytes: Annotated[int | None, _size("Remove the oldest segments beyond so much.")] = None
    retain_entries: Annotated[
        int | None, typer.Option(min=0, help="Remove the oldest segments beyond so many entries.")
    ] = None

    def settings(self) -> Settings:
        segments = Finalize() if self.segment_bytes is None else Finalize(bytes=self.segment_bytes)
        return Settings(
            durability=self.durability,
            compression=self.compression,
            finalize=segments,
            retention=Retention(self.retain_age, self.retain_bytes, self.retain_entries),
            containers=None if self.container_bytes is None else Containers(bytes=self.container_bytes),
        )


@with_options
def create(
    path: LogPath,
    *,
    field: Annotated[
        list[pa.Field] | None,
        typer.Option(
            parser=parse_field,
            metavar="NAME:TYPE",
            help="A field, once for each. Without any, entries are plain bytes.",
            show_default=False,
        ),
    ] = None,
    order_by: Annotated[
        str | None, typer.Option(metavar="NAME", help="The field whose values never go back.")
    ] = None,
    policies: Policies,
    json: Json = False,
) -> None:
    r"""Make a new, empty log.

    Types have Arrow's names, such as int64, string, float64, bool, binary, date32, list<string> or
    'timestamp\[us, tz=UTC]'. A field may be null unless its type ends in ' not null'.
    """
    names = [one.name for one in field or []]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise typer.BadParameter(f"the field {twice!r} is given twice", param_hint="--field")
    check_free(path)
    schema = pa.schema(field) if field else RAW_SCHEMA
    settings = policies.settings().checked()
    with Log.open(path, schema, settings, order_by=order_by) as log:
        fields = ", ".join(describe_field(one) for one in log.schema) if field else "plain bytes"
        facts = {
            "path": printable(path),
            "id": log.meta.id,
            "schema": describe_schema(log.schema),
            "order_by": order_by,
            "settings": log.settings,
        }
        Console(json).answer(facts, f"created {path}: {fields}")
