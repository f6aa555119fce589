"""Reading one segment, step by step, from an index on.

Each step answers a batch, a HEAD, a damage, or that there is no more: `END` behind the footer of a
finalized segment, `NOT_YET` at the end of an active one. In an active segment whatever is not valid may
just not have been written yet; only the mark can tell, so the cursor decides and calls `damage_here`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Self

import pyarrow as pa

from headrace.kernel.errors import Damaged
from headrace.log.body import BodyDecoder
from headrace.log.damage import Damage, DamageKind
from headrace.log.disk import Disk
from headrace.log.frame import HEADER_BYTES, Header, Kind
from headrace.log.meta import Meta
from headrace.log.scan import find_frame, may_follow, whole_body
from headrace.log.segment_name import ActiveName, FinalName, SegmentName
from headrace.log.start import read_start
from headrace.log.table import BatchTable, read_footer
from headrace.log.view import View


@dataclass(frozen=True, slots=True)
class Batch:
    """Entries that follow one another: `records` holds those from `base_index` on."""

    base_index: int
    records: pa.RecordBatch
    first_key: int
    last_key: int
    time_us: int
    epoch: int

    @classmethod
    def of(cls, header: Header, records: pa.RecordBatch) -> Batch:
        """The batch of a frame."""
        keys = header.first_key, header.last_key
        return cls(header.base_index, records, *keys, header.time_us, header.epoch)

    @property
    def next_index(self) -> int:
        return self.base_index + int(self.records.num_rows)

    def slice(self, start: int, stop: int | None = None) -> Batch:
        """The part of it between two indexes. Keys stay those of the whole batch."""
        first = max(start, self.base_index)
        last = self.next_index if stop is None else min(stop, self.next_index)
        records = self.records.slice(first - self.base_index, last - first)
        return Batch(first, records, self.first_key, self.last_key, self.time_us, self.epoch)


@dataclass(frozen=True, slots=True)
class Head:
    """HEAD moved to `key` without an entry; the next entry will have index `next_index`."""

    key: int
    next_index: int


class Pause(Enum):
    NOT_YET = "not yet"
    END = "end"


class SegmentReader:
    def __init__(self, view: View, name: SegmentName, decoder: BodyDecoder, table: BatchTable | None) -> None:
        self.name = name
        self.expected = name.first_index
        self._view = view
        self._decoder = decoder
        self._table = table
        self._offset = 0
        self._epoch = 0
        self._whole_until = 0

    @classmethod
    def open(
        cls, disk: Disk, directory: Path, name: SegmentName, meta: Meta, columns: Sequence[str] | None = None
    ) -> Self:
        finalized = isinstance(name, FinalName)
        copying = meta.settings.containers is not None
        file = disk.open(directory / str(name))
        view = View(file, salt=meta.salt, finalized=finalized, copying=copying)
        try:
            schema = read_start(view, str(name)).meta.schema
        except Damaged:
            schema = meta.schema  # each batch carries a tag of its schema, so a wrong guess shows
        decoder = BodyDecoder(schema, columns and _present(columns, schema))
        return cls(view, name, decoder, read_footer(view) if finalized else None)

    @property
    def epoch(self) -> int:
        """The newest epoch seen in it."""
        return max(self._epoch, self.name.epoch if isinstance(self.name, ActiveName) else 0)

    @property
    def finalized(self) -> bool:
        return isinstance(self.name, FinalName)

    @property
    def schema(self) -> pa.Schema:
        return self._decoder.schema

    @property
    def linked(self) -> bool:
        return self._view.file.linked()

    def seek(self, index: int) -> None:
        """Go to the batch that holds `index`, if a table tells where; else reading gets there by itself."""
        if self._table is not None and (row := self._table.row_of_index(index)) > 0:
            self._offset, self.expected = self._table.offsets[row], self._table.bases[row]

    def index_of_key(self, key: int) -> int | None:
        """The first index of the batch that may hold the first entry with at least `key`, from the table."""
        if self._table is None:
            return None
        row = self._table.row_of_key(key)
        return self._table.bases[row] if row < len(self._table) else None

    def step(self, index: int) -> Batch | Head | Damage | Pause:
        """The next thing that concerns entries from `index` on."""
        while True:
            header = self.header_here()
            if not isinstance(header, Header):
                return header
            if header.grouped and not self.finalized and not self._group_is_whole():
                return Pause.NOT_YET
            if header.kind == Kind.BATCH and header.next_index > index:
                return self._batch(header)
            if not self.finalized and self._offset + header.frame_bytes > self._view.refresh():
                return Pause.NOT_YET
            self._pass(header)
            if header.kind == Kind.HEAD:
                return Head(header.last_key, header.base_index)

    def header_here(self) -> Header | Damage | Pause:
        """The header of the next frame, if there is one that belongs here."""
        if isinstance(self.name, FinalName) and self._offset >= self._view.size:
            if self.expected >= self.name.next_index:
                return Pause.END
            return self.damage_here("cut", "the segment is cut off")
        header = self._view.header(self._offset)
        if header is None or not self._fits(header, self._offset) or header.base_index != self.expected:
            return self.damage_here("header", "no valid frame") if self._settled() else Pause.NOT_YET
        if header.kind == Kind.FOOTER:
            return Pause.END if self.finalized else Pause.NOT_YET
        return header

    def _batch(self, header: Header) -> Batch | Damage | Pause:
        body = self._view.body(self._offset, header)
        try:
            if body is None:
                raise Damaged("the frame is cut off")
            records = self._decoder.decode(header, body)
        except Damaged as error:
            return self.damage_here("body", str(error)) if self._settled() else Pause.NOT_YET
        self._pass(header)
        return Batch.of(header, records)

    def damage_here(self, kind: DamageKind, what: str, lost_until: int | None = None) -> Damage | Pause:
        """Get over the bad place: look for the next good frame and say what lies between.

        In an active segment without a later frame the place is the end, unless entries up to `lost_until`
        are known to have been here.
        """
        offset, expected = self._offset, self.expected
        found = find_frame(self._view, offset + HEADER_BYTES, self._goes_on)
        if not self.finalized and self._begins_unfinished_group():
            found = None  # what follows is of the same group, and proves nothing
        if found is None and not self.finalized:
            if lost_until is None or lost_until <= expected:
                return Pause.NOT_YET
            return Damage(
                "cut", str(self.name), offset, 0, expected, lost_until, "durable entries are not here"
            )
        if found is not None:
            self._offset, self.expected = found[0], found[1].base_index
        else:
            assert isinstance(self.name, FinalName)
            self._offset, self.expected = self._view.size, self.name.next_index
        size = self._offset - offset
        return Damage(
            "start" if offset == 0 else kind, str(self.name), offset, size, expected, self.expected, what
        )

    def _settled(self) -> bool:
        """Whether this place cannot change any more: in the midst of a group whose end is there."""
        return self.finalized or self._offset < self._whole_until

    def _fits(self, header: Header, offset: int) -> bool:
        return may_follow(header, offset, self.expected, self._epoch)

    def _goes_on(self, header: Header, offset: int) -> bool:
        if not self._fits(header, offset) or (header.kind == Kind.FOOTER and not self.finalized):
            return False
        return whole_body(self._view, offset, header, self._decoder) is not None

    def _pass(self, header: Header) -> None:
        self._offset += header.frame_bytes
        self.expected = header.next_index
        self._epoch = header.epoch

    def _begins_unfinished_group(self) -> bool:
        header = self._view.header(self._offset)
        here = header is not None and header.grouped and self._fits(header, self._offset)
        return here and not self._group_is_whole()

    def _group_is_whole(self) -> bool:
        """Whether something whole follows the group at this offset: then all of it is there, or was.

        A header alone is not enough: of a commit that a power cut tore, only that may be left.
        """
        offset = max(self._offset, self._whole_until)
        while True:
            header = self._view.header(offset)
            if header is None or not self._fits(header, offset):
                found = find_frame(self._view, offset + HEADER_BYTES, self._goes_on)
                if found is None:
                    break
                offset, header = found
            if header.grouped:
                offset += header.frame_bytes
            elif whole_body(self._view, offset, header, self._decoder) is not None:
                self._whole_until = offset + header.frame_bytes
                break
            else:
                offset += HEADER_BYTES
        return self._whole_until > self._offset

    def close(self) -> None:
        self._view.close()


def _present(columns: Sequence[str], schema: pa.Schema) -> list[str]:
    """Those of the columns that the segment has: it may be older than some. One at least, to count by."""
    return [name for name in columns if name in schema.names] or [schema.names[0]]
