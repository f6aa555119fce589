"""The rows of the OpenAPI document about streams that are read and written in large parts."""

from __future__ import annotations

from headrace.server.http_positions import PositionReader
from headrace.server.openapi import BINARY, FLAG, INDEX, NAME, TEXT, Operation, Schema, list_of, said, taken
from headrace.server.staged_landing import Landed
from headrace.wire.http_words import ARROW, CHECKSUM

_INDEX: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
_BITS: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}
_RUN: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
_RUN_NAME: Schema = {
    "type": "string",
    "pattern": "^[0-9a-f]{32}-[0-9]{1,18}(-[0-9a-f]{16}){3}[.]arrow$",
}
_BATCH: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 63) - 1}
_SUM: Schema = {"type": "string", "pattern": "^[0-9a-f]{16}$"}

PART_KINDS = (PositionReader, Landed)

PARTS: dict[str, Operation] = {
    "GET /streams/{name}/seek": Operation(
        "The first index whose order key is at least this.",
        {200: said(index=INDEX)},
        query={"key": TEXT, "bits": _BITS},
    ),
    "GET /streams/{name}/plan": Operation(
        "Indexes at which to cut a stretch so that many read it at once, the ends included.",
        {200: said(cuts=list_of(INDEX))},
        query={"from": _INDEX, "to": _INDEX, "rows": _INDEX, "cores": _INDEX},
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
    "PUT /streams/{name}/staged/{query}/{batch}/{run}": Operation(
        "Stage a run of rows; the answer says the name by which it lands.",
        {201: said(run=TEXT, rows=INDEX)},
        path={"query": NAME, "batch": _BATCH, "run": _RUN},
        headers={CHECKSUM: _SUM},
        body={ARROW: BINARY},
    ),
    "DELETE /streams/{name}/staged/{query}/{batch}/{run}": Operation(
        "Remove a run that is staged.",
        {200: said(removed=TEXT)},
        path={"query": NAME, "batch": _BATCH, "run": _RUN_NAME},
    ),
    "DELETE /streams/{name}/staged/{query}": Operation(
        "Remove all runs of a write that is given up.", {200: said(removed=TEXT)}, path={"query": NAME}
    ),
    "POST /streams/{name}/land": Operation(
        "The runs that are named become one atomic group, once however often this is asked for.",
        {200: said(first=INDEX, next=INDEX, repeated=FLAG)},
        body=taken(Landed),
    ),
}
