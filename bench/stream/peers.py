"""The same objects through msgspec: into SQLite in transactions of 1000, and into a file of JSON lines."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from bench.stream.data import Event

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Event)


def write_sqlite(path: Path, entries: Sequence[Event]) -> None:
    database = _database(path)
    database.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, body BLOB)")
    encode, rest = _ENCODER.encode, iter(entries)
    while part := [(encode(entry),) for entry in islice(rest, 1000)]:
        with database:
            database.executemany("INSERT INTO events (body) VALUES (?)", part)
    database.close()


def read_sqlite(path: Path) -> Iterator[Event]:
    database = _database(path)
    decode = _DECODER.decode
    for (body,) in database.execute("SELECT body FROM events ORDER BY id"):
        yield decode(body)
    database.close()


def write_lines(path: Path, entries: Sequence[Event]) -> None:
    encode = _ENCODER.encode
    with open(path, "wb") as file:
        for entry in entries:
            file.write(encode(entry) + b"\n")


def read_lines(path: Path) -> Iterator[Event]:
    decode = _DECODER.decode
    with open(path, "rb") as file:
        for line in file:
            yield decode(line)


def _database(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = OFF")
    return database
