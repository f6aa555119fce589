"""Streams: typed, ordered, persistent.

A *stream* is a log whose *entries* have a declared type and an *order key*. One *publisher* at a time
appends entries; any number of *listeners*, in any process, read them: from a place, until a place, or for
ever. HEAD is how far order keys are settled.

Where to look: `stream` is the face (`headrace.store` has many); `types`, `plain`, `record` and `declaration`
say how Python types become columns; `taking` is the fast path of `publish` and `entry` that of `listen`;
`evolve` says which changes of a type are fine; `unique` keeps ids; `listener` runs callbacks.
"""

from headrace.stream.entry import Entry, Head
from headrace.stream.errors import BadEntry, DuplicateId, PublisherTaken, StreamExists, UnknownVariant
from headrace.stream.listener import STOP, Listener
from headrace.stream.places import END, START, AtKey, at_key
from headrace.stream.publisher import Published, Publisher
from headrace.stream.stream import Stream

__all__ = [
    "END",
    "START",
    "STOP",
    "AtKey",
    "BadEntry",
    "DuplicateId",
    "Entry",
    "Head",
    "Listener",
    "Published",
    "Publisher",
    "PublisherTaken",
    "Stream",
    "StreamExists",
    "UnknownVariant",
    "at_key",
]
