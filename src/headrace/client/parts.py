"""A node's stream for programs that work in large parts: plans, named positions, its files.

Everything here is safe to repeat, and is sent again for a while if the node is away; `compact` alone is not.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import msgspec
import pyarrow as pa

from headrace.client.node_line import NOT_DONE, NodeLine, path_of
from headrace.client.packing import packed
from headrace.kernel.errors import HeadraceError
from headrace.log.inventory import SegmentFacts
from headrace.log.mark import Extent, Settled
from headrace.log.plan import Span
from headrace.log.segment_name import ActiveName, FinalName, Listing, SegmentName, parse_name
from headrace.log.verify import Outset, Sums
from headrace.wire import http_words as words

_RENEW_S = 3.0


class StreamParts:
    def __init__(self, line: NodeLine, name: str) -> None:
        self._line = line
        self._name = name

    async def reach(self) -> tuple[int, Settled]:
        """The oldest index that is kept, and how far the stream reaches that no power cut can take back."""
        told = await self._told("GET", "info")
        return told["first"], Settled(told["settled"], told["head_bits"])

    async def seek(self, key: str | int) -> int:
        """The first index whose order key is at least `key`: as text, or as its 64 sortable bits."""
        query = f"bits={key}" if isinstance(key, int) else f"key={quote(key, safe='')}"
        return int((await self._told("GET", f"seek?{query}"))["index"])

    async def plan(self, start: int, stop: int, rows: int | None, cores: int) -> list[Span]:
        return spans_of(await self._told("GET", f"plan?{plan_query(start, stop, rows, cores)}"))

    async def save_position(self, position: str, reader: str, index: int | None) -> int:
        """Hold a position in the name of `reader`, and remember `index`, if one is given; what it is now."""
        body = {"id": reader, "index": index}
        return int((await self._told("POST", f"positions/{quote(position, safe='')}", body))["index"])

    async def keep_position(self, position: str, reader: str) -> None:
        """Say again and again that the position is held, until this is cancelled."""
        while True:
            await asyncio.sleep(_RENEW_S)
            with contextlib.suppress(HeadraceError):  # if it is lost, the next save is told so
                await self.save_position(position, reader, None)

    async def release_position(self, position: str, reader: str) -> None:
        path = path_of("streams", self._name, "positions", quote(position, safe=""))
        await self._line.told("DELETE", path, {"id": reader})

    # --- its files

    async def segments(self) -> Outset:
        """The files as they are now, and what the mark says of them."""
        told = await self._told("GET", "segments")
        sizes = {name: size for text, size in told["files"].items() if (name := _segment(text)) is not None}
        extent = None if told["extent"] is None else msgspec.convert(told["extent"], Extent)
        listing = Listing.of([*told["files"], *told["obsolete"]])
        return Outset(listing, sizes, extent, told["has_mark"], told["epoch"])

    async def segment_facts(self, files: Sequence[str], *, checksums: bool) -> list[SegmentFacts]:
        """What is known of these files, those of them that are still there."""
        told = await self._told("POST", "segments", {"files": files, "checksums": checksums})
        return msgspec.convert(told["segments"], list[SegmentFacts])

    async def verify(self, files: Sequence[str], trimmed: int) -> list[Sums]:
        """What is found in these files when every byte is checked."""
        told = await self._told("POST", "verify", {"files": files, "trimmed": trimmed})
        return msgspec.convert(told["found"], list[Sums])

    async def compact(self, into: str, indexes: pa.Array, head: int) -> int:
        """A new stream of the entries with these indexes; how many. It is not sent again: it may be there."""
        path = f"{path_of('streams', self._name)}/compact?into={quote(into, safe='')}&head={head}"
        body = packed(pa.record_batch({"index": indexes}))
        raw = await self._line.surely(lambda: self._line.ask("POST", path, body, media=words.ARROW), NOT_DONE)
        return int(msgspec.json.decode(raw)["entries"])

    async def _told(self, method: str, verb: str, body: Any = None) -> Any:
        path = f"{path_of('streams', self._name)}/{verb}"
        return await self._line.surely(lambda: self._line.told(method, path, body))


def plan_query(start: int, stop: int, rows: int | None, cores: int) -> str:
    return f"from={start}&to={stop}&cores={cores}" + (f"&rows={rows}" if rows else "")


def spans_of(told: dict[str, list[int]]) -> list[Span]:
    """What a plan says."""
    return [Span(first, last) for first, last in pairwise(told["cuts"])]


def _segment(text: str) -> SegmentName | None:
    name = parse_name(text)
    return name if isinstance(name, FinalName | ActiveName) else None
