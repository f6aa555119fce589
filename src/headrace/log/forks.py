"""Forks: what a process has opened for writing stays its own.

A forked child has a copy of every object and the very same open files. If it only closed a log that its
parent goes on with, it would cut off what was appended since, and let go of the parent's lock. Locks that
other threads held at that moment stay locked in the child for ever. So whatever writes is told, and stops.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Writes(Protocol):
    def left_to_parent(self) -> None:
        """This is a forked child: from now on nothing is written here, and nobody waits for a lost lock."""
        ...


_writing: weakref.WeakSet[Writes] = weakref.WeakSet()


def stays_with_parent(writer: Writes) -> None:
    """Tell `writer` when it finds itself in a forked child."""
    _writing.add(writer)


def _tell() -> None:
    for writer in list(_writing):
        writer.left_to_parent()
    _writing.clear()


os.register_at_fork(after_in_child=_tell)
