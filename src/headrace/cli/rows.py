"""Rows: what a file holds for a stream, block by block, and what each row is called when it does not fit.

A block is as many rows as are published together. It stays far below the size of memory, whatever the
size of the file is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.kernel.errors import Refused
from headrace.log.split import portions

BLOCK_BYTES = 8 << 20
BLOCK_ROWS_MAX = 1 << 18


class BadInput(Refused):
    """A file that is not of the format it should be."""

    code = "bad_input"


@contextmanager
def read_by_arrow(problem: Callable[[], str]) -> Iterator[None]:
    """What Arrow cannot read becomes BadInput. Its OSErrors are the disk's only if they have a number."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise BadInput(f"{problem()}: {error}") from error


@dataclass(frozen=True, slots=True)
class Rows:
    """One block. `numbers` says for each row which line or row of the file it is."""

    records: pa.RecordBatch
    numbers: Sequence[int]

    def portions(self, most_bytes: int | None) -> Iterator[Rows]:
        """The same rows in smaller blocks, where so much fits together and no more."""
        first = 0
        for records in portions(self.records, most_bytes):
            yield Rows(records, self.numbers[first : first + records.num_rows])
            first += records.num_rows


class RowFile(Protocol):
    unit: str
    """What rows are counted in: "line" or "row"."""

    def schema(self) -> pa.Schema:
        """The fields that the file has, or seems to have. Asked for before `rows`, if at all."""

    def rows(self, schema: pa.Schema) -> Iterator[Rows]:
        """The rows for a stream of this schema; an error names the first that cannot be read."""

    def progress(self) -> tuple[int, int]:
        """How much is done and how much there is; (0, 0) if that is not known."""


def gathered(
    batches: Iterator[pa.RecordBatch], rows_max: int = BLOCK_ROWS_MAX, bytes_max: int = BLOCK_BYTES
) -> Iterator[pa.RecordBatch]:
    """The same rows in fewer batches: small ones are put together."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if held and (rows + batch.num_rows > rows_max or size + batch.nbytes > bytes_max):
            yield _joined(held)
            held, rows, size = [], 0, 0
        if batch.num_rows:
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
    if held:
        yield _joined(held)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
