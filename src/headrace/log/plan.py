"""Planning: cutting a stretch of a stream into parts that are read beside one another.

File names tell the indexes of finalized segments, so a plan over thousands of them reads one directory.
Small segments go together into one part; a large one is cut where its footer says that a batch begins, so
that no batch is read twice.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headrace.kernel.errors import NotFound
from headrace.log.disk import Disk
from headrace.log.meta import Meta
from headrace.log.segment_name import FinalName, Listing
from headrace.log.table import read_footer
from headrace.log.view import View

_PART_BYTES = 256 << 20
_PART_ROWS_LEAST = 1 << 14
_SAMPLE = 16


@dataclass(frozen=True, slots=True)
class Span:
    """The entries from `start` up to, not including, `stop`."""

    start: int
    stop: int


def plan_spans(
    disk: Disk,
    directory: Path,
    meta: Meta,
    start: int,
    stop: int,
    rows: int | None,
    *,
    cores: int | None = None,
) -> list[Span]:
    """Spans that follow one another from `start` to `stop`, each of about `rows` entries.

    `cores` are those of whoever will read; without, of this machine.
    """
    if start >= stop:
        return []
    finals = [
        name
        for name in Listing.of(disk.names(directory)).finals
        if name.next_index > start and name.first_index < stop
    ]
    wanted = rows or _usual_rows(disk, directory, finals, stop - start, cores or os.cpu_count() or 2)
    cuts = [start]
    for name in finals:
        if name.first_index > cuts[-1] and name.first_index - cuts[-1] >= wanted:
            cuts.append(name.first_index)
        if name.next_index - cuts[-1] >= wanted * 3 // 2:
            cuts += _inside(disk, directory, meta, name, cuts[-1], wanted)
    active = max(start, finals[-1].next_index) if finals else start
    if active > cuts[-1] and stop - active >= wanted // 2:
        cuts.append(active)
    while stop - cuts[-1] >= wanted * 3 // 2 and cuts[-1] >= active:  # it has no footer: cut it anywhere
        cuts.append(cuts[-1] + wanted)
    cuts = [cut for cut in cuts if cut < stop]
    return [Span(first, last) for first, last in pairwise([*cuts, stop])]


def _usual_rows(disk: Disk, directory: Path, finals: list[FinalName], entries: int, cores: int) -> int:
    """Rows of a part of a usual size, by the size of some segments.

    A part costs Spark a tenth of a second whatever is in it, so there are few: as many as cores, or a
    multiple of that for more data.
    """
    some = finals[:: max(1, len(finals) // _SAMPLE)]
    size = counted = 0
    for name in some:
        try:
            size += disk.size(directory / str(name))
        except NotFound:
            continue  # trimmed just now
        counted += name.next_index - name.first_index
    wanted = entries * size // counted // _PART_BYTES if counted else 0
    parts = -(-max(1, wanted) // cores) * cores
    return max(_PART_ROWS_LEAST, -(-entries // parts))


def _inside(disk: Disk, directory: Path, meta: Meta, name: FinalName, begun: int, wanted: int) -> list[int]:
    """Indexes inside a segment at which to cut, `begun` being where the current part began."""
    try:
        with disk.opened(directory / str(name)) as file:
            view = View(file, salt=meta.salt, finalized=True, copying=meta.settings.containers is not None)
            footer = read_footer(view)
            bases = list(footer.bases) if footer is not None else []
    except NotFound:
        return []
    cuts: list[int] = []
    while name.next_index - begun >= wanted * 3 // 2:
        at = bisect_left(bases, begun + wanted)
        if at >= len(bases) or bases[at] <= begun:
            break
        begun = bases[at]
        cuts.append(begun)
    return cuts
