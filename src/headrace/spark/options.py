"""Options of `format("headrace")`: the text that Spark passes on, and what it means.

path, stream                   the store's directory and the name in it
url, token, ca                 a node instead of a directory: its address, a token, certificates to trust
awaySeconds                    how long a node that is away is waited for
journal                        the name of a journal in it, instead of a stream
columns                        which columns, by comma: `_index` and `_key` may be among them
withIndex, withKey             all columns, and these
startIndex, endIndex           a part by index: from, and up to but not including
startKey, endKey               the same by order key
maxRowsPerTrigger              rows of a micro-batch at most
partitionRows                  rows of a partition, about
failOnDataLoss                 true: an error if entries are gone that were not read yet
position                       a name under which a streaming query remembers what it has read
view                           `segments`: what the store knows of itself; `journal` (the jobs of a journal)
                               and `history` (what happened to it)
orderBy, takeOver, writer, writeId    for writing; see `sink`
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.kernel.errors import BadSettings
from headrace.kernel.names import checked_name
from headrace.spark.place import Place

KNOWN = (
    *("path", "url", "token", "ca", "awaySeconds"),
    *("stream", "journal", "view", "columns", "withIndex", "withKey"),
    *("startIndex", "endIndex", "startKey", "endKey"),
    *("maxRowsPerTrigger", "partitionRows", "failOnDataLoss", "position"),
    *("orderBy", "takeOver", "writer", "writeId"),
)
TOKEN_VARIABLE = "HEADRACE_TOKEN"
_LOWER = {name.lower() for name in KNOWN}


@dataclass(frozen=True, slots=True)
class Options:
    """All of them, read and checked."""

    place: Place
    """Where the store is."""
    stream: str | None = None
    journal: str | None = None
    view: str | None = None
    columns: tuple[str, ...] | None = None
    with_index: bool = False
    with_key: bool = False
    start_index: int | str | None = None
    end_index: int | None = None
    start_key: str | None = None
    end_key: str | None = None
    max_rows: int | None = None
    partition_rows: int | None = None
    fail_on_data_loss: bool = True
    position: str | None = None
    order_by: str | None = None
    take_over: bool = False
    writer: str = "default"
    write_id: str | None = None

    @property
    def stream_name(self) -> str:
        if self.stream is None:
            raise BadSettings("say which stream: .option('stream', 'orders')")
        return self.stream

    @property
    def journal_name(self) -> str:
        if self.journal is None:
            raise BadSettings("say which journal: .option('journal', 'pages')")
        return self.journal


def parse_options(given: Mapping[str, str]) -> Options:
    """The options, or BadSettings with the first one that is wrong."""
    text = _Text(given)
    columns = text("columns")
    for one, other in (("path", "url"), ("startIndex", "startKey"), ("endIndex", "endKey")):
        if text(one) and text(other):
            raise BadSettings(f"give {one} or {other}, not both")
    if text("stream") and text("journal"):
        raise BadSettings("give stream or journal, not both")
    start = text("startIndex")
    return Options(
        place=_place(text),
        stream=text("stream"),
        journal=text("journal"),
        view=text("view") or ("journal" if text("journal") else None),
        columns=tuple(name.strip() for name in columns.split(",")) if columns else None,
        with_index=text.flag("withIndex", False),
        with_key=text.flag("withKey", False),
        start_index=start if start in ("earliest", "latest") else text.number("startIndex", 0),
        end_index=text.number("endIndex", 0),
        start_key=text("startKey"),
        end_key=text("endKey"),
        max_rows=text.number("maxRowsPerTrigger", 1),
        partition_rows=text.number("partitionRows", 1),
        fail_on_data_loss=text.flag("failOnDataLoss", True),
        position=text("position"),
        order_by=text("orderBy"),
        take_over=text.flag("takeOver", False),
        writer=checked_name(text("writer") or "default", "name of a writer"),
        write_id=text("writeId"),
    )


def place_option(given: Mapping[str, str]) -> Place:
    """Of all options only where the store is."""
    return _place(_Text(given))


def _place(text: _Text) -> Place:
    path, url = text("path"), text("url")
    if path is None and url is None:
        raise BadSettings(
            "say where the store is: .option('path', 'data'), or .option('url', 'http://localhost:7400')"
        )
    if url is None:
        return Place(path or "")
    away = text.number("awaySeconds", 0)
    token = text("token") or os.environ.get(TOKEN_VARIABLE)
    return Place("", url, token, text("ca"), 60 if away is None else away)


class _Text:
    """Option texts by name, in any case; a name that is nearly one of ours is a slip, and refused."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        for name in self._given:
            if name not in _LOWER and (close := difflib.get_close_matches(name, _LOWER, 1, 0.8)):
                meant = next(known for known in KNOWN if known.lower() == close[0])
                raise BadSettings(f"there is no option {name!r}: did you mean {meant!r}?")

    def __call__(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def number(self, name: str, least: int) -> int | None:
        text = self(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise BadSettings(f"the option {name} is a whole number from {least} on, not {text!r}")
        return number

    def flag(self, name: str, default: bool) -> bool:
        text = self(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise BadSettings(f"the option {name} is true or false, not {text!r}")
        return text.lower() == "true"
