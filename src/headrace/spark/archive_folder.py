"""Archive folders: Parquet files that any reader finds by listing them, each entry in exactly one.

    lake/orders/
      day=2026-11-16/00000000000000000000-00000000000000099999.parquet       entries 0 to 99,999
      day=2026-11-17/00000000000000100000-00000000000000150000.parquet
      _headrace/archive.json          which stream this is, how it is divided, and the next index
      _headrace/lock                  held by the one job that writes
      _headrace/staged/               what tasks are writing; readers of the folder do not look here

A file holds neighbouring entries, and its name tells which. It is written aside, synced, and renamed into
its place; files appear in the order of the stream. So whatever happens, the files hold the entries from the
first one up to some index, each once. `archive.json` says up to where this was so at the last commit; what a
crash left behind that is taken as it is, as far as it follows on, and removed otherwise.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from headrace.kernel.errors import BadSettings, Damaged, NewerFormat, NotALog, Refused, WriterTaken
from headrace.log.disk import Disk, File

By = Literal["day", "hour", "none"]
OWN_DIRECTORY = "_headrace"
ABOUT_FILE = "archive.json"
LOCK_FILE = "lock"
STAGED_DIRECTORY = "staged"
FORMAT = 1
_FILE = re.compile(r"(\d{20})-(\d{20})\.parquet")


class ArchiveAbout(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive is of, and how far it reaches."""

    stream: str
    log: str
    by: By
    rows_per_file: int
    with_index: bool
    position: str
    next_index: int
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class ArchiveFile:
    """Entries from `first` up to, not including, `stop`, and the folder they belong to."""

    folder: str
    first: int
    stop: int

    @property
    def name(self) -> str:
        return f"{self.first:020d}-{self.stop - 1:020d}.parquet"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file that a task has written aside. Without rows (entries that were lost) there is none."""

    path: str | None
    rows: int
    bytes: int


class ArchiveFolder:
    """The folder of one archive, of which there is one writer at a time."""

    def __init__(self, path: Path, about: ArchiveAbout, lock: File) -> None:
        """Use `open_archive`."""
        self.path = path
        self.about = about
        self._disk = Disk()
        self._lock = lock

    @property
    def staged(self) -> Path:
        return self.path / OWN_DIRECTORY / STAGED_DIRECTORY

    def recover(self) -> None:
        """Put right what a crash left."""
        shutil.rmtree(self.staged, ignore_errors=True)
        self._disk.make_directory(self.staged)
        reached = self.about.next_index
        for first, stop, path in self._files():
            if first == reached:
                reached = stop
            elif first > reached:  # a power cut kept this name, and not one before it
                self._disk.remove(path)
        if reached > self.about.next_index:
            self._sync_folders(path.parent for _, _, path in self._files())
            self._advance(reached)

    def commit(self, files: Sequence[ArchiveFile], staged: Sequence[StagedFile]) -> None:
        """Put what tasks have staged into its place, in the order of the stream."""
        folders: list[Path] = []
        for file, made in zip(files, staged, strict=True):
            folder = self.path / file.folder
            if made.path is not None:
                if not folder.exists():
                    self._disk.make_directory(folder)
                self._disk.rename(Path(made.path), folder / file.name)
                folders.append(folder)
        self._sync_folders(folders)
        self._advance(files[-1].stop)

    def begin(self, index: int) -> None:
        """An archive without files begins here: what comes before was removed from the stream already."""
        self._advance(index)

    def close(self) -> None:
        """Let go. What tasks staged for a round that failed is removed: the disk may be full of it."""
        shutil.rmtree(self.staged, ignore_errors=True)
        self._lock.close()

    def _advance(self, index: int) -> None:
        about = msgspec.structs.replace(self.about, next_index=index)
        _write_about(self._disk, self.path, about)
        self.about = about

    def _files(self) -> list[tuple[int, int, Path]]:
        """The files at or behind the next index, in order."""
        found = []
        for path in self.path.rglob("*.parquet"):
            name = _FILE.fullmatch(path.name)
            if name and int(name[1]) >= self.about.next_index:
                found.append((int(name[1]), int(name[2]) + 1, path))
        return sorted(found)

    def _sync_folders(self, folders: Iterable[Path]) -> None:
        wanted = {self.path}
        for folder in folders:
            while folder != self.path and folder not in wanted:
                wanted.add(folder)
                folder = folder.parent
        for folder in sorted(wanted, key=lambda each: -len(each.parts)):
            self._disk.sync_dir(folder)


def read_about(path: Path) -> ArchiveAbout | None:
    """What the archive at `path` says of itself; None if nothing is there. Anything else there is refused."""
    disk = Disk()
    kind = disk.kind(path)
    if kind == "nothing":
        return None
    if kind == "file":
        raise NotALog(f"{path} is a file; an archive is a folder: choose another path")
    about = path / OWN_DIRECTORY / ABOUT_FILE
    if disk.kind(about) == "nothing":
        if set(disk.names(path)) - {OWN_DIRECTORY}:
            raise Refused(f"{path} holds other files, and is no archive: choose an empty folder or a new one")
        return None
    try:
        found = msgspec.json.decode(disk.read_whole(about), type=ArchiveAbout)
    except msgspec.MsgspecError as error:
        raise Damaged(
            f"{about} cannot be read ({error}): restore it, or archive into another folder"
        ) from error
    if found.format > FORMAT:
        raise NewerFormat(
            f"{path} has format {found.format}; this headrace writes up to {FORMAT}: upgrade it"
        )
    return found


def open_archive(
    path: Path, wanted: ArchiveAbout, *, by: By | None, with_index: bool | None
) -> ArchiveFolder:
    """The archive at `path`: made if nothing is there, else checked to be of this stream and this shape."""
    check_archive(path, wanted, by=by, with_index=with_index)
    disk = Disk()
    disk.make_directory(path / OWN_DIRECTORY)
    lock = disk.open(path / OWN_DIRECTORY / LOCK_FILE, write=True, create=True)
    if not lock.try_lock():
        lock.close()
        raise WriterTaken(f"another job is writing to the archive {path}: wait for it, or stop it")
    try:
        found = check_archive(path, wanted, by=by, with_index=with_index)
        if found is None:
            _write_about(disk, path, wanted)
            disk.sync_dir(path)
            disk.sync_dir(path.parent)
    except BaseException:
        lock.close()
        raise
    return ArchiveFolder(path, found or wanted, lock)


def check_archive(
    path: Path, wanted: ArchiveAbout, *, by: By | None, with_index: bool | None
) -> ArchiveAbout | None:
    """What the archive at `path` is, if it is of this stream and this shape; None if there is none yet."""
    found = read_about(path)
    if found is None:
        return None
    if found.log != wanted.log:
        what = "another stream" if found.stream != wanted.stream else "an earlier stream of this name"
        raise Refused(f"{path} is the archive of {what} ({found.stream!r}): choose another folder")
    for name, given, stored in (("by", by, found.by), ("with_index", with_index, found.with_index)):
        if given is not None and given != stored:
            raise BadSettings(f"{path} was begun with {name}={stored}: go on so, or choose another folder")
    return found


def _write_about(disk: Disk, path: Path, about: ArchiveAbout) -> None:
    disk.replace_whole(path / OWN_DIRECTORY / ABOUT_FILE, msgspec.json.encode(about))


def staged_name() -> str:
    """A name that no other attempt at the same file has, and that no reader takes for Parquet to be read."""
    return f"{uuid.uuid4().hex}.unfinished"
