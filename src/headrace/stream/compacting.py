"""Compacting: some entries of a stream become a new stream, which appears under its name when it is whole.

The new stream has the type and the order of the old one. Its log is made aside, in the staging area, and
renamed: nobody sees a part of it, and a crash leaves nothing but what is removed after a week.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from headrace.kernel.errors import HeadraceError
from headrace.log.disk import Disk
from headrace.log.keys import KeyColumn
from headrace.log.log import Log
from headrace.log.meta import COPY_OF, Meta
from headrace.log.segment_reader import Batch
from headrace.log.settings import Retention
from headrace.stream.errors import StreamExists
from headrace.stream.staging import StagingArea


@contextmanager
def compacting_folder(area: StagingArea) -> Iterator[Path]:
    """A folder to make a log in, gone at the end."""
    place = f"compact-{uuid.uuid4().hex}"
    Disk().make_directory(area.folder(place))
    try:
        yield area.folder(place)
    finally:
        area.clear(place)
        area.remove_abandoned()


def chosen_entries(batches: Iterable[Batch], indexes: pa.Array) -> Iterator[pa.RecordBatch]:
    """Of these batches the entries with these indexes, which are in order."""
    wanted = indexes.to_numpy()
    for batch in batches:
        first, stop = wanted.searchsorted([batch.base_index, batch.next_index])
        if first < stop:
            yield batch.records.take(pa.array(wanted[first:stop] - batch.base_index))


def make_stream(
    target: Path, meta: Meta, folder: Path, records: Iterable[pa.RecordBatch], head_key: int
) -> int:
    """Make a stream of these entries and of this type, with HEAD at least there; how many they are."""
    disk, aside, entries = Disk(), folder / "log", 0
    settings = replace(meta.settings, retention=Retention(), containers=None)  # all of it is to be kept
    extra = {key: value for key, value in meta.extra.items() if key != COPY_OF}  # it is a stream of its own
    with Log.open(
        aside, meta.schema, settings, order_by=meta.order_by, strict=meta.strict, extra=extra
    ) as log:
        for batch in records:
            log.append(batch)
            entries += batch.num_rows
        if meta.order_by is not None and head_key > log.head_key:
            log.head(KeyColumn(meta.schema, meta.order_by).decode(head_key))
        log.sync(force=True)
    try:
        disk.rename(aside, target)  # refused by the file system if somebody made it meanwhile
    except HeadraceError as error:
        if disk.kind(target) != "nothing":
            raise StreamExists(f"a stream {target.name!r} was made meanwhile: choose another name") from error
        raise
    disk.sync_dir(target.parent)
    return entries
