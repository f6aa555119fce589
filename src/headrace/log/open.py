"""Opening: from a path to a log that is known to be one, recovered and held.

A directory is a log if it has a `meta.json`. Creating one needs a path where nothing is, or an empty
directory: other people's files are never mixed with ours. Whatever is refused, nothing has been changed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.kernel.clock import Clock
from headrace.kernel.errors import Damaged, IsReplica, NotALog, NotFound, SchemaMismatch
from headrace.log.appender import Appender
from headrace.log.body import BodyEncoder
from headrace.log.damage import Recovery
from headrace.log.disk import Disk
from headrace.log.doubt import cut_at_hole
from headrace.log.keys import KeyColumn
from headrace.log.lock import LOCK_FILE, WriterLock
from headrace.log.mark import carry_mark
from headrace.log.meta import COPY_OF, META_FILE, Meta, load_meta, save_meta
from headrace.log.recover import recover
from headrace.log.replace_active import FENCE, cut_log, plan_cut
from headrace.log.segment_name import Listing, parse_name
from headrace.log.settings import Settings

_logger = logging.getLogger("headrace.log")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller of `Log.open` said; None where nothing was said."""

    schema: pa.Schema | None = None
    order_by: str | None = None
    strict: bool = False
    settings: Settings | None = None
    extra: dict[str, Any] | None = None

    def check(self, meta: Meta, path: Path) -> None:
        """Raise SchemaMismatch if the log at `path` is not what the caller takes it for."""
        if self.schema is not None:
            check_is_schema(self.schema)
            check_schema(meta.schema, self.schema, str(path))
        if self.order_by is not None and self.order_by != meta.order_by:
            kept = f"field {meta.order_by!r}" if meta.order_by else "index"
            raise SchemaMismatch(f"{path} is ordered by its {kept}, not by {self.order_by!r}")

    def new_meta(self, now_us: int) -> Meta:
        assert self.schema is not None
        if not len(self.schema):
            raise SchemaMismatch("a schema without fields: there would be nothing to store")
        settings = (self.settings or Settings()).checked()
        if self.order_by is not None:
            KeyColumn(self.schema, self.order_by)
        BodyEncoder(self.schema, settings.compression)
        meta = Meta.new(self.schema, now_us)
        return replace(
            meta, order_by=self.order_by, strict=self.strict, settings=settings, extra=self.extra or {}
        )


def open_meta(disk: Disk, path: Path, wanted: Wanted) -> Meta:
    """The meta of an existing log, checked against what is wanted."""
    kind = disk.kind(path)
    if kind == "nothing":
        raise NotFound(f"there is no log at {path}: give a schema to create one, or check the path")
    if kind == "file":
        raise NotALog(f"{path} is a file; a log is a directory: choose another path")
    if disk.kind(path / META_FILE) == "nothing":
        names = disk.names(path)
        if any(parse_name(name) for name in names):
            raise Damaged(f"{path} has segments but no {META_FILE}: run `headrace log repair {path}`")
        raise NotALog(f"{path} is not a log (it has no {META_FILE}): choose another path")
    meta = load_meta(disk, path)
    wanted.check(meta, path)
    return meta


def open_appender(
    disk: Disk, path: Path, wanted: Wanted, clock: Clock, *, take_over: bool = False, copying: bool = False
) -> tuple[Appender, Recovery]:
    """Hold the log, creating it if need be, recover it, and make it ready to be appended to.

    A copy of another log is opened by its follower only (`copying`): its epoch stays that of its source, and
    what is missing at its end comes again.
    """
    if wanted.schema is not None and _is_free(disk, path):
        check_is_schema(wanted.schema)
        _create(disk, path, wanted.new_meta(clock.now_us()))
    _meta_to_write(disk, path, wanted, copying)  # what is refused leaves no lock behind
    lock = WriterLock.acquire(disk, path, take_over=take_over)
    try:
        # Read again: the writer before us may have changed it until it let the lock go.
        meta = _with_settings(_meta_to_write(disk, path, wanted, copying), wanted, path)
        if take_over:
            _fence(disk, path, meta)
        if copying:
            cut_at_hole(disk, path, meta, clock)
        recovered = recover(disk, path, meta, clock, new_epoch=take_over, copying=copying)
        if meta.encode() != load_meta(disk, path).encode():
            save_meta(disk, path, meta)
        appender = Appender(disk, path, meta, recovered.state, recovered.active, lock, clock)
        lost_until = recovered.state.next_index if copying else recovered.lost_until
        appender.begin(recovered.base_index, lost_until)
        if recovered.meta.schema != meta.schema:
            # A change of schema, or a cut into an older one, ended before this. A full ring must open all the
            # same, or nobody could trim it.
            appender.roll(beyond_limit=True)
    except BaseException:
        lock.release()
        raise
    return appender, recovered.report


def _meta_to_write(disk: Disk, path: Path, wanted: Wanted, copying: bool) -> Meta:
    """The meta of a log that may be written: by its follower only (`copying`) if it is a copy."""
    meta = open_meta(disk, path, wanted)
    if COPY_OF in meta.extra and not copying:
        origin = "{name!r} at {url}".format(**meta.extra[COPY_OF])
        raise IsReplica(
            f"{path} is a copy of {origin}: publish there, or make it a stream of its own with "
            "`headrace stream unfollow`"
        )
    return meta


def check_is_schema(schema: object) -> None:
    if not isinstance(schema, pa.Schema):
        raise SchemaMismatch(f"a schema is a pyarrow.Schema, not {type(schema).__name__}")


def check_schema(stored: pa.Schema, given: pa.Schema, where: str) -> None:
    """Raise SchemaMismatch naming the first field in which `given` differs from `stored`."""
    if stored.equals(given):
        return
    for at, field in enumerate(stored):
        if at >= len(given):
            raise SchemaMismatch(f"{where}: the field {field.name!r} ({field.type}) is missing")
        other = given.field(at)
        if field.name != other.name:
            raise SchemaMismatch(f"{where}: field {at} is {field.name!r} here, {other.name!r} was given")
        if field.type != other.type:
            raise SchemaMismatch(f"{where}: {field.name!r} is {field.type} here, {other.type} was given")
        if field.nullable != other.nullable:
            null = "may be null" if field.nullable else "may not be null"
            raise SchemaMismatch(f"{where}: {field.name!r} {null} here, unlike in what was given")
    raise SchemaMismatch(f"{where}: it has no field {given.field(len(stored)).name!r}")


def _is_free(disk: Disk, path: Path) -> bool:
    """Whether a log can be created at `path`: nothing there, or only what a crashed creation left."""
    kind = disk.kind(path)
    if kind == "nothing":
        return True
    leftovers = (META_FILE + ".tmp", LOCK_FILE)
    return kind == "directory" and all(name in leftovers for name in disk.names(path))


def _create(disk: Disk, path: Path, meta: Meta) -> None:
    disk.make_directories(path)
    lock = WriterLock.acquire(disk, path)
    try:
        if disk.kind(path / META_FILE) == "nothing":
            save_meta(disk, path, meta)
            for number in range(meta.settings.containers.initial if meta.settings.containers else 0):
                _create_container(disk, path, number + 1, meta)
    finally:
        lock.release()


def _create_container(disk: Disk, path: Path, number: int, meta: Meta) -> None:
    assert meta.settings.containers is not None
    with disk.opened(path / f"{number:016d}.free", write=True, create=True) as file:
        file.allocate(meta.settings.containers.bytes)
        file.sync()


def _with_settings(meta: Meta, wanted: Wanted, path: Path) -> Meta:
    """Stored settings give way to wanted ones, but the size of containers is for life."""
    if wanted.settings is None:
        return meta
    settings, stored = wanted.settings.checked(), meta.settings.containers
    if (settings.containers and settings.containers.bytes) != (stored and stored.bytes):
        _logger.warning("%s keeps the container size it was created with", path)
        settings = replace(settings, containers=stored)
    return replace(meta, settings=settings)


def _fence(disk: Disk, path: Path, meta: Meta) -> None:
    """Give the active segment a new file under a new epoch, which the old writer cannot reach."""
    active = Listing.of(disk.names(path)).active
    if active is not None:
        epoch = active.epoch + FENCE
        carry_mark(disk, path, active.epoch, epoch)
        cut_log(disk, path, meta, plan_cut(disk, path, meta, None, epoch), fencing=True)
