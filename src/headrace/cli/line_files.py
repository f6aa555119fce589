"""Files of lines: JSON objects, or plain bytes, one a line.

Lines are taken in blocks. From a pipe, what came so far is a block once nothing more comes for a moment:
a slow pipe that never ends is published as it goes, a quick one in large batches.
"""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa

from headrace.cli.counted import Counted
from headrace.cli.inferred import schema_of_lines
from headrace.cli.rows import BLOCK_BYTES, Rows
from headrace.kernel.errors import SchemaMismatch
from headrace.log.queue import RAW_SCHEMA
from headrace.wire.json_lines import LineReader

_MOMENT_S = 0.02

_Block = list[tuple[int, bytes]]
"""Lines with their numbers, which count from 1."""


class LineFile:
    """The lines of a file in blocks."""

    unit = "line"

    def __init__(self, file: BinaryIO) -> None:
        self._source = Counted(file)
        self._held: list[_Block] = []
        self._blocks = self._read_blocks()

    def progress(self) -> tuple[int, int]:
        return self._source.done, self._source.size

    def blocks(self) -> Iterator[_Block]:
        while self._held:
            yield self._held.pop()
        yield from self._blocks

    def peek(self) -> _Block:
        """The first block, which `blocks` gives again."""
        self._held = [next(self._blocks, [])]
        return self._held[0]

    def _read_blocks(self) -> Iterator[_Block]:
        rest, number = b"", 1
        while data := self._read_block():
            whole, newline, rest_after = (rest + data).rpartition(b"\n")
            rest = rest_after
            if newline:
                lines = whole.split(b"\n")
                yield list(enumerate(lines, number))
                number += len(lines)
        if rest:
            yield [(number, rest)]

    def _read_block(self) -> bytes:
        parts, size = [self._source.read_some(BLOCK_BYTES)], 0
        while parts[-1] and (size := size + len(parts[-1])) < BLOCK_BYTES and self._more_comes():
            parts.append(self._source.read_some(BLOCK_BYTES - size))
        return b"".join(parts)

    def _more_comes(self) -> bool:
        """Whether a pipe has more within a moment. Its end counts as more: reading tells."""
        if self._source.size:
            return True
        try:
            return bool(select.select([self._source.fileno()], [], [], _MOMENT_S)[0])
        except OSError:  # not a real file: all of it is there
            return True


class JsonLinesFile(LineFile):
    def schema(self) -> pa.Schema:
        return schema_of_lines(self.peek())

    def rows(self, schema: pa.Schema) -> Iterator[Rows]:
        reader = LineReader(schema, "stream")
        for block in self.blocks():
            block = [(number, line) for number, line in block if line.strip()]
            if block:
                yield Rows(reader.batch(block), [number for number, _ in block])


class PlainLinesFile(LineFile):
    def schema(self) -> pa.Schema:
        return RAW_SCHEMA

    def rows(self, schema: pa.Schema) -> Iterator[Rows]:
        if not schema.equals(RAW_SCHEMA):
            raise SchemaMismatch("the stream is typed: only a stream of plain bytes takes lines as they are")
        for block in self.blocks():
            data = pa.array([line for _, line in block], pa.binary())
            records = pa.RecordBatch.from_arrays([data], schema=schema)
            yield Rows(records, range(block[0][0], block[0][0] + len(block)))
