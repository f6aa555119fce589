"""Growth: what must not depend on how much is in the log."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from bench.log.data import open_log, pool, ready_batches
from bench.measure import ROOT, Aim, Figure, Run, Table, timed
from headrace.log import Log
from headrace.log.disk import Disk, File
from headrace.log.queue import RAW_SCHEMA

_WINDOWS = 100


def run(run: Run) -> Iterator[Table]:
    segments = run.scaled(1000, 200)
    run.say(f"opening a log of {segments:,} segments")
    table = Table("Opening and reading large logs")
    table.figures += _opening(run, segments)
    size = run.scaled(5_000_000_000, 500_000_000)
    run.say(f"reading a log of {size / 1e9:.1f} GB")
    table.figures += _memory(run, size)
    yield table
    size = run.scaled(2_000_000_000, 400_000_000)
    run.say(f"growing a log to {size / 1e9:.1f} GB")
    table = Table(
        f"Cost of a 20-byte record as a log grows to {size / 1e9:.1f} GB",
        "Ready Arrow batches of 1 MiB (durability: os), read as Arrow. Medians of 9 windows of 1 %.",
    )
    table.figures += _flat(run, size)
    yield table


class _UnsyncedFile(File):
    def sync(self) -> None: ...


class _Unsynced(Disk):
    """Only to make many segments quickly; what is measured uses the real disk."""

    file_class = _UnsyncedFile

    def sync_dir(self, directory: Path) -> None: ...


def _opening(run: Run, segments: int) -> Iterator[Figure]:
    record = pa.RecordBatch.from_arrays([pa.array([b"x" * 20], pa.binary())], schema=RAW_SCHEMA)
    with run.fresh() as path:
        with Log.open(path, RAW_SCHEMA, disk=_Unsynced()) as log:
            for _ in range(segments):
                log.append(record)
                log.roll()
            log.append(record)
        os.sync()
        for read_only in (False, True):
            times, first = [], []
            for _ in range(run.rounds + 2):
                with timed() as spent:
                    Log.open(path, read_only=read_only).close()
                times.append(spent[0] * 1000)
                with timed() as spent, Log.open(path, read_only=read_only) as log:
                    next(iter(log.read(start=segments)))
                first.append(spent[0] * 1000)
            how = "read only" if read_only else "as a writer"
            what = f"open {segments:,} finalized segments {how}, and close"
            yield Figure(what, statistics.median(times), "ms", aim=Aim(100))
            yield Figure(f"the same {how}, with reading the last batch", statistics.median(first), "ms")


_READ = """
import sys
from headrace.log import Log
path, stop, follow = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "follow"
rows = 0
with Log.open(path, read_only=True) as log:
    print("ready", flush=True)
    for batch in log.read(stop=stop, follow=follow):
        rows += batch.records.num_rows
assert rows == stop, (rows, stop)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024)
"""


def _memory(run: Run, size: int) -> Iterator[Figure]:
    """The most that a fresh process has resident while it follows and while it reads a large log."""
    if shutil.disk_usage(run.directory).free < 3 * size:
        run.say("not enough free space on the disk for that: left out")
        return
    parts = ready_batches(pool(1024))
    repeats = size // sum(part.nbytes for part in parts)
    stop = repeats * sum(part.num_rows for part in parts)
    with run.fresh() as path:
        open_log(path).close()
        follower = _reader(path, stop, "follow")
        assert follower.stdout is not None
        follower.stdout.readline()
        with open_log(path) as log:
            for _ in range(repeats):
                for part in parts:
                    log.append(part)
            followed = int(follower.communicate()[0])
        read = int(_reader(path, stop, "read").communicate()[0].split()[-1])
    idle = _idle_bytes()
    for what, peak in (("follow it while it is written", followed), ("read it all", read)):
        what = f"{what}: {size / 1e9:.1f} GB, peak resident memory"
        yield Figure(what, peak / 1e6, "MB", "a process that only imports headrace", idle / 1e6, Aim(200))


def _reader(path: Path, stop: int, mode: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _READ, str(path), str(stop), mode]
    return subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)


def _idle_bytes() -> int:
    code = "import headrace.log;print(*[x.split()[1] for x in open('/proc/self/status') if 'VmHWM' in x])"
    return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) * 1024


def _flat(run: Run, size: int) -> Iterator[Figure]:
    parts = ready_batches(pool(20))
    rows = sum(part.num_rows for part in parts)
    repeats = max(1, size // _WINDOWS // sum(part.nbytes for part in parts))
    window_rows = repeats * rows
    with run.fresh() as path:
        with open_log(path) as log:
            appended = []
            for _ in range(_WINDOWS):
                with timed() as spent:
                    for _ in range(repeats):
                        for part in parts:
                            log.append(part)
                appended.append(spent[0] / window_rows * 1e9)
                _forget_pages(path, "*.seg")
        os.sync()
        _forget_pages(path, "*.active")  # else it alone is read from pages as they were written
        read: list[list[float]] = [[] for _ in range(_WINDOWS)]
        with Log.open(path, read_only=True) as log:
            for _ in range(3):
                for at, spent_s in enumerate(_read_windows(log, window_rows)):
                    read[at].append(spent_s / window_rows * 1e9)
    for way, costs in (("append", appended), ("read as Arrow", [min(times) for times in read])):
        begin = statistics.median(costs[1:10])
        for percent in (50, 100):
            now = statistics.median(costs[max(0, percent - 9) : percent])
            what = f"{way}, at {percent} % of the log"
            yield Figure(what, now, "ns", "the same at 1 … 10 %", begin, Aim(ratio=0.8))


def _forget_pages(path: Path, which: str) -> None:
    """Let segments leave the page cache, so that new pages do not come slowly from the host."""
    for file in path.glob(which):
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def _read_windows(log: Log, window_rows: int) -> Iterator[float]:
    began, until = time.perf_counter(), window_rows
    for batch in log.read():
        if batch.next_index >= until:
            now = time.perf_counter()
            yield now - began
            began, until = now, until + window_rows
