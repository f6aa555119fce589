"""Jobs, values and events as commands print them, and values as people type them."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any, Literal

import pyarrow as pa
import typer

from headrace.cli.console import printable
from headrace.journal import Data, Job, Type, Value
from headrace.journal.events import Kind
from headrace.journal.value import decode
from headrace.wire.json_rows import column_values, show_bytes

ValueType = Literal["string", "buffer", "integer", "float", "boolean", "void"]

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WORDS = {"true": True, "false": False, "1": True, "0": False}
_TIMES = ("due", "until", "expires", "stamp", "created")


def shown_time(us: int | None) -> str | None:
    """A moment as ISO 8601; one beyond the year 9999 as its number."""
    if us is None:
        return None
    try:
        return (_EPOCH + dt.timedelta(microseconds=us)).isoformat(timespec="microseconds")[:-6] + "Z"
    except OverflowError:
        return str(us)


def shown_data(data: Data) -> Any:
    """A value as JSON can hold it."""
    if isinstance(data, bytes):
        return show_bytes(data)
    if isinstance(data, str):
        return printable(data)
    return column_values(pa.array([data]))[0] if isinstance(data, float) else data


def data_bytes(data: Data) -> bytes:
    """A value as plain output: buffers are what they are, all else is a line."""
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape") + b"\n"
    return b"\n" if data is None else str(shown_data(data)).lower().encode() + b"\n"


def parse_data(text: str, kind: ValueType) -> Data:
    """What was typed, as a value of that type; `-` is what comes on stdin."""
    if kind in ("string", "buffer"):
        raw = sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")
        return raw if kind == "buffer" else raw.decode("utf-8", "surrogateescape")
    try:
        if kind == "integer":
            return int(text)
        if kind == "float":
            return float(text)
        if kind == "boolean":
            return _WORDS[text.lower()]
    except (ValueError, KeyError):
        raise typer.BadParameter(f"{text!r} is no {kind}", param_hint="--type") from None
    if text:
        raise typer.BadParameter(f"a void has no value, but {text!r} was given", param_hint="--type")
    return None


def job_facts(job: Job) -> dict[str, Any]:
    """A job that was taken. Who takes it from a server is not told its id, nor how often it was taken."""
    known = job.id != 0 or job.attempts != 0
    return {
        "id": job.id if known else None,
        "resource": printable(job.resource),
        "domain": printable(job.domain),
        "priority": job.priority if known else None,
        "due": shown_time(job.due_us) if known else None,
        "attempts": job.attempts if known else None,
        "lease_until": shown_time(job.lease_until_us or None),  # taken for good, it has no lease
        "lease_until_us": job.lease_until_us or None,
        "value": shown_data(job.value),
    }


def value_facts(value: Value) -> dict[str, Any]:
    return {
        "key": printable(value.key),
        "type": Type(value.type).name.lower(),
        "value": shown_data(value.value),
        "expires": shown_time(value.expires_us),
        "persist": value.persist,
        "modified": shown_time(value.modified_us or None),
        "timestamp": shown_time(value.timestamp_us or None),
        "locked": value.locked,
        "keys": [printable(key) for key in value.keys],
    }


def event_facts(index: int, event: dict[str, Any]) -> dict[str, Any]:
    """An event of the log, without what it does not say."""
    kind = event["kind"]
    facts: dict[str, Any] = {
        "index": index,
        "at": shown_time(event["at"]),
        "kind": Kind(kind).name.lower() if kind in set(Kind) else f"kind {kind}",
    }
    for name, part in event.items():
        if part is None or name in ("kind", "at", "type", "value"):
            continue
        facts[name] = (
            shown_time(part) if name in _TIMES else show_bytes(part) if isinstance(part, bytes) else part
        )
    if event["type"] is not None:
        facts["type"] = Type(event["type"]).name.lower() if event["type"] in set(Type) else event["type"]
        facts["value"] = shown_data(decode(event["type"], event["value"] or b""))
    return facts


def event_line(facts: dict[str, Any]) -> str:
    """`2026-11-16T06:25:22.123456Z  put  https://example.com/a  id=17 priority=10`"""
    told = ("index", "at", "kind", "key", "stamp", "created")
    rest = [f"{name}={part}" for name, part in facts.items() if name not in told and part is not None]
    return "  ".join(
        [facts["at"], f"{facts['kind']:<6}", str(facts.get("key", "-")), " ".join(rest)]
    ).rstrip()
