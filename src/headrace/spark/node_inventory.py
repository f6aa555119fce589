"""The files of a node's streams: the node looks at them, for as many tasks as ask at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.log.inventory import SegmentFacts
from headrace.log.segment_name import SegmentName
from headrace.log.verify import Outset, Sums
from headrace.spark.node_address import NodeAddress


@dataclass(frozen=True, slots=True)
class NodeInventory:
    node: NodeAddress

    def streams(self) -> list[str]:
        self.node.check()
        return self.node.run(lambda store: store.streams())

    def where(self, stream: str) -> str:
        return f"{self.node.url}/streams/{stream}"

    def outset(self, stream: str) -> Outset:
        self.node.meta(stream)  # which says what is there, if this is not
        return self.node.run(lambda store: self.node.parts(stream).segments())

    def facts(self, stream: str, files: Sequence[str], *, checksums: bool) -> list[SegmentFacts]:
        parts = self.node.parts(stream)
        return self.node.run(lambda store: parts.segment_facts(files, checksums=checksums))

    def check(self, stream: str, names: Sequence[SegmentName], trimmed: int) -> list[Sums]:
        files = [str(name) for name in names]
        return self.node.run(lambda store: self.node.parts(stream).verify(files, trimmed))
