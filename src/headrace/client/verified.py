"""A stream that is verified by its node: what it says while it does, and what it found."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headrace.client.errors import ConnectionLost
from headrace.client.journal_line import lines_of
from headrace.client.node_line import NodeLine, path_of
from headrace.log.damage import Report
from headrace.log.verify import Progress


class _Said(msgspec.Struct):
    done: int = 0
    total: int = 0
    report: Report | None = None


async def verified(line: NodeLine, name: str, which: Mapping[str, str], progress: Progress | None) -> Report:
    async with line.reading(path_of("streams", name, "verify"), which) as response:
        async for text in lines_of(response):
            said = msgspec.json.decode(text, type=_Said)
            if said.report is not None:
                return said.report
            if progress is not None:
                progress(said.done, said.total)
    raise ConnectionLost(f"the connection to {line.url} broke")
