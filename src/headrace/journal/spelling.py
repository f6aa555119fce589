"""Spelling: texts, values and jobs of a journal as JSON, and back, exactly as they were.

"text", 5, 1.5, true, null                themselves
{"base64": "…"}                           bytes; or, where only a text can stand, one that is no UTF-8
{"base64": "…", "type": "string"}         a value that is such a text
{"number": "NaN"}                         a number that JSON has no word for: NaN, Infinity, -Infinity
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import Literal

import msgspec

from headrace.journal import checks
from headrace.journal.errors import BadRequest
from headrace.journal.job import Data, Desk, Job
from headrace.journal.journal import JobInfo
from headrace.journal.value import Type, Value, decode, encode


class Coded(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What JSON has no word for."""

    base64: str | None = None
    type: Literal["buffer", "string"] = "buffer"
    number: Literal["NaN", "Infinity", "-Infinity"] | None = None


Text = str | Coded
Spelled = None | bool | int | float | str | Coded


def spell_text(text: str) -> Text:
    return text if _is_utf8(text) else _coded(text.encode("utf-8", "surrogateescape"))


def read_text(text: Text) -> str:
    return text if isinstance(text, str) else checks.text(_bytes(text))


def spell(value: Data) -> Spelled:
    """BadRequest, or OutOfRange, if it is nothing that a journal keeps."""
    value = decode(*encode(value))
    if isinstance(value, bytes):
        return _coded(value)
    if isinstance(value, str) and not _is_utf8(value):
        return _coded(value.encode("utf-8", "surrogateescape"), "string")
    if isinstance(value, float) and not math.isfinite(value):
        return Coded(number="NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity")
    return value


def read(value: Spelled) -> Data:
    if not isinstance(value, Coded):
        return value
    if value.number is not None and value.base64 is None:
        return float(value.number)
    raw = _bytes(value)
    return checks.text(raw) if value.type == "string" else raw


class SpelledJob(msgspec.Struct):
    """A job that somebody has taken."""

    id: int
    resource: Text
    domain: str
    priority: int
    due_us: int
    attempts: int
    lease_until_us: int
    value: Spelled

    @classmethod
    def of(cls, job: Job) -> SpelledJob:
        resource, value = spell_text(job.resource), spell(job.value)
        return cls(
            job.id, resource, job.domain, job.priority, job.due_us, job.attempts, job.lease_until_us, value
        )

    def job(self, desk: Desk) -> Job:
        resource, value = read_text(self.resource), read(self.value)
        until = self.lease_until_us
        return Job(
            self.id, resource, self.domain, self.priority, self.due_us, value, self.attempts, until, desk
        )


class SpelledInfo(msgspec.Struct):
    """A job in a list of jobs."""

    id: int
    resource: Text
    domain: str
    state: str
    priority: int
    due_us: int
    attempts: int
    until_us: int | None
    value: Spelled

    @classmethod
    def of(cls, info: JobInfo) -> SpelledInfo:
        facts = (info.domain, info.state, info.priority, info.due_us, info.attempts, info.until_us)
        return cls(info.id, spell_text(info.resource), *facts, spell(info.value))

    def info(self) -> JobInfo:
        facts = (self.domain, self.state, self.priority, self.due_us, self.attempts, self.until_us)
        return JobInfo(self.id, read_text(self.resource), *facts, read(self.value))


class SpelledValue(msgspec.Struct):
    """A value with what is known of it."""

    key: Text
    value: Spelled
    type: str
    expires_us: int | None
    ttl_us: int | None
    persist: bool
    created_us: int
    modified_us: int
    accessed_us: int
    timestamp_us: int
    locked: bool
    keys: list[Text]

    @classmethod
    def of(cls, value: Value) -> SpelledValue:
        return cls(
            key=spell_text(value.key),
            value=spell(value.value),
            type=spell_type(value.type),
            keys=[spell_text(key) for key in value.keys],
            **{name: getattr(value, name) for name in _FACTS},
        )

    def said(self) -> Value:
        return Value(
            key=read_text(self.key),
            value=read(self.value),
            type=read_type(self.type),
            keys=tuple(read_text(key) for key in self.keys),
            **{name: getattr(self, name) for name in _FACTS},
        )


_FACTS = (
    "expires_us", "ttl_us", "persist", "created_us", "modified_us", "accessed_us", "timestamp_us", "locked"
)  # fmt: skip


def spell_type(kind: Type) -> str:
    return kind.name.lower()


def read_type(name: str) -> Type:
    return Type[name.upper()]


def _is_utf8(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _coded(raw: bytes, kind: Literal["buffer", "string"] = "buffer") -> Coded:
    return Coded(base64.b64encode(raw).decode(), kind)


def _bytes(coded: Coded) -> bytes:
    if coded.base64 is None or coded.number is not None:
        raise BadRequest('what JSON has no word for is {"base64": "…"} or {"number": "NaN"}')
    try:
        return base64.b64decode(coded.base64, validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"{coded.base64[:40]!r} is not base64 ({error})") from error
