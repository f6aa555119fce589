"""A run that was sent to be staged: taken piece by piece, and checked before it has a name.

What lands later must not fail half-way, so everything that could be wrong with a run is found out here: its
checksum, its schema, missing values, the order of its keys, how much it takes in memory. What was found
stands in the file's name, which nobody else writes:

    <id>-<rows>-<first key>-<last key>-<checksum>.arrow          keys and checksum as 16 hexadecimal digits
"""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import xxhash

from headrace.kernel.errors import KeyOrder, NotFound, Refused, SchemaMismatch, TooLarge
from headrace.log.keys import KeyColumn
from headrace.log.split import split
from headrace.stream.staging import Run
from headrace.wire.arrow_size import unpacked_bytes

RUN_BYTES_MAX = 1 << 30
_ID = re.compile(r"[0-9a-f]{32}\Z")
_NAME = re.compile(r"[0-9a-f]{32}-(\d{1,18})-([0-9a-f]{16})-([0-9a-f]{16})-([0-9a-f]{16})\.arrow\Z")


def checked_id(text: str) -> str:
    if not _ID.match(text):
        raise Refused(f"the id of a run has 32 hexadecimal digits, not {text[:40]!r}")
    return text


def named_run(folder: Path, name: str) -> Run:
    """The run with this name, as it was checked when it came."""
    found = _NAME.match(name)
    if found is None:
        raise Refused(f"{name[:120]!r} is no name of a run: the node says it when a run is staged")
    first, last, checksum = (int(found[at], 16) for at in (2, 3, 4))
    return Run(str(folder / name), int(found[1]), first, last, checksum)


def check_there(runs: list[Run]) -> None:
    """Runs may have been removed, by whoever gave the write up or after a week."""
    for run in runs:
        if not Path(run.path).is_file():
            raise NotFound(f"the run {Path(run.path).name} is not staged here (any more): stage it again")


def keep_run(raw: Path, run_id: str, checksum: int, schema: pa.Schema, key: KeyColumn | None) -> Run:
    """Check what was written to `raw`, and give it the name of a run."""
    run = _checked(raw, checksum, schema, key)
    name = f"{run_id}-{run.rows}-{run.first_key:016x}-{run.last_key:016x}-{run.checksum:016x}.arrow"
    kept = raw.with_name(name)
    raw.rename(kept)
    return replace(run, path=str(kept))


def _checked(raw: Path, checksum: int, schema: pa.Schema, key: KeyColumn | None) -> Run:
    if not raw.stat().st_size:  # which cannot be mapped
        raise SchemaMismatch("the body is empty: a run is an Arrow IPC stream")
    with pa.memory_map(str(raw)) as mapped:
        whole = mapped.read_buffer()
        if xxhash.xxh3_64_intdigest(whole) != checksum:
            raise Refused("what came is not what the checksum was made of: send it again")
        rows, first, last = 0, 0, 0
        try:
            if (size := unpacked_bytes(whole)) > RUN_BYTES_MAX:
                raise TooLarge(f"unpacked, a run has {size} bytes; {RUN_BYTES_MAX} are allowed")
            with pa.ipc.open_stream(whole) as reader:
                if not reader.schema.equals(schema):
                    raise SchemaMismatch("the run has other columns than the stream: open the stream anew")
                for batch in reader:
                    _check_batch(batch)
                    span = (last, last) if key is None or not batch.num_rows else key.span(batch)
                    if rows and span[0] < last:
                        raise KeyOrder("the keys of a run go back: sort it by the order key")
                    first, last = (first if rows else span[0]), span[1]
                    rows += batch.num_rows
        except (pa.ArrowException, OSError, struct.error) as error:
            raise SchemaMismatch(f"the body is no Arrow IPC stream: {error}") from error
    return Run(str(raw), rows, first, last, checksum)


def _check_batch(batch: pa.RecordBatch) -> None:
    batch.validate(full=True)
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise SchemaMismatch(f"{field.name!r} may not be null, and is in {column.null_count} rows")
    split(batch)  # a single entry may be too large
