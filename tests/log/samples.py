"""Small real things that the tests of the log share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from headrace.log import Containers, Log, Settings

ORDERS = pa.schema([pa.field("at", pa.int64()), pa.field("what", pa.string())])
RAW = pa.schema([pa.field("data", pa.binary(), nullable=False)])
RING = Settings(containers=Containers(bytes=512 * 1024))


def orders(first: int, stop: int) -> pa.RecordBatch:
    """One entry for each number: its order key is the number itself."""
    return orders_at(range(first, stop))


def orders_at(keys: Iterable[int | None]) -> pa.RecordBatch:
    keys = list(keys)
    return pa.record_batch(
        [pa.array(keys, pa.int64()), pa.array([f"order {key}" for key in keys])], schema=ORDERS
    )


def raw(*records: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(records, pa.binary())], schema=RAW)


def blob(size: int, fill: int = 0) -> pa.RecordBatch:
    """One raw entry of a size."""
    return raw(bytes([fill]) * size)


def values(log: Log, start: int = 0, stop: int | None = None, **how: object) -> list:
    """The first column of the entries between two indexes."""
    return [value for batch in log.read(start, stop, **how) for value in batch.records.column(0).to_pylist()]


def all_bytes(directory: Path) -> dict[str, bytes]:
    """Every file below a directory and what is in it."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def segment_files(directory: Path) -> list[str]:
    """The names of segments and containers, in order."""
    return sorted(p.name for p in directory.iterdir() if p.suffix in (".seg", ".active", ".free"))


def active_file(directory: Path) -> Path:
    (path,) = directory.glob("*.active")
    return path


def written_bytes(directory: Path) -> int:
    """How far the active segment is written; behind that room may be reserved."""
    return len(active_file(directory).read_bytes().rstrip(b"\0"))


def flip(path: Path, offset: int, mask: int = 0xFF) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= mask
    path.write_bytes(content)
