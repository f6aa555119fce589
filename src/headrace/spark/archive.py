"""Archiving: a stream as Parquet files, divided by the day of its order key, exactly once.

    hr.spark.archive(spark, "data", "orders", to="lake/orders")

Entries of a stream are in the order of their keys, so those of a day are neighbours: the driver cuts the
stream into files by seeking, Spark's workers write them, and the driver puts them in their places
(`archive_folder`). Nothing is shuffled, and columns keep their types. What a file holds is decided by its
indexes alone: an attempt that is repeated writes the same again. Run it again, and it goes on where it was; a
position in the stream keeps retention from removing what is not archived yet.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Unpack

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.kernel.errors import BadSettings, Refused, Trimmed, Truncated
from headrace.log.keys import KeyColumn
from headrace.log.plan import Span
from headrace.spark.archive_folder import (
    ArchiveAbout,
    ArchiveFile,
    By,
    open_archive,
    read_about,
)
from headrace.spark.archive_parquet import check_columns, write_file
from headrace.spark.job import NodeOptions, Progress, StorePlace, place_of, round_of, spread
from headrace.spark.origin import About, Origin, Position
from headrace.spark.place import Place
from headrace.spark.reader import open_position

_UNITS_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_PERIOD_S = {"day": 86_400, "hour": 3_600}
_FILE_BYTES = 256 << 20
_FILE_ROWS_MIN, _FILE_ROWS_MAX = 1 << 10, 1 << 20
_LOOK_S = 0.2
_EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Archived:
    """What was archived: entries from `first_index` up to, not including, `next_index`."""

    stream: str
    to: str
    by: By
    first_index: int
    next_index: int
    entries: int = 0
    files: int = 0
    bytes: int = 0


def archive(
    spark: SparkSession,
    store: StorePlace,
    stream: str,
    *,
    to: str | os.PathLike[str],
    by: By | None = None,
    rows_per_file: int | None = None,
    with_index: bool | None = None,
    follow_s: float | None = None,
    **node: Unpack[NodeOptions],
) -> Archived:
    """Bring the archive in the folder `to` up to the stream's end; with `follow_s`, again that often.

    `by` is "day" for streams that are ordered by time, else "none"; `with_index` adds a column `_index`.
    """
    place = place_of(spark, store, node)
    with Archiver(place, stream, to=to, by=by, rows_per_file=rows_per_file, with_index=with_index) as job:
        if follow_s is not None:
            job.follow(spark, follow_s)
        return job.catch_up(spark)


class Archiver:
    """An archive that is being written. It is held: nobody else can write to it meanwhile.

    It needs Spark only for the writing: what is wrong with the store or the folder is found before.
    """

    def __init__(
        self,
        place: Place,
        stream: str,
        *,
        to: str | os.PathLike[str],
        by: By | None = None,
        rows_per_file: int | None = None,
        with_index: bool | None = None,
    ) -> None:
        self._place = place
        self._origin = place.stream(stream)
        self._about = self._origin.about()
        path = Path(os.path.abspath(to))
        is_new = read_about(path) is None
        wanted = self._wanted(path, by, rows_per_file, bool(with_index))
        check_columns(self._about, with_index=bool(with_index))
        self._folder = open_archive(path, wanted, by=by, with_index=with_index)
        try:
            self._position = self._held(is_new)
        except BaseException:
            self._folder.close()
            raise

    def catch_up(self, spark: SparkSession, progress: Progress | None = None) -> Archived:
        """Archive all that the stream holds now."""
        columns, about = self._origin.about(), self._folder.about
        begun, stop = about.next_index, self._origin.settled().next_index
        self._check(columns.id, begun, stop)
        entries = files = size = 0
        write = partial(write_file, self._origin, columns, str(self._folder.staged), about.with_index)
        plan = plan_files(self._origin, columns, about, stop)
        while together := list(islice(plan, round_of(spark))):
            staged = spread(spark, together, write)
            self._folder.commit(together, staged)
            self._position.save(self._folder.about.next_index)
            entries += sum(each.rows for each in staged)
            files += sum(each.path is not None for each in staged)
            size += sum(each.bytes for each in staged)
            if progress is not None:
                progress(self._folder.about.next_index - begun, max(stop - begun, 1))
        reached = self._folder.about.next_index
        return Archived(about.stream, str(self._folder.path), about.by, begun, reached, entries, files, size)

    def follow(
        self, spark: SparkSession, every_s: float, told: Callable[[Archived], None] | None = None
    ) -> None:
        """Archive what comes, every so many seconds, until interrupted. `told` hears of each time."""
        while True:
            due = time.monotonic() + every_s
            done = self.catch_up(spark)
            if told is not None and done.entries:
                told(done)
            while time.monotonic() < due or self._reaches_no_further():
                time.sleep(min(_LOOK_S, every_s))

    def close(self) -> None:
        self._position.close()
        self._folder.close()

    def __enter__(self) -> Archiver:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- inside

    def _wanted(self, path: Path, by: By | None, rows: int | None, with_index: bool) -> ArchiveAbout:
        timed = is_timed(self._about)
        if by in _PERIOD_S and not timed:
            order = self._about.order_by or "index"
            raise BadSettings(
                f"stream {self._origin.name!r} is ordered by {order}, which is no time: archive it by 'none'"
            )
        if rows is not None and rows < 1:
            raise BadSettings(f"rows_per_file is a number from 1 on, not {rows}")
        slug = re.sub(r"[^-_A-Za-z0-9]", "-", path.name)[:60]
        return ArchiveAbout(
            stream=self._origin.name,
            log=self._about.id,
            by=by or ("day" if timed else "none"),
            rows_per_file=rows or _usual_rows(self._place, self._origin.name),
            with_index=with_index,
            position=f"archive-{slug}-{uuid.uuid4().hex[:8]}",
            next_index=self._origin.first_index(),
        )

    def _held(self, is_new: bool) -> Position:
        """The position that keeps retention away, once all is put right that a crash left."""
        folder = self._folder
        position = open_position(self._origin, folder.about.position)
        try:
            folder.recover()
            position.save(folder.about.next_index)
            if is_new and (first := self._origin.first_index()) > folder.about.next_index:
                folder.begin(first)  # trimmed while nothing held it
        except BaseException:
            position.close()
            raise
        return position

    def _check(self, log: str, begun: int, stop: int) -> None:
        """Refuse to go on where the stream is not what was archived."""
        name, first = self._origin.name, self._origin.first_index()
        if log != self._folder.about.log:
            raise Refused(f"stream {name!r} was dropped and made anew: archive it into another folder")
        if begun < first:
            raise Trimmed(
                f"stream {name!r} begins at index {first}: entries {begun} to {first - 1} were removed "
                "before they were archived; archive the rest into another folder"
            )
        if begun > stop:
            raise Truncated(
                f"stream {name!r} ends at index {stop}, and is archived up to {begun}: it was cut off; "
                "archive it into another folder"
            )

    def _reaches_no_further(self) -> bool:
        return self._origin.settled().next_index <= self._folder.about.next_index


# --- planning, on the driver


def plan_files(origin: Origin, about: About, archive: ArchiveAbout, stop: int) -> Iterator[ArchiveFile]:
    """The files for the entries up to `stop`, cut where a day ends and at multiples of a file's rows."""
    start, rows = archive.next_index, archive.rows_per_file
    while start < stop:
        folder, end = "", stop
        if archive.by != "none":
            folder, end = _period(origin, about, archive.by, start, stop)
        while start < end:
            cut = min(end, (start // rows + 1) * rows)
            yield ArchiveFile(folder, start, cut)
            start = cut


def _period(origin: Origin, about: About, by: By, start: int, stop: int) -> tuple[str, int]:
    """The folder of the first entry from `start` on, and where those of the same day or hour end."""
    assert about.order_by is not None
    key = KeyColumn(about.schema, about.order_by)
    first = next(iter(origin.read(Span(start, stop), [about.order_by])), None)
    if first is None:
        return "", stop  # nothing but entries that were lost
    units = _UNITS_A_SECOND[about.schema.field(about.order_by).type.unit]
    number = int(key.number(KeyColumn(first.records.schema, about.order_by).span(first.records)[0]))
    period = number // (units * _PERIOD_S[by])
    end = origin.index_of(key.sortable((period + 1) * units * _PERIOD_S[by]))
    try:
        moment = _EPOCH + dt.timedelta(seconds=period * _PERIOD_S[by])
    except OverflowError:
        raise BadSettings(
            f"entry {first.base_index} lies outside the years 1 to 9999: archive the stream by 'none'"
        ) from None
    day = f"{free_name(about, 'day')}={moment:%Y-%m-%d}"
    folder = f"{day}/{free_name(about, 'hour')}={moment.hour:02d}" if by == "hour" else day
    return folder, min(stop, end)


def is_timed(about: About) -> bool:
    return about.order_by is not None and pa.types.is_timestamp(about.schema.field(about.order_by).type)


def free_name(about: About, name: str) -> str:
    """`name` as a column of its own: with the order key's name before it if the stream has such a field."""
    while name in about.schema.names:
        name = f"{about.order_by}_{name}"
    return name


def _usual_rows(place: Place, stream: str) -> int:
    """Rows that make a file of a usual size, as large as the stream's entries are."""
    with place.opened() as store, store.stream(stream) as opened:
        info = opened.info()
    rows = _FILE_BYTES * info.entries // max(info.bytes, 1) if info.entries else _FILE_ROWS_MAX
    return max(_FILE_ROWS_MIN, min(rows, _FILE_ROWS_MAX))
