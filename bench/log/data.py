"""What is written: records of three sizes, and how headrace is opened for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headrace import Settings, Writer, writer
from headrace.log import Log
from headrace.log.queue import RAW_SCHEMA

SIZES = (20, 100, 1024)
POOL = 10_000
"""Different records; they are written over and over."""
CHUNK_BYTES = 1 << 20
"""The size of ready batches and of raw writes."""


def pool(size: int) -> list[bytes]:
    return [os.urandom(size) for _ in range(POOL)]


def settings(durability: str) -> Settings:
    return Settings(durability=durability)  # type: ignore[arg-type]


def open_writer(path: Path, durability: str) -> Writer:
    return writer(path, settings=settings(durability))


def open_log(path: Path, durability: str = "os") -> Log:
    return Log.open(path, RAW_SCHEMA, settings(durability))


def fill(path: Path, size: int, count: int) -> None:
    """A byte queue of `count` records in batches as its writer makes them by itself."""
    records = pool(size)
    with open_writer(path, "os") as out:
        for _ in range(count // POOL):
            for data in records:
                out.write(data)


def ready_batches(records: Sequence[bytes]) -> list[pa.RecordBatch]:
    """The records as Arrow batches of about CHUNK_BYTES each; small records are repeated to fill them."""
    step = max(1, CHUNK_BYTES // (len(records[0]) + 4))
    records = [*records] * -(-step * 4 // len(records))
    records = records[: len(records) // step * step]
    parts = (records[at : at + step] for at in range(0, len(records), step))
    return [pa.RecordBatch.from_arrays([pa.array(part, pa.binary())], schema=RAW_SCHEMA) for part in parts]


def said(size: int) -> str:
    return "1 KiB" if size == 1024 else f"{size} bytes"
