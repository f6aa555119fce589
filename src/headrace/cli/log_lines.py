"""What a service logs, line by line on stderr: for people, or as JSON for machines.

    2026-11-18T00:48:17.123Z info headrace.requests: GET /streams answered with 200 (token=till-7 …)
    {"time": "2026-11-18T00:48:17.123Z", "level": "info", "logger": "headrace.requests", "message": …, …}

A record may have facts beside its sentence, as the attribute `fields`. A text that somebody sent cannot begin
a line of its own: what cannot be printed is escaped.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from headrace.cli.console import printable


@contextmanager
def logging_to_stderr(level: str, *, json: bool) -> Iterator[None]:
    """While this block runs, what headrace and its parts say of this level and above goes to stderr."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(JsonLines() if json else TextLines())
    loggers = [logging.getLogger(name) for name in ("headrace", "aiohttp", "asyncio")]
    before = [(logger.handlers, logger.level) for logger in loggers]
    lines.addFilter(_is_ours)
    for logger in loggers:
        logger.handlers = [lines]
        logger.setLevel(level.upper() if logger.name == "headrace" else logging.WARNING)
    try:
        yield
    finally:
        for logger, (handlers, old_level) in zip(loggers, before, strict=True):
            logger.handlers = handlers
            logger.setLevel(old_level)


def _is_ours(record: logging.LogRecord) -> bool:
    """Not what is no HTTP at all: aiohttp has a traceback for each, and every scanner could fill the disk."""
    return not (record.name == "aiohttp.server" and record.getMessage().startswith("Error handling request"))


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": printable(record.getMessage()),
            **_fields(record),
        }
        if record.exc_info:
            facts["exception"] = printable(self.formatException(record.exc_info))
        return msgspec.json.encode(facts, enc_hook=str).decode()


class TextLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = f"{_time(record)} {record.levelname.lower()} {record.name}: {_plain(record.getMessage())}"
        facts = [
            f"{name}={_plain(str(value))}" for name, value in _fields(record).items() if value is not None
        ]
        if facts:
            line += f" ({' '.join(facts)})"
        if record.exc_info:
            line += "\n" + printable(self.formatException(record.exc_info))
        return line


def _plain(text: str) -> str:
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in printable(text)
    )
