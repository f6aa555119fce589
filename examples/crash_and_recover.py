"""A log is written, killed, torn, recovered, damaged and repaired; every promise is checked on the way.

    make demo        or        python examples/crash_and_recover.py

A real process appends typed batches to `demo-data/log` and acknowledges each one after its sync. It is
killed with SIGKILL in the middle of that. Then the log is recovered and read, a byte of it is flipped, and
it is verified, repaired and read again. The exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.table import Table

from headrace.log import Batch, Damage, Finalize, Log, Settings, repair

PLACE = Path("demo-data")
PATH = PLACE / "log"
ROWS = 500
WRITE_SECONDS = 1.5
ACKS_MIN = 50
SENSORS = ["inlet", "outlet", "turbine", "gate"]
SCHEMA = pa.schema(
    [
        pa.field("number", pa.int64(), nullable=False),
        pa.field("sensor", pa.string(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
console = Console(width=min(Console().width, 100))


def readings(first: int, count: int) -> pa.RecordBatch:
    """Entries that describe themselves: all of them follows from their number, which is their index."""
    numbers = pa.array(range(first, first + count), pa.int64())
    sensors = pa.array(SENSORS).take(pc.bit_wise_and(numbers, 3))
    return pa.RecordBatch.from_arrays([numbers, sensors, pc.divide(numbers.cast("double"), 8)], schema=SCHEMA)


def write_for_ever() -> None:
    """The writer process: append, sync, acknowledge."""
    with Log.open(PATH, SCHEMA, Settings(finalize=Finalize(bytes=1 << 20))) as log:
        for first in itertools.count(log.next_index, ROWS):
            log.append(readings(first, ROWS))
            log.sync()
            print(log.durable_index, flush=True)


def write_and_kill() -> tuple[int, float]:
    """How many entries a writer acknowledged before it was killed, and in how many seconds."""
    writer = subprocess.Popen([sys.executable, __file__, "write"], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged, acks, start = 0, 0, time.monotonic()
    for line in writer.stdout:
        acknowledged, acks = int(line), acks + 1
        if acks == 1:
            start = time.monotonic()
        if acks >= ACKS_MIN and time.monotonic() - start > WRITE_SECONDS:
            break
    seconds = time.monotonic() - start
    writer.send_signal(signal.SIGKILL)
    for line in writer.stdout:  # what it had said before it died counts as well
        acknowledged = int(line) if line.endswith("\n") else acknowledged
    writer.wait()
    return acknowledged, seconds


def tear_the_tail() -> int:
    """Leave half a frame at the end, as a power cut in the middle of a write does."""
    (active,) = PATH.glob("*.active")
    half = active.read_bytes()[-1000:] + b"?"
    with active.open("ab") as file:
        file.write(half)
    return len(half)


def flip_a_byte() -> tuple[Path, int]:
    segment = sorted(PATH.glob("*.seg"))[0]
    at = segment.stat().st_size // 2
    with segment.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 0x10]))
        os.fsync(file.fileno())
    return segment, at


class Reading:
    """Everything that can be read: how many entries, whether each is right, what was damaged, how fast."""

    def __init__(self, log: Log) -> None:
        self.entries, self.right = 0, True
        self.damages: list[Damage] = []
        start = time.perf_counter()
        for batch in log.read(on_damage=self.damages.append):
            self.entries += batch.records.num_rows
            self.right &= is_right(batch)
        self.seconds = time.perf_counter() - start


def is_right(batch: Batch) -> bool:
    return batch.records.equals(readings(batch.base_index, batch.records.num_rows))


class Promises:
    """What was promised, and whether it was kept."""

    def __init__(self) -> None:
        self.kept: dict[str, bool] = {}

    def check(self, promise: str, kept: bool) -> None:
        self.kept[promise] = bool(kept)

    def show(self) -> bool:
        rows = [(promise, "[green]kept" if kept else "[red]BROKEN") for promise, kept in self.kept.items()]
        show("What was promised", rows)
        return all(self.kept.values())


def show(title: str, rows: list[tuple[str, object]]) -> None:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, f"{value:,}" if isinstance(value, int) else str(value))
    console.print(table)


def main() -> int:
    logging.getLogger("headrace").setLevel(logging.ERROR)  # recovery's warnings are part of the story below
    shutil.rmtree(PLACE, ignore_errors=True)
    promises = Promises()
    console.print(f"\n[bold]A log in {PATH}[/]: written, killed, torn, recovered, damaged, repaired\n")

    acknowledged, seconds = write_and_kill()
    torn = tear_the_tail()
    show(
        "1  A process writes, and is killed in the middle of it",
        [
            ("batches of", f"{ROWS} typed entries, one sync each"),
            ("acknowledged before SIGKILL", acknowledged),
            ("durable entries a second", int(acknowledged / seconds)),
            ("half a frame left at the end", f"{torn:,} bytes, as a power cut would"),
        ],
    )

    start = time.perf_counter()
    log = Log.open(PATH)
    opened = time.perf_counter() - start
    recovery, first = log.recovery, Reading(log)
    show(
        "2  Opening it recovers it",
        [
            ("took", f"{opened * 1000:.1f} ms"),
            ("cut off", f"{recovery.cut_bytes:,} bytes of an unfinished write"),
            ("a copy of them is in", recovery.kept_copy),
            ("entries read", first.entries),
            ("of them acknowledged", acknowledged),
            ("written, but not acknowledged yet", first.entries - acknowledged),
            ("entries read and checked a second", int(first.entries / first.seconds)),
        ],
    )
    promises.check("nothing that was acknowledged is missing", first.entries >= acknowledged)
    promises.check("every entry is what was written", first.right and not first.damages)
    promises.check("what was cut off is kept", recovery.cut_bytes > 0 and bool(recovery.kept_copy))

    log.roll()
    segment, at = flip_a_byte()
    report, second = log.verify(), Reading(log)
    log.close()
    lost = [(first, stop - 1) for first, stop in report.lost if stop is not None]
    lost_entries = sum(last - first + 1 for first, last in lost)
    show(
        "3  A byte is flipped in a finalized segment",
        [
            ("segment", segment.name),
            ("byte", at),
            ("verify says", report.damages[0].what if report.damages else "[red]nothing"),
            ("lost, exactly", ", ".join(f"{first:,} to {last:,}" for first, last in lost)),
            ("entries read around it", second.entries),
        ],
    )
    promises.check("damage is found", not report.ok and len(second.damages) == 1)
    promises.check("only the damaged batch is lost", lost_entries == ROWS)
    promises.check("everything else is read, and right", second.right)
    promises.check("what is lost is told exactly", second.entries + lost_entries == first.entries)

    done = repair(PATH)
    with Log.open(PATH) as log:
        next_index = log.append(readings(log.next_index, ROWS))
        log.sync()
        after, third = log.verify(), Reading(log)
    show(
        "4  Repaired, it is whole again without what was lost",
        [
            ("rewritten", done.rewritten[0]),
            ("the damaged file is in", done.kept[0]),
            ("verify says", "whole" if after.ok else "[red]damaged"),
            ("entries", third.entries),
            ("new entries from index", next_index),
        ],
    )
    promises.check("repair loses nothing more", third.entries == second.entries + ROWS and third.right)
    promises.check("a lost index is never used again", next_index == first.entries and after.ok)
    promises.check("the damaged file is kept", (PATH / done.kept[0]).stat().st_size > 0)

    kept = promises.show()
    console.print("Look for yourself: [bold]headrace log info demo-data/log[/], or verify, tail, cat.\n")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(write_for_ever() if sys.argv[1:] == ["write"] else main())
