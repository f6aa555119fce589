"""The rows of the OpenAPI document about streams."""

from __future__ import annotations

from headrace.server.http_publish import Head, Lease
from headrace.server.http_streams import Fields
from headrace.server.openapi import (
    BINARY,
    FLAG,
    INDEX,
    JSON,
    TEXT,
    WHOLE,
    Operation,
    Schema,
    list_of,
    or_null,
    said,
    taken,
)
from headrace.wire.http_words import ARROW, BASE, JSON_LINES, PRODUCER, PUBLISHER, SEQUENCE, TERMS

_NUMBER: Schema = {"type": "string", "pattern": "^[0-9]{1,18}$"}
_BITS: Schema = {"type": "integer", "minimum": 0, "maximum": (1 << 64) - 1}
_HOLDER: Schema = {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"}
_FIELD = said(name=TEXT, type=TEXT, nullable=FLAG)[JSON]
_TERMS: Schema = {"type": "object", "required": ["schema", "words"]}

STREAM_KINDS = (Fields, Head, Lease)

STREAMS: dict[str, Operation] = {
    "GET /streams": Operation("The names of all streams.", {200: said(streams=list_of(TEXT))}),
    "PUT /streams/{name}": Operation(
        "Make sure that a stream is there.",
        {200: said(name=TEXT, created=FLAG), 201: said(name=TEXT, created=FLAG)},
        body={**taken(Fields), ARROW: BINARY, TERMS: _TERMS},
    ),
    "POST /streams/{name}/grow": Operation(
        "A stream has more fields, or classes, from now on.",
        {200: said(name=TEXT, grown=FLAG)},
        body={TERMS: _TERMS},
    ),
    "DELETE /streams/{name}": Operation(
        "Remove a stream with all its entries.", {200: said(name=TEXT, dropped=FLAG)}
    ),
    "GET /streams/{name}/info": Operation(
        "What a stream knows of itself.",
        {
            200: said(
                name=TEXT,
                fields=list_of(_FIELD),
                order_by=or_null(TEXT),
                first=INDEX,
                next=INDEX,
                durable=INDEX,
                settled=INDEX,
                head_bits=_BITS,
                segments=INDEX,
                bytes=INDEX,
                free_containers=INDEX,
                epoch=INDEX,
                positions={"type": "object", "additionalProperties": INDEX},
                kept=list_of(TEXT),
                foreign=list_of(TEXT),
                id=TEXT,
                copy_of=or_null({"type": "object"}),
            )
        },
    ),
    "GET /streams/{name}/meta": Operation(
        "What a stream's log says of itself.", {200: {JSON: {"type": "object"}}}
    ),
    "POST /streams/{name}": Operation(
        "Publish entries; answered when they are durable, all or none.",
        {200: said(first=INDEX, next=INDEX, duplicates=list_of(INDEX), repeated=FLAG)},
        headers={PRODUCER: _HOLDER, SEQUENCE: _NUMBER, PUBLISHER: _HOLDER, BASE: _NUMBER},
        body={JSON_LINES: TEXT, ARROW: BINARY},
        body_required=False,
    ),
    "GET /streams/{name}/pipe": Operation(
        "Publish on this connection, without HTTP around each batch.",
        {101: {}},
        headers={"Upgrade": TEXT, PRODUCER: _HOLDER, PUBLISHER: _HOLDER},
    ),
    "POST /streams/{name}/head": Operation(
        "Move HEAD: no later entry has a smaller order key.",
        {200: said(head={"anyOf": [TEXT, {"type": "number"}]})},
        headers={PUBLISHER: _HOLDER},
        body=taken(Head),
    ),
    "POST /streams/{name}/publisher": Operation(
        "Take the publisher's lease, or keep it: who holds it publishes alone.",
        {200: said(next=INDEX, durable=INDEX, head=_BITS, last=or_null(_BITS), lease_s={"type": "number"})},
        body=taken(Lease),
    ),
    "DELETE /streams/{name}/publisher": Operation(
        "Give the publisher's lease free.", {200: said(released=TEXT)}, body=taken(Lease)
    ),
    "POST /streams/{name}/ids": Operation(
        "Where the entries with these unique ids are.",
        {200: said(indexes=list_of(or_null(INDEX)))},
        body={ARROW: BINARY},
    ),
    "GET /streams/{name}/verify": Operation(
        "Check every byte of a stream; how far it is, and at the end what was found.",
        {200: {JSON_LINES: TEXT}},
    ),
    "GET /streams/{name}": Operation(
        "Read from a place on; with follow, for ever.",
        {200: {JSON_LINES: TEXT, ARROW: BINARY}},
        query={
            "from": {"type": "string", "pattern": "^(start|end|[0-9]{1,18})$"},
            "key": TEXT,
            "from_bits": _BITS,
            "until": TEXT,
            "to": {**WHOLE, "minimum": 0, "maximum": (1 << 63) - 1},
            "until_bits": _BITS,
            "count": {**WHOLE, "minimum": 0, "maximum": (1 << 63) - 1},
            "follow": {"type": "string", "enum": ["false"]},
            "format": {"type": "string", "enum": ["json", "arrow"]},
            "columns": TEXT,
            "damage": {"type": "string", "enum": ["skip"]},
        },
    ),
}
