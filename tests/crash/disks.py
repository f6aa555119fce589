"""Disks that do harm. Each is handed to `Log.open(disk=...)`.

    RecordingDisk   notes every operation; `after_power_cut` builds what a power cut may leave of them
    FailingDisk     raises ENOSPC or EIO at one operation
    HookedDisk      calls a function before one operation, which is where another process may come in
    BoundedDisk     breaks a loop that would never end

What a power cut may leave, and what it may not (POSIX as ext4, XFS and friends keep it):

- what was written to a file before its last sync is there;
- of what was written later each write may be there, not there, there in part (any of its sectors, or a part
  that ends at any byte), or its length may be there while its bytes are zeros;
- names: creations, renames and removals are there in the order in which they were done, up to some moment;
  that moment is not before the last sync of the directory they were done in;
- names and contents know nothing of each other: a new name may stand for an old or empty content.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import ClassVar

from headrace.log.disk import BytesLike, Disk, File, error_for, sync_failed

SECTOR = 512


class LoopsForever(AssertionError):
    """More disk operations than any correct reader or writer of these small logs needs."""


class _WatchedFile(File):
    """A file that tells its disk before every change."""

    disk: WatchedDisk

    def write(self, parts: Sequence[BytesLike], offset: int) -> int:
        with self.disk.around("write", self, parts=parts, offset=offset):
            return super().write(parts, offset)

    def write_one(self, data: BytesLike, offset: int) -> int:
        return self.write((data,), offset)

    def truncate(self, size: int) -> None:
        with self.disk.around("truncate", self, size=size):
            super().truncate(size)

    def allocate(self, size: int, start: int = 0) -> None:
        with self.disk.around("allocate", self, size=size):
            super().allocate(size, start)

    def take_blocks(self, size: int, start: int) -> None:
        with self.disk.around("take_blocks", self, size=size):
            super().take_blocks(size, start)

    def sync(self) -> None:
        with self.disk.around("sync", self):
            super().sync()


class WatchedDisk(Disk):
    """A disk whose every changing operation passes through `around`."""

    def __init__(self) -> None:
        self.file_class = type("WatchedFile", (_WatchedFile,), {"disk": self})

    @contextmanager
    def around(self, operation: str, target: File | Path, **details: object) -> Iterator[None]:
        yield

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if create and not path.exists():
            with self.around("create", path):
                return super().open(path, write=write, create=create)
        return super().open(path, write=write, create=create)

    def make_directory(self, path: Path) -> None:
        if path.exists():
            super().make_directory(path)
            return
        with self.around("mkdir", path):
            super().make_directory(path)

    def rename(self, old: Path, new: Path) -> None:
        with self.around("rename", old, new=new):
            super().rename(old, new)

    def remove(self, path: Path) -> None:
        with self.around("remove", path):
            super().remove(path)

    def sync_dir(self, directory: Path) -> None:
        with self.around("sync_dir", directory):
            super().sync_dir(directory)


# --- power cuts


@dataclass(frozen=True, slots=True)
class Operation:
    kind: str
    file: int = 0
    path: str = ""
    new: str = ""
    offset: int = 0
    size: int = 0
    data: bytes = b""


@dataclass(slots=True)
class _Content:
    """A file's bytes before anything was recorded, and whatever was done to them since."""

    before: bytes = b""
    done: list[tuple[int, Operation]] = field(default_factory=list)


class RecordingDisk(WatchedDisk):
    """Notes everything that changes below `root`. What is there already counts as safely on the disk."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.journal: list[Operation] = []
        self._names: dict[str, int] = {}
        self._contents: dict[int, bytes] = {}
        self._directories = {"."}
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            if path.is_dir():
                self._directories.add(name)
            else:
                self._names[name] = len(self._contents) + 1
                self._contents[len(self._contents) + 1] = path.read_bytes()
        self._start = dict(self._names)
        self._numbers = len(self._contents)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        file.number = self._names[self._relative(path)]  # type: ignore[attr-defined]
        return file

    @contextmanager
    def around(self, operation: str, target: File | Path, **details: object) -> Iterator[None]:
        noted = self._noted(operation, target, **details)
        yield
        self.journal.append(noted)

    def _noted(self, kind: str, target: File | Path, **details: object) -> Operation:
        if isinstance(target, File):
            number: int = target.number  # type: ignore[attr-defined]
            data = b"".join(bytes(part) for part in details.get("parts", ()))  # type: ignore[attr-defined]
            offset, size = int(details.get("offset", 0)), int(details.get("size", 0))  # type: ignore
            return Operation(kind, number, offset=offset, size=size, data=data)
        path = self._relative(target)
        if kind == "create":
            self._numbers += 1
            self._names[path] = self._numbers
            return Operation(kind, self._numbers, path)
        if kind == "rename":
            new = self._relative(details["new"])  # type: ignore[arg-type]
            self._names[new] = self._names.pop(path)
            return Operation(kind, path=path, new=new)
        if kind == "remove":
            self._names.pop(path, None)
        return Operation(kind, path=path)

    def _relative(self, path: Path) -> str:
        return os.path.relpath(path, self.root)

    def after_power_cut(self, target: Path, when: int, luck: PowerCut) -> None:
        """Build in the empty directory `target` what is left if the power goes after `when` operations."""
        journal = self.journal[:when]
        names, directories = self._names_left(journal, luck)
        contents = {number: _Content(raw) for number, raw in self._contents.items()}
        for at, operation in enumerate(journal):
            if operation.kind in ("write", "truncate", "allocate", "sync"):
                contents.setdefault(operation.file, _Content()).done.append((at, operation))
        for directory in sorted(directories):
            (target / directory).mkdir(parents=True, exist_ok=True)
        for name, number in sorted(names.items()):
            content = contents.get(number, _Content())
            (target / name).write_bytes(_bytes_left(content, luck))

    def _names_left(self, journal: list[Operation], luck: PowerCut) -> tuple[dict[str, int], set[str]]:
        changes = [(at, op) for at, op in enumerate(journal) if op.kind in _NAMING]
        safe = 0
        for at, synced in enumerate(journal):
            if synced.kind != "sync_dir":
                continue
            for position, (earlier, change) in enumerate(changes):
                parents = {os.path.dirname(change.path) or "."}
                if change.new:
                    parents.add(os.path.dirname(change.new) or ".")
                if earlier < at and synced.path in parents:
                    safe = max(safe, position + 1)
        names, directories = dict(self._start), set(self._directories)
        for _, change in changes[: luck.names_until(safe, len(changes))]:
            if change.kind == "create":
                names[change.path] = change.file
            elif change.kind == "rename":
                if change.path in names:
                    names[change.new] = names.pop(change.path)
            elif change.kind == "remove":
                names.pop(change.path, None)
            else:
                directories.add(change.path)
        return names, directories


_NAMING = ("create", "rename", "remove", "mkdir")


class PowerCut:
    """The luck of one power cut: what of the unsynced is left.

    `nothing` and `everything` are the two ends; `a prefix` is a disk that keeps its order; `anything` tears
    and reorders.
    """

    KINDS: ClassVar = ("nothing", "everything", "a prefix", "anything")

    def __init__(self, kind: str, seed: int) -> None:
        self.kind = kind
        self._random = Random(seed)

    def names_until(self, safe: int, most: int) -> int:
        return {"nothing": safe, "everything": most}.get(self.kind, self._random.randint(safe, most))

    def applied(self, count: int) -> int:
        """How many of `count` unsynced operations on one file to look at."""
        return {"nothing": 0, "a prefix": self._random.randint(0, count)}.get(self.kind, count)

    def tears_last(self) -> bool:
        return self.kind == "a prefix" and self._random.random() < 0.6

    def keeps(self) -> bool:
        return self.kind != "anything" or self._random.random() < 0.5

    def tears(self) -> bool:
        return self.kind == "anything" and self._random.random() < 0.4

    def coin(self) -> bool:
        return self._random.random() < 0.5

    def below(self, stop: int) -> int:
        return self._random.randrange(stop) if stop > 0 else 0


def _bytes_left(content: _Content, luck: PowerCut) -> bytes:
    last_sync = max((n for n, (_, op) in enumerate(content.done) if op.kind == "sync"), default=-1)
    raw = bytearray(content.before)
    for _, operation in content.done[: last_sync + 1]:
        _apply(raw, operation)
    loose = [operation for _, operation in content.done[last_sync + 1 :]]
    count = luck.applied(len(loose))
    for operation in loose[:count]:
        if not luck.keeps():
            if luck.coin() and operation.kind == "write":  # the length came through, the bytes did not
                raw.extend(bytes(max(0, operation.offset + len(operation.data) - len(raw))))
        elif operation.kind == "write" and luck.tears():
            _apply_torn(raw, operation, luck)
        else:
            _apply(raw, operation)
    if count < len(loose) and loose[count].kind == "write" and luck.tears_last():
        _apply(raw, _shortened(loose[count], luck.below(len(loose[count].data))))
    return bytes(raw)


def _apply(raw: bytearray, operation: Operation) -> None:
    if operation.kind == "write":
        end = operation.offset + len(operation.data)
        raw.extend(bytes(max(0, end - len(raw))))
        raw[operation.offset : end] = operation.data
    elif operation.kind == "truncate":
        del raw[operation.size :]
        raw.extend(bytes(operation.size - len(raw)))
    elif operation.kind == "allocate":
        raw.extend(bytes(max(0, operation.size - len(raw))))


def _shortened(operation: Operation, size: int) -> Operation:
    return Operation("write", operation.file, offset=operation.offset, data=operation.data[:size])


def _apply_torn(raw: bytearray, operation: Operation, luck: PowerCut) -> None:
    """Some sectors of a write, or all of it up to some byte."""
    data, start = operation.data, operation.offset
    if luck.coin():
        _apply(raw, _shortened(operation, luck.below(len(data))))
        return
    if luck.coin():
        raw.extend(bytes(max(0, start + len(data) - len(raw))))
    at = start
    while at < start + len(data):
        stop = min(at - at % SECTOR + SECTOR, start + len(data))
        if luck.coin():
            _apply(raw, Operation("write", offset=at, data=data[at - start : stop - start]))
        at = stop


# --- failures


class FailingDisk(WatchedDisk):
    """Fails the `fail_at`-th changing operation (from 0), or all from there on if `lasting`.

    Only operations whose kind is in `kinds` count. ENOSPC on a write takes `part` of its bytes first, as a
    disk that fills up does. `failed` holds what was failed: (operation, name of the file).
    """

    def __init__(
        self,
        fail_at: int | None = None,
        code: int = errno.EIO,
        *,
        kinds: Sequence[str] = (),
        lasting: bool = False,
        part: float = 0.0,
        only: Callable[[str], bool] = lambda name: True,
    ) -> None:
        super().__init__()
        self.fail_at = fail_at
        self.code = code
        self.kinds = kinds
        self.lasting = lasting
        self.part = part
        self.only = only
        self.count = 0
        self.failed: list[tuple[str, str]] = []

    def heal(self) -> None:
        self.fail_at = None

    @contextmanager
    def around(self, operation: str, target: File | Path, **details: object) -> Iterator[None]:
        path = target.path if isinstance(target, File) else target
        if (not self.kinds or operation in self.kinds) and self.only(path.name):
            at, self.count = self.count, self.count + 1
            if self.fail_at is not None and (at == self.fail_at or (self.lasting and at > self.fail_at)):
                self.failed.append((operation, path.name))
                self._fail(operation, target, path, details)
        yield

    def _fail(self, operation: str, target: File | Path, path: Path, details: dict[str, object]) -> None:
        error = OSError(self.code, os.strerror(self.code))
        if operation == "write" and self.part and isinstance(target, File):
            data = b"".join(bytes(part) for part in details["parts"])  # type: ignore[attr-defined]
            os.pwrite(target.fd, data[: int(len(data) * self.part)], details["offset"])  # type: ignore
        if operation == "sync":
            raise sync_failed(path, error)
        raise error_for(error, path)


class HookedDisk(WatchedDisk):
    """Calls `hook` once, right before the `at`-th changing operation (from 0)."""

    def __init__(self, at: int | None, hook: Callable[[], None]) -> None:
        super().__init__()
        self.at = at
        self.hook = hook
        self.count = 0
        self.called: tuple[str, str] | None = None

    @contextmanager
    def around(self, operation: str, target: File | Path, **details: object) -> Iterator[None]:
        path = target.path if isinstance(target, File) else target
        at, self.count = self.count, self.count + 1
        if at == self.at:
            self.called = (operation, path.name)
            self.hook()
        yield


class BoundedDisk(Disk):
    """The real disk, for so many operations: no correct use of a small log needs more."""

    def __init__(self, operations: int = 20_000) -> None:
        self.left = operations

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise LoopsForever("the log asks the disk again and again")

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        self._count()
        return super().open(path, write=write, create=create)

    def names(self, directory: Path) -> list[str]:
        self._count()
        return super().names(directory)
