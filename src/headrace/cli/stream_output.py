"""Entries on stdout: as a table for eyes, JSON lines, an Arrow stream, or plain bytes line by line."""

from __future__ import annotations

import sys
from typing import Annotated, Literal, Protocol

import pyarrow as pa
import typer

from headrace.cli.console import Console
from headrace.cli.log_read import Printer
from headrace.log import Batch

OutputFormat = Literal["table", "jsonl", "arrow", "lines"]
Format = Annotated[
    OutputFormat | None,
    typer.Option(
        help="Arrow is an IPC stream; lines are for streams of plain bytes.",
        show_default="table on a terminal, else jsonl; lines for plain bytes",
    ),
]


class Output(Protocol):
    def print(self, batch: Batch, *, flush: bool = False) -> None: ...

    def end(self) -> None: ...


def chosen_format(given: OutputFormat | None, json: bool, *, raw: bool, live: bool = False) -> OutputFormat:
    """The format that was asked for, or the one that suits; `live` output has no end to wait for."""
    if json:
        if given not in (None, "jsonl"):
            raise typer.BadParameter(f"give --json or --format {given}, not both", param_hint="--format")
        return "jsonl"
    if given == "lines" and not raw:
        raise typer.BadParameter("only plain bytes are lines: take jsonl", param_hint="--format")
    if given == "arrow" and sys.stdout.isatty():
        raise typer.BadParameter("Arrow is not for terminals: redirect it", param_hint="--format")
    if given is not None:
        return given
    return "lines" if raw else "table" if sys.stdout.isatty() and not live else "jsonl"


def make_output(
    console: Console,
    schema: pa.Schema,
    form: OutputFormat,
    *,
    index: bool = False,
    numbered: bool = True,
    sparse: bool = False,
) -> Output:
    """What prints batches of `schema`, as `Printer` does or as Arrow."""
    if form == "arrow":
        return ArrowOutput(console, schema, index)
    printer_form: Literal["lines", "json", "table"] = "json" if form == "jsonl" else form
    return Printer(console, schema, printer_form, index, numbered=numbered, sparse=sparse)


class ArrowOutput:
    """Batches as one Arrow IPC stream; one that is empty has its schema all the same."""

    def __init__(self, console: Console, schema: pa.Schema, with_index: bool) -> None:
        if with_index and "index" in schema.names:
            raise typer.BadParameter("the stream has a field of that name itself", param_hint="--index")
        self._index = pa.field("index", pa.int64(), nullable=False) if with_index else None
        self._schema = pa.schema([self._index, *schema]) if self._index else schema
        self._sink = pa.PythonFile(_Stdout(console), mode="w")
        self._writer = pa.ipc.new_stream(self._sink, self._schema)

    def print(self, batch: Batch, *, flush: bool = False) -> None:
        columns = batch.records.columns
        if self._index is not None:
            columns = [pa.array(range(batch.base_index, batch.next_index), pa.int64()), *columns]
        self._writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))
        if flush:
            sys.stdout.buffer.flush()

    def end(self) -> None:
        self._writer.close()


class _Stdout:
    """stdout as pyarrow writes to it; closing it is nobody's business."""

    closed = False

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, data: bytes | memoryview) -> int:
        self._console.write(bytes(data))
        return len(data)

    def flush(self) -> None:
        sys.stdout.buffer.flush()

    def close(self) -> None:
        pass
