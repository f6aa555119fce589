"""The files of a stream over HTTP: an inventory of them, and checking every byte of them.

GET   /streams/{name}/segments    the files as they are now, and what the mark says of them
POST  /streams/{name}/segments    what is known of some: {"files": […], "checksums": true}
POST  /streams/{name}/verify      what is found in some: {"files": […], "trimmed": 0}

Many ask for some files each, beside one another. Checks read much: only so many go on at a time, so that
others who need the disk come through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from headrace.kernel.errors import Closed, Refused
from headrace.log.disk import Disk
from headrace.log.inventory import SegmentFacts, segment_facts
from headrace.log.mark import Extent
from headrace.log.segment_name import ActiveName, FinalName, parse_name
from headrace.log.verify import Sums, check_segment, set_out
from headrace.server.http_errors import answer
from headrace.server.http_publish import decoded
from headrace.server.node import Node
from headrace.stream.stream import Stream

T = TypeVar("T")
_FILES_MAX = 4096
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Segments:
    """The files of a stream (`log.verify.Outset`), as they are told."""

    files: dict[str, int]
    """Their sizes by their names."""
    obsolete: list[str]
    extent: Extent | None
    has_mark: bool
    epoch: int


class WantedSegments(msgspec.Struct, forbid_unknown_fields=True):
    files: list[str]
    checksums: bool = False


class CheckedSegments(msgspec.Struct, forbid_unknown_fields=True):
    files: list[str]
    trimmed: int = 0
    """Entries below this index need not be there."""


class SegmentRoutes:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._reading = asyncio.Semaphore(_AT_ONCE)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/streams/{name}/segments", self.tell_all),
            web.post("/streams/{name}/segments", self.tell_some),
            web.post("/streams/{name}/verify", self.verify),
        ]

    async def tell_all(self, request: web.Request) -> web.Response:
        desk = await self._node.stream(request.match_info["name"])
        return answer(await self._node.in_pool(_segments, desk.stream))

    async def tell_some(self, request: web.Request) -> web.Response:
        wanted = decoded(await request.read(), WantedSegments, '{"files": […], "checksums": true}')
        names = _checked(wanted.files)

        def work(stream: Stream) -> list[SegmentFacts]:
            log, files = stream.log, map(str, self._while_here(names))
            return [*segment_facts(log.path, log.meta, files, checksums=wanted.checksums)]

        return answer({"segments": await self._read(request, work)})

    async def verify(self, request: web.Request) -> web.Response:
        wanted = decoded(await request.read(), CheckedSegments, '{"files": […], "trimmed": 0}')
        names = _checked(wanted.files)

        def work(stream: Stream) -> list[Sums]:
            log = stream.log
            checking = self._while_here(names)
            found = [check_segment(Disk(), log.path, name, log.meta, wanted.trimmed) for name in checking]
            return [sums for sums in found if sums is not None]

        return answer({"found": await self._read(request, work)})

    async def _read(self, request: web.Request, work: Callable[[Stream], list[T]]) -> list[T]:
        """Have it done by a thread. It goes on if whoever asked has gone, and counts until it is done."""
        desk = await self._node.stream(request.match_info["name"])
        await self._reading.acquire()
        working = asyncio.ensure_future(self._node.in_pool(work, desk.stream))
        working.add_done_callback(self._done)
        return await asyncio.shield(working)

    def _done(self, working: asyncio.Future[Any]) -> None:
        self._reading.release()
        if not working.cancelled():
            working.exception()  # perhaps nobody else asks for it

    def _while_here(self, names: list[Any]) -> Iterator[Any]:
        """The names one by one, as long as the node is not stopping."""
        for name in names:
            if self._node.stopping:
                raise Closed("this node is stopping: try again later, or elsewhere")
            yield name


def _segments(stream: Stream) -> Segments:
    log = stream.log
    outset = set_out(Disk(), log.path, log.meta)
    return Segments(
        {str(name): size for name, size in outset.sizes.items()},
        [str(name) for name in outset.listing.obsolete],
        outset.extent,
        outset.has_mark,
        outset.epoch,
    )


def _checked(files: list[str]) -> list[Any]:
    """Names of segments, which cannot be names of anything else."""
    if len(files) > _FILES_MAX:
        raise Refused(f"ask for at most {_FILES_MAX} files at a time, not {len(files)}")
    if len(set(files)) < len(files):
        raise Refused("ask for each file once")
    names = [parse_name(file) for file in files]
    for file, name in zip(files, names, strict=True):
        if not isinstance(name, FinalName | ActiveName) or str(name) != file:
            raise Refused(f"{file[:120]!r} is no name of a segment: GET …/segments tells them")
    return names
