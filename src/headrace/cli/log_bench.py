"""`headrace log bench`: a quick measurement of this machine, beside writing the same bytes plainly.

Every way ends with the data on the disk (fsync), so the rows can be compared. One run is a hint, not a
benchmark: see `bench/` for those.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.console import Console
from headrace.cli.options import Json
from headrace.cli.quantities import format_size, parse_size, plural
from headrace.log import Log
from headrace.log.queue import reader, writer

_CHUNK_BYTES = 1 << 20


def bench(
    records: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = 1_000_000,
    size: Annotated[int, typer.Option(parser=parse_size, metavar="BYTES", help="How large each is.")] = "100",  # type: ignore[assignment]
    directory: Annotated[
        Path | None,
        typer.Option(
            "--in", metavar="DIR", help="Measure this disk.", show_default="the temporary directory"
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Measure appending and reading on this machine.

    In a directory of its own that is removed afterwards, beside a plain write of the same bytes.
    """
    console = Console(json)
    data = [
        os.urandom(size) if size < 8 else at.to_bytes(8, "little") + bytes(size - 8) for at in range(records)
    ]
    with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir=directory) as place:
        ways = _ways(Path(place), data)
        seconds: dict[str, float] = {}
        with console.progress("measuring") as advance:
            for done, (name, run) in enumerate(ways.items()):
                advance(done, len(ways))
                start = time.perf_counter()
                run()
                seconds[name] = time.perf_counter() - start
    rows = [_row(name, taken, records, size) for name, taken in seconds.items()]
    if json:
        console.answer({"records": records, "size": size, "directory": str(place), "results": rows}, "")
        return
    console.note(f"{plural(records, 'record')} of {format_size(size)} in {place}")
    cells = [
        (r["name"], f"{r['ns_per_record']:,.0f}", f"{r['records_per_s']:,.0f}", f"{r['mb_per_s']:,.0f}")
        for r in rows
    ]
    console.table(("way", "ns a record", "records/s", "MB/s"), cells)


def _ways(place: Path, data: list[bytes]) -> dict[str, Callable[[], None]]:
    raw = memoryview(b"".join(data))

    def write_plainly() -> None:
        file = os.open(place / "plain", os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            for at in range(0, len(raw), _CHUNK_BYTES):
                os.write(file, raw[at : at + _CHUNK_BYTES])
            os.fsync(file)
        finally:
            os.close(file)

    def write_each() -> None:
        with writer(place / "each") as out:
            write = out.write
            for record in data:
                write(record)
            out.flush()

    def write_list() -> None:
        with writer(place / "list") as out:
            out.write_many(data)
            out.flush()

    def read_bytes() -> None:
        with reader(place / "list") as source:
            for _ in source:
                pass

    def read_arrow() -> None:
        with Log.open(place / "list", read_only=True) as log:
            for _ in log.read():
                pass

    return {
        "plain os.write": write_plainly,
        "append, one by one": write_each,
        "append, as a list": write_list,
        "read as bytes": read_bytes,
        "read as Arrow": read_arrow,
    }


def _row(name: str, seconds: float, records: int, size: int) -> dict[str, object]:
    return {
        "name": name,
        "seconds": seconds,
        "ns_per_record": seconds / records * 1e9,
        "records_per_s": records / seconds,
        "mb_per_s": records * size / seconds / 1e6,
    }
