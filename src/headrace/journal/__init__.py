"""Journals: jobs without duplicates, and keys with values.

A *journal* keeps *jobs* (work on a *resource*: pending, leased, or dead) and *values* under *keys*. Both are
what the events in its log fold to.

Where to look: `journal`, `job_verbs`, `batch_verbs` and `value_verbs` are the face; `events` is what goes to
the log, many at once as a `series`; `jobs` and `values` are the tables they fold into, with `schedule` for
what is next; `job_operations` and `value_operations` decide; `engine` holds it together; `ledger` brings
events to the disk; `replay` and `sweep` are how a journal opens, and how its log stays in proportion; `copy`
is one that follows another.
"""

from headrace.journal.errors import (
    BadRequest,
    JournalTaken,
    KeyTaken,
    LeaseLost,
    Locked,
    MemoryFull,
    NoSuchKey,
    NotWhole,
    OutOfRange,
    WrongType,
)
from headrace.journal.job import Data, Job, Nothing
from headrace.journal.job_verbs import JOB_TABLE
from headrace.journal.journal import JobInfo, Journal, Stats, open_journal
from headrace.journal.settings import JournalSettings
from headrace.journal.value import Type, Value

__all__ = [
    "JOB_TABLE",
    "BadRequest",
    "Data",
    "Job",
    "JobInfo",
    "Journal",
    "JournalSettings",
    "JournalTaken",
    "KeyTaken",
    "LeaseLost",
    "Locked",
    "MemoryFull",
    "NoSuchKey",
    "NotWhole",
    "Nothing",
    "OutOfRange",
    "Stats",
    "Type",
    "Value",
    "WrongType",
    "open_journal",
]
