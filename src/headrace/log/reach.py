"""The reach of a log: how far it is written, how far that is durable, and the mark that tells others.

It belongs to the one appender of the log. One thread writes and another may sync, and each of them tells.
Once the writer has stopped nothing more is told, and least of all that all is well: what stopped it may have
come between a look and the writing of the mark.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from headrace.kernel.errors import HeadraceError
from headrace.log.mark import Extent, Mark
from headrace.log.state import LogState


class Reach:
    """`state` is the appender's, and moves."""

    def __init__(self, mark: Mark, state: LogState) -> None:
        self.durable_index = state.next_index
        self._durable_head = state.head_key
        self._mark = mark
        self._state = state
        self._stopped = False
        self._in_doubt = False

    def synced(self, next_index: int, head_key: int) -> None:
        """So much is durable, at least."""
        if next_index > self.durable_index:
            self.durable_index = next_index
        if head_key > self._durable_head:
            self._durable_head = head_key

    def extent(self) -> Extent:
        state = self._state
        heads = state.head_key, self._durable_head
        return Extent(state.base_index, state.next_index, self.durable_index, state.epoch, *heads)

    def tell(self) -> None:
        """Tell readers in all processes."""
        if self._stopped:
            return
        state, durable, head = self._state, self.durable_index, self._durable_head
        try:  # noqa: SIM105 - a suppress costs as much as making the mark, and this is done for every append
            self._mark.write_fields(
                state.base_index, state.next_index, durable, state.epoch, state.head_key, head
            )
        except HeadraceError:
            pass  # a hint: the segments are the truth
        if self._in_doubt:  # since a moment ago, by another thread, and the mark had said so
            self._tell_doubt()

    def tell_cut(self, index: int, epoch: int) -> None:
        """The log will end at `index`, under a new epoch; an error is the caller's."""
        durable = min(index, self.durable_index)
        self._mark.write(Extent(self._state.base_index, index, durable, epoch))

    def tell_closed(self) -> None:
        self._mark.write(replace(self.extent(), clean=True))

    def stop(self, *, in_doubt: bool) -> None:
        """Nothing more is told; `in_doubt`: but that what is not durable has to be written again."""
        self._stopped = True
        if in_doubt:
            self._in_doubt = True
            self._tell_doubt()

    def _tell_doubt(self) -> None:
        with contextlib.suppress(HeadraceError):
            self._mark.write(replace(self.extent(), suspect=True))

    def close(self) -> None:
        self._stopped = True
        self._mark.close()
