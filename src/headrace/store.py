"""The store: a directory of streams and journals.

    with hr.open("data") as store:
        orders = store.stream("orders", Order, order_by="at")
        pages = store.journal("pages")

Opening a store takes no lock, so many processes have it open at once; each stream and each journal has a
lock of its own.

    data/
      store.json            what this directory is
      lock                  held while the store or something in it is made
      streams/orders/       one log for each stream
      journals/pages/       one log, with its tail, for each journal
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from headrace.drop import drop, sweep
from headrace.journal.copy import JournalCopy, finish, follow, unfollow
from headrace.journal.engine import LOG_DIRECTORY, Engine
from headrace.journal.errors import JournalTaken
from headrace.journal.journal import Journal
from headrace.journal.settings import JournalSettings
from headrace.kernel.errors import BadSettings, Closed, Damaged, NewerFormat, NotALog, NotFound, WriterTaken
from headrace.kernel.names import checked_name, is_name
from headrace.log.copy import LogCopy, Origin, release
from headrace.log.disk import Disk
from headrace.log.lock import LOCK_FILE
from headrace.log.log import Log
from headrace.log.meta import META_FILE, Meta
from headrace.log.settings import Settings
from headrace.stream.agreement import StreamConfig, Terms, check_config, check_exactly, stored_declaration
from headrace.stream.declaration import Declaration, declare
from headrace.stream.errors import PublisherTaken, StreamExists
from headrace.stream.evolve import check_grown
from headrace.stream.stream import Stream

STORE_FILE = "store.json"
STREAMS_DIRECTORY = "streams"
JOURNALS_DIRECTORY = "journals"
FORMAT = 1


class Store:
    def __init__(self, path: Path) -> None:
        """Use `hr.open`."""
        self.path = path
        self._disk = Disk()
        self._lock = threading.Lock()
        self._open: set[Stream] = set()
        self._journals: dict[str, Journal] = {}
        self._closed = False

    def stream(
        self,
        name: str,
        type: Any = None,  # noqa: A002
        order_by: str | Callable[[Any], Any] | None = None,
        *,
        strict: bool = False,
        unique_by: str | None = None,
        unique_window: int | None = None,
        settings: Settings | None = None,
    ) -> Stream:
        """The stream `name`: created with this type, or checked against what is there.

        Without a type an existing stream is opened by what is stored of it; its entries are dicts then.
        """
        self._check()
        if type is None:
            return self._opened(name, stored_declaration(self.meta(name)))
        config = StreamConfig(type, order_by, strict, unique_by, unique_window, settings)
        declaration = declare(type, order_by)
        self.make(name, Terms.of(declaration, config))
        check_config(name, self.meta(name), declaration, config)
        return self._opened(name, declaration)

    def create(self, name: str, config: StreamConfig) -> Stream:
        """A new stream; StreamExists if there is one of that name."""
        self._check()
        declaration = declare(config.type, config.order_by)
        with self._creating():
            if self._exists(name):
                raise StreamExists(f"there is a stream {name!r} in {self.path} already: choose another name")
            self._create(self._path_of(name), Terms.of(declaration, config))
        return self._opened(name, declaration)

    def meta(self, name: str) -> Meta:
        """What is stored of a stream; NotFound if there is none."""
        self._check()
        if not self._exists(name):
            raise NotFound(f"there is no stream {name!r} in {self.path}: give its type to create it")
        return _meta(self._path_of(name))

    def make(self, name: str, terms: Terms) -> bool:
        """Make a stream by its terms, unless there is one of that name; whether it was made now."""
        self._check()
        if self._exists(name):
            return False
        with self._creating():
            if self._exists(name):
                return False
            self._create(self._path_of(name), terms)
            return True

    def grow(self, name: str, terms: Terms) -> None:
        """A stream has more fields, or classes, from now on. Nobody may be publishing to it."""
        schema = terms.declaration().schema
        check_grown(self.meta(name).schema, schema, name)
        try:
            log = Log.open(self._path_of(name))
        except WriterTaken as error:
            raise PublisherTaken(f"stream {name!r} cannot grow: {error}") from error
        with log:
            meta = log.meta  # nobody else changes it now; before, somebody may have
            check_grown(meta.schema, schema, name)
            words = {**meta.extra.get("stream", {}), "required": dict(terms.words.required)}
            log.evolve(schema, {**meta.extra, "stream": words})

    def ensure(self, name: str, config: StreamConfig) -> Stream:
        """The stream `name` with exactly this configuration: created, or SchemaMismatch / BadSettings."""
        self._check()
        declaration = declare(config.type, config.order_by)
        if self._exists(name):
            check_exactly(name, self.meta(name), declaration, config)
        return self.stream(
            name,
            config.type,
            config.order_by,
            strict=config.strict,
            unique_by=config.unique_by,
            unique_window=config.unique_window,
            settings=config.settings,
        )

    def streams(self) -> list[str]:
        """The names of all streams."""
        self._check()
        folder = self.path / STREAMS_DIRECTORY
        names = [name for name in self._disk.names(folder) if is_name(name)]
        return [name for name in names if self._exists(name)]

    def drop(self, name: str) -> None:
        """Remove a stream and all its entries. Nobody may be publishing to it."""
        self._check()
        if not self._exists(name):
            raise NotFound(f"there is no stream {name!r} in {self.path}")
        self._remove(self._path_of(name), self._path_of(name), PublisherTaken)

    def follow(self, name: str, origin: Origin) -> LogCopy:
        """The stream `name` as a copy of one elsewhere: it begins with its first frame, or goes on.

        Whoever has it is its only publisher.
        """
        self._check()
        if self._exists(name) and Origin.of(self.meta(name)) is None:
            raise StreamExists(
                f"the stream {name!r} in {self.path} is no copy: choose another name with --as"
            )
        try:
            return LogCopy.open(self._path_of(name), origin)
        except WriterTaken as error:
            raise PublisherTaken(f"stream {name!r}: {error}") from error

    def unfollow(self, name: str) -> Origin:
        """Make a copy a stream of its own, which takes entries; where it came from."""
        self.meta(name)  # it must be there
        try:
            return release(self._path_of(name))
        except WriterTaken as error:
            raise PublisherTaken(f"stream {name!r} is being followed: {error}") from error

    def journal(self, name: str, settings: JournalSettings | None = None) -> Journal:
        """The journal `name`, made if there is none. `settings`, if given, replace what it had.

        One process has a journal open at a time; in this store it is one object, whoever asks. One whose
        disk has failed is closed and opened anew, with all that was acknowledged.
        """
        self._check()
        path = self._journal_path(name)
        with self._lock:
            journal = self._journals.get(name)
            if journal is None or not journal.usable:
                if journal is not None:
                    journal.let_go()
                if self._disk.kind(path) == "nothing":
                    self._disk.make_directories(path)
                elif not self.has_journal(name):
                    finish(self._disk, path)  # or an empty one would be made in the place of a copy
                journal = self._journals[name] = Journal(name, Engine.open(path, settings))
            elif settings is not None and settings != journal.settings:
                raise BadSettings(f"the journal {name!r} is open with other settings: close it first")
        return journal

    def follow_journal(self, name: str, origin: Origin, *, anew: bool = False) -> JournalCopy:
        """The journal `name` as a copy of one elsewhere: it goes on, or begins, or begins `anew`."""
        self._check()
        return follow(self._disk, self._journal_path(name), origin, anew=anew)

    def unfollow_journal(self, name: str, partly: bool = False) -> Origin:
        """Make a copy a journal of its own, even if it never was whole (`partly`); where it came from."""
        self._check()
        return unfollow(self._disk, self._journal_path(name), partly)

    def drop_journal(self, name: str) -> None:
        """Remove a journal with all it has. Nobody may have it open, or follow into it."""
        self._check()
        path = self._journal_path(name)
        if not self.has_journal(name):
            raise NotFound(f"there is no journal {name!r} in {self.path}")
        self._remove(path, path / LOG_DIRECTORY, JournalTaken)

    def journals(self) -> list[str]:
        """The names of all journals."""
        self._check()
        folder = self.path / JOURNALS_DIRECTORY
        if self._disk.kind(folder) == "nothing":
            return []
        return [name for name in self._disk.names(folder) if is_name(name) and self.has_journal(name)]

    def has_journal(self, name: str) -> bool:
        return self._disk.kind(self._journal_path(name) / LOG_DIRECTORY / META_FILE) == "file"

    def close(self) -> None:
        """Close every stream and journal that was opened here: listeners end, publishers flush."""
        with self._lock:
            self._closed = True
            streams, self._open = self._open, set()
            journals, self._journals = self._journals, {}
        with contextlib.ExitStack() as closing:  # all of them are closed, even if one cannot flush
            for stream in streams:
                closing.callback(stream.close)
            for journal in journals.values():
                closing.callback(journal.close)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- inside

    def _remove(self, path: Path, log: Path, taken: type[WriterTaken]) -> None:
        """It is gone at once, for everybody; then its files go. Nobody may be writing to its log."""
        try:
            drop(self._disk, path, log)
        except WriterTaken as error:
            raise taken(f"{path.name!r} cannot be dropped: {error}") from error

    def _opened(self, name: str, declaration: Declaration) -> Stream:
        stream = Stream(name, self._path_of(name), declaration, on_close=self._open.discard)
        with self._lock:
            self._open.add(stream)
        return stream

    def _path_of(self, name: str) -> Path:
        return self.path / STREAMS_DIRECTORY / checked_name(name, "stream name")

    def _journal_path(self, name: str) -> Path:
        return self.path / JOURNALS_DIRECTORY / checked_name(name, "journal name")

    def _exists(self, name: str) -> bool:
        return self._disk.kind(self._path_of(name) / META_FILE) == "file"

    @contextlib.contextmanager
    def _creating(self) -> Iterator[None]:
        """One at a time, in all processes, looks whether a stream is there and makes it."""
        with _alone(self._disk, self.path):
            yield

    def _create(self, path: Path, terms: Terms) -> None:
        declaration = terms.declaration()
        Log.open(
            path,
            declaration.schema,
            terms.settings,
            order_by=terms.order_by,
            strict=terms.strict,
            extra=terms.extra(),
        ).close()

    def _check(self) -> None:
        if self._closed:
            raise Closed(f"the store {self.path} is closed")


@contextlib.contextmanager
def _alone(disk: Disk, directory: Path) -> Iterator[None]:
    """Hold the store's lock: who makes the store or a stream in it does so alone, in all processes."""
    with disk.opened(directory / LOCK_FILE, write=True, create=True) as file:
        file.lock()
        yield


class _About(msgspec.Struct):
    format: int


def open_store(path: str | Path) -> Store:
    """Open the store at `path`, making it if nothing is there."""
    disk, directory = Disk(), Path(path)
    kind = disk.kind(directory)
    if kind == "file":
        raise NotALog(f"{directory} is a file; a store is a directory: choose another path")
    # What a creation that crashed leaves, and what may be there before: see `headrace serve`.
    begun = {STREAMS_DIRECTORY, STORE_FILE + ".tmp", LOCK_FILE, "headrace.toml"}
    if kind == "nothing" or begun.issuperset(disk.names(directory)):
        disk.make_directories(directory)
        with _alone(disk, directory):
            if disk.kind(directory / STORE_FILE) == "nothing":
                disk.make_directory(directory / STREAMS_DIRECTORY)
                disk.replace_whole(directory / STORE_FILE, msgspec.json.encode({"format": FORMAT}))
                disk.sync_dir(directory)
    if disk.kind(directory / STORE_FILE) == "nothing":
        raise NotALog(f"{directory} is not a store (it has no {STORE_FILE}): choose another path")
    try:
        about = msgspec.json.decode(disk.read_whole(directory / STORE_FILE), type=_About)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{directory / STORE_FILE} cannot be read ({error}): restore it") from error
    if about.format > FORMAT:
        raise NewerFormat(
            f"{directory} has format {about.format}; this headrace reads up to {FORMAT}: upgrade it"
        )
    for folder in (STREAMS_DIRECTORY, JOURNALS_DIRECTORY):
        sweep(disk, directory / folder)
    return Store(directory)


def _meta(path: Path) -> Meta:
    with Log.open(path, read_only=True) as log:
        return log.meta
