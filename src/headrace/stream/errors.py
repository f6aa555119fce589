"""Errors of streams, beside those of the log."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.kernel.errors import Refused, WriterTaken


class BadEntry(Refused):
    """An entry that does not fit the stream's type. Nothing of it was published."""

    code = "bad_entry"


class DuplicateId(Refused):
    """The id is in the stream already. `index` is where; for a batch, `rows` are the refused rows."""

    code = "duplicate_id"

    def __init__(self, message: str, index: int | None = None, rows: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.index = index
        self.rows = tuple(rows)


class PublisherTaken(WriterTaken):
    """The stream's one publisher is held by somebody else."""

    code = "publisher_taken"


class UnknownVariant(Refused):
    """An entry of a class that this program's type does not know. See `on_unknown`."""

    code = "unknown_variant"


class StreamExists(Refused):
    code = "stream_exists"
