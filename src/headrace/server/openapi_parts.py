"""The rows of the OpenAPI document about streams and journals that are read and written in large parts."""

from __future__ import annotations

from headrace.log.inventory import SegmentFacts
from headrace.log.verify import Sums
from headrace.server.http_positions import PositionReader
from headrace.server.http_segments import CheckedSegments, Segments, WantedSegments
from headrace.server.openapi import (
    BINARY,
    FLAG,
    INDEX,
    JSON,
    NAME,
    TEXT,
    Operation,
    Schema,
    list_of,
    said,
    shape_of,
    taken,
)
from headrace.server.staged_jobs import LandedJobs
from headrace.server.staged_landing import Landed
from headrace.wire.http_words import ARROW, CHECKSUM, FRAMES

_INDEX: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
_BITS: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}
_NUMBER: Schema = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_RUN: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_RUN_NAME: Schema = {
    "type": "string",
    "pattern": "^[0-9a-f]{32}-[0-9]{1,18}(-[0-9a-f]{16}){3}[.]arrow$",
}
_BATCH: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
_SUM: Schema = {"type": "string", "pattern": "^[0-9a-f]{16}$"}

PART_KINDS = (
    PositionReader,
    Landed,
    LandedJobs,
    Segments,
    SegmentFacts,
    Sums,
    WantedSegments,
    CheckedSegments,
)


def _staging(noun: str) -> dict[str, Operation]:
    """What streams and journals have in common."""
    run = f"/{noun}/{{name}}/staged/{{query}}/{{batch}}/{{run}}"
    return {
        f"PUT {run}": Operation(
            "Stage a run of rows; the answer says the name by which it lands.",
            {201: said(run=TEXT, rows=INDEX)},
            path={"query": NAME, "batch": _BATCH, "run": _RUN},
            headers={CHECKSUM: _SUM},
            body={ARROW: BINARY},
        ),
        f"DELETE {run}": Operation(
            "Remove a run that is staged.",
            {200: said(removed=TEXT)},
            path={"query": NAME, "batch": _BATCH, "run": _RUN_NAME},
        ),
        f"DELETE /{noun}/{{name}}/staged/{{query}}": Operation(
            "Remove all runs of a write that is given up.",
            {200: said(removed=TEXT)},
            path={"query": NAME},
        ),
    }


def _frames(noun: str) -> Operation:
    return Operation(
        f"The very frames of a {noun}, from where a copy ends, as they become durable.",
        {200: {FRAMES: BINARY}},
        query={"id": TEXT, "from": _NUMBER, "head": _NUMBER, "epoch": _NUMBER, "last": TEXT},
    )


_PLAN = {"from": _INDEX, "to": _INDEX, "rows": _INDEX, "cores": _INDEX}

PARTS: dict[str, Operation] = {
    "GET /streams/{name}/seek": Operation(
        "The first index whose order key is at least this.",
        {200: said(index=INDEX)},
        query={"key": TEXT, "bits": _BITS},
    ),
    "GET /streams/{name}/plan": Operation(
        "Indexes at which to cut a stretch so that many read it at once, the ends included.",
        {200: said(cuts=list_of(INDEX))},
        query=_PLAN,
    ),
    "POST /streams/{name}/positions/{position}": Operation(
        "Take a named position, or keep it; and remember an index, if one is given.",
        {200: said(position=TEXT, index=INDEX)},
        path={"position": NAME},
        body=taken(PositionReader),
    ),
    "DELETE /streams/{name}/positions/{position}": Operation(
        "Let another reader have a named position; its index stays.",
        {200: said(released=TEXT)},
        path={"position": NAME},
        body=taken(PositionReader),
    ),
    "POST /streams/{name}/land": Operation(
        "The runs that are named become one atomic group, once however often this is asked for.",
        {200: said(first=INDEX, next=INDEX, repeated=FLAG)},
        body=taken(Landed),
    ),
    "GET /streams/{name}/frames": _frames("stream"),
    "GET /journals/{name}/frames": _frames("journal"),
    **_staging("streams"),
    "GET /streams/{name}/segments": Operation(
        "The files of a stream, and what its mark says of them.", {200: {JSON: shape_of(Segments)}}
    ),
    "POST /streams/{name}/segments": Operation(
        "What is known of some of its files.",
        {200: said(segments=list_of(shape_of(SegmentFacts)))},
        body=taken(WantedSegments),
    ),
    "POST /streams/{name}/verify": Operation(
        "What is found in some of its files when every byte is checked.",
        {200: said(found=list_of(shape_of(Sums)))},
        body=taken(CheckedSegments),
    ),
    "POST /streams/{name}/compact": Operation(
        "A new stream of the entries with these indexes.",
        {201: said(name=TEXT, entries=INDEX)},
        query={"into": NAME, "head": _BITS},
        body={ARROW: BINARY},
    ),
    **_staging("journals"),
    "POST /journals/{name}/land": Operation(
        "The jobs of the runs that are named are put together, once however often this is asked for.",
        {200: said(put=INDEX, repeated=FLAG)},
        body=taken(LandedJobs),
    ),
    "GET /journals/{name}/history": Operation(
        "Some of what happened to a journal.",
        {200: {ARROW: BINARY}},
        query={"from": _INDEX, "to": _INDEX, "columns": TEXT},
    ),
    "GET /journals/{name}/history/reach": Operation(
        "Which log a journal has, and from where to where it reaches.",
        {200: said(id=TEXT, first=INDEX, settled=INDEX)},
    ),
    "GET /journals/{name}/history/plan": Operation(
        "Indexes at which to cut a stretch of it so that many read it at once.",
        {200: said(cuts=list_of(INDEX))},
        query=_PLAN,
    ),
}
