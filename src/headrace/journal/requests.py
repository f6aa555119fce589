"""What each verb of a journal takes when it is asked over HTTP, as JSON: `POST /journals/{name}/{verb}`.

A node reads these, and its clients write them. Durations are seconds or text such as "10m". What is left out
is as it is for an embedded journal. `put_batch` is not here: it takes jobs as Arrow (see `job_columns`).
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headrace.journal.spelling import Spelled, Text

Span = float | str
"""A duration."""


class Asked(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    verb: ClassVar[str]


# --- jobs


class Put(Asked):
    verb = "put"
    resource: Text
    priority: int = 128
    after: Span | None = None
    due_us: int | None = None
    value: Spelled = None
    domain: str | None = None
    ttl: Span | None = None
    persist: bool = True


class Next(Asked):
    verb = "next"
    domain: str | None = None
    lease: Span | None = None
    wait: Span | None = None
    delete: bool = False
    fair: bool | None = None


class NextBatch(Asked):
    verb = "next_batch"
    count: int
    domain: str | None = None
    lease: Span | None = None
    delete: bool = False
    fair: bool | None = None


class Done(Asked):
    verb = "done"
    id: int
    lease_until_us: int | None = None
    """As `next` answered it: the proof that the job is still the caller's."""


class DoneBatch(Asked):
    verb = "done_batch"
    ids: list[int]
    lease_until_us: int | list[int] | None = None
    """The proof: of all of them, or of each."""


class Fail(Asked):
    verb = "fail"
    id: int
    lease_until_us: int | None = None
    retry_in: Span | None = None


class Extend(Asked):
    verb = "extend"
    id: int
    lease: Span
    lease_until_us: int | None = None


class Cancel(Asked):
    verb = "cancel"
    resource: Text


class Redrive(Asked):
    verb = "redrive"
    resources: list[Text] | None = None


class RedriveAs(Asked):
    verb = "redrive_as"
    jobs: list[tuple[int, Text | None, Spelled, int]]
    """Id, resource (None: its own), value, priority."""


# --- values


class Set(Asked):
    verb = "set"
    key: Text
    value: Spelled
    ttl: Span | None = None
    persist: bool = True
    overwrite: bool = True
    timestamp_us: int | None = None
    owner: str | None = None


class Get(Asked):
    verb = "get"
    key: Text
    lease: Span | None = None
    touch: bool = False


class Probe(Asked):
    verb = "probe"
    key: Text


class Delete(Asked):
    verb = "delete"
    key: Text
    now: bool = False
    timestamp_us: int | None = None
    owner: str | None = None


class Add(Asked):
    verb = "add"
    key: Text
    number: Spelled
    owner: str | None = None


class Flip(Asked):
    verb = "flip"
    key: Text
    owner: str | None = None


class Resize(Asked):
    verb = "resize"
    key: Text
    size: int
    owner: str | None = None


class Lock(Asked):
    verb = "lock"
    key: Text
    owner: str | None = None
    until: Span = 60.0


class Unlock(Asked):
    verb = "unlock"
    key: Text
    owner: str | None = None


class Rename(Asked):
    verb = "rename"
    key: Text
    other: Text
    owner: str | None = None


class Link(Asked):
    verb = "link"
    key: Text
    other: Text
    owner: str | None = None


class Range(Asked):
    verb = "range"
    low: Text = ""
    high: Text | None = None
    count: int | None = None
    cursor: str | None = None
    """As the last page answered it: what comes after that page."""


class Match(Asked):
    verb = "match"
    pattern: Text
    count: int | None = None
    cursor: str | None = None


class Listen(Asked):
    verb = "listen"
    key: Text
