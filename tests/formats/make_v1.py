"""Made the files in `v1/`, once. They are kept for ever: run this only to add to them.

    .venv/bin/python tests/formats/make_v1.py <new directory>

Ids and times are fixed, so that the same headrace makes the same bytes.
"""

from __future__ import annotations

import gzip
import sys
import uuid
from pathlib import Path
from unittest import mock

import pyarrow as pa

from headrace.kernel.clock import ManualClock
from headrace.log import Containers, Log, Settings
from headrace.log.disk import Disk
from headrace.log.positions import PositionFile

ID = uuid.UUID("00112233445566778899aabbccddeeff")
START_US = 1_700_000_000_000_000
TYPED = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("what", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
RAW = pa.schema([pa.field("data", pa.binary(), nullable=False)])


def typed(first: int, stop: int) -> pa.RecordBatch:
    rows = [
        {"at": START_US + at, "what": None if at % 4 == 3 else f"what {at}", "tags": ["a", None][: at % 3]}
        for at in range(first, stop)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=TYPED)


def raw(*records: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(records, pa.binary())], schema=RAW)


def make_typed(path: Path) -> None:
    """Head, group, trim and truncation over a finalized and an active segment."""
    clock = ManualClock(START_US)
    with Log.open(path, TYPED, order_by="at", extra={"type": "golden"}, clock=clock) as log:
        log.append(typed(0, 3))
        clock.advance(1)
        log.append_group([typed(3, 4), typed(4, 6)], writer="driver", sequence=7, note="a note")
        log.head(START_US + 10)
        log.roll()
        clock.advance(1)
        log.append(typed(10, 12))
        log.trim(2)


def make_raw(path: Path) -> None:
    """A byte queue with a named position."""
    with Log.open(path, RAW, clock=ManualClock(START_US)) as log:
        log.append(raw(b"hello", b"", "wörld".encode()))
        log.roll()
        log.append(raw(b"last"))
        position = PositionFile.open(Disk(), path, "us")
        position.save(1)
        position.save(3)
        position.close()


def make_ring(path: Path) -> None:
    """Containers of which one was used, freed and used again."""
    ring = Settings(containers=Containers(bytes=512 * 1024))
    with Log.open(path, RAW, ring, clock=ManualClock(START_US)) as log:
        log.append(raw(b"first life"))
        log.roll()
        log.append(raw(b"second"))
        log.trim(1)
        log.roll()
        log.append(raw(b"third"))


LOGS = {"typed": make_typed, "raw": make_raw, "ring": make_ring}


def make(directory: Path, name: str) -> Path:
    """Write one of the golden logs as today's headrace does."""
    with mock.patch("uuid.uuid4", return_value=ID):
        LOGS[name](directory / name)
    (directory / name / "lock").unlink()  # it names a process
    return directory / name


def main(directory: Path) -> None:
    for name in LOGS:
        path = make(directory, name)
        for file in path.iterdir():
            if file.is_file() and file.stat().st_size > 100_000:
                file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes(), 9, mtime=0))
                file.unlink()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
