"""Residents: which values are in memory, and which only on the disk.

Values that are worth it (larger than a place in the log) stand in a queue by their last access. When their
bytes pass the limit, those at its front leave memory, if the log has them; reading one brings it back. Small
ones stay: to let go of them would save nothing.
"""

from __future__ import annotations

from headrace.journal.rows import JobRow, ValueRow

_WORTH_BYTES = 128
VOLATILE_ROW_BYTES = 256
"""What a job or value that is in memory only counts beside its bytes."""
Row = JobRow | ValueRow


class Residents:
    def __init__(self, limit_bytes: int) -> None:
        self.bytes = 0
        """Of all values in memory."""
        self.volatile_bytes = 0
        """Of those that are in memory only, ever."""
        self.live_bytes = 0
        """Of all values, wherever they are."""
        self.evicted = 0
        self._limit = limit_bytes
        self._queue: dict[Row, None] = {}
        self._sizes: dict[Row, int] = {}
        """Of the large ones, in memory or not."""
        self._volatile: dict[Row, int] = {}

    def changed(self, row: Row, value: bytes) -> None:
        """The row has this value now."""
        self.forget(row)
        self.added(row, value)

    def added(self, row: Row, value: bytes) -> None:
        """A new row has this value."""
        row.value = value
        if not value and not row.volatile:
            return
        size = len(value)
        self.bytes += size
        self.live_bytes += size
        if row.volatile:
            self._volatile[row] = size + VOLATILE_ROW_BYTES
            self.volatile_bytes += size + VOLATILE_ROW_BYTES
        elif size > _WORTH_BYTES:
            self._queue[row] = None
            self._sizes[row] = size

    def forget(self, row: Row) -> None:
        """The row is gone, or about to change."""
        if row.value == b"" and not self._volatile:
            row.value = None
            return
        size = row.size
        self.bytes -= size
        if row in self._sizes:
            size = self._sizes.pop(row)
            self._queue.pop(row, None)
        self.live_bytes -= size
        if self._volatile:
            self.volatile_bytes -= self._volatile.pop(row, 0)
        row.value = None

    def size_of(self, row: Row) -> int:
        """Bytes of its value, in memory or not."""
        return row.size if row.value is not None else self._sizes.get(row, 0)

    def replaced(self, row: Row, new: Row) -> None:
        """`new` has the value that `row` had."""
        for sizes in (self._sizes, self._volatile):
            if row in sizes:
                sizes[new] = sizes.pop(row)
        if row in self._queue:
            del self._queue[row]
            self._queue[new] = None

    def touched(self, row: Row) -> None:
        """Somebody read it: it is the last to go."""
        if row in self._queue:
            del self._queue[row]
            self._queue[row] = None

    def brought_back(self, row: Row, value: bytes) -> None:
        row.value = value
        self.bytes += len(value)
        self._queue[row] = None

    def evict(self, before: int) -> None:
        """Let go of values until the limit holds; only of what the log has below index `before`."""
        if self.bytes <= self._limit:
            return
        surplus, going = self.bytes - self._limit * 0.9, []
        for row in self._queue:
            if surplus <= 0:
                break
            if row.place < before:
                going.append(row)
                surplus -= row.size
        for row in going:
            del self._queue[row]
            self.bytes -= row.size
            row.value = None
        self.evicted += len(going)
