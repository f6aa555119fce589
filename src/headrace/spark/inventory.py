"""The files of a store's streams: what is known of them, and what is found when they are checked.

A directory's are looked at here, a node's by the node (`node_inventory`). Like origins, inventories are sent
to Spark's workers, so they hold names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.log.disk import Disk
from headrace.log.inventory import SegmentFacts, segment_facts
from headrace.log.segment_name import SegmentName
from headrace.log.verify import Outset, Sums, check_segment, set_out
from headrace.spark.origin import existing_store


class Inventory(Protocol):
    def streams(self) -> list[str]: ...

    def where(self, stream: str) -> str:
        """Where the files of a stream are, for people."""
        ...

    def outset(self, stream: str) -> Outset:
        """The files as they are now, and what the mark says of them."""
        ...

    def facts(self, stream: str, files: Sequence[str], *, checksums: bool) -> list[SegmentFacts]:
        """What is known of these files, those of them that are still there."""
        ...

    def check(self, stream: str, names: Sequence[SegmentName], trimmed: int) -> list[Sums]:
        """What is found in these files when every byte is read."""
        ...


@dataclass(frozen=True, slots=True)
class FileInventory:
    path: str

    def streams(self) -> list[str]:
        with existing_store(self.path) as store:
            return store.streams()

    def where(self, stream: str) -> str:
        with existing_store(self.path) as store:
            return str(store.stream(stream).log.path)

    def outset(self, stream: str) -> Outset:
        with existing_store(self.path) as store:
            log = store.stream(stream).log
            return set_out(Disk(), log.path, log.meta)

    def facts(self, stream: str, files: Sequence[str], *, checksums: bool) -> list[SegmentFacts]:
        with existing_store(self.path) as store:
            log = store.stream(stream).log
            return list(segment_facts(log.path, log.meta, files, checksums=checksums))

    def check(self, stream: str, names: Sequence[SegmentName], trimmed: int) -> list[Sums]:
        with existing_store(self.path) as store:
            log = store.stream(stream).log
            found = [check_segment(Disk(), log.path, name, log.meta, trimmed) for name in names]
        return [sums for sums in found if sums is not None]
