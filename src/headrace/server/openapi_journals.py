"""The rows of the OpenAPI document about journals, and about the node itself."""

from __future__ import annotations

from headrace.journal import requests as ask
from headrace.journal.journal import Stats
from headrace.journal.settings import JournalSettings
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
    shape_of,
    taken,
)
from headrace.wire.http_words import ARROW, JSON_LINES

_VALUE: Schema = {}
_JOB = said(
    id=INDEX,
    resource=_VALUE,
    domain=TEXT,
    priority=INDEX,
    due_us=WHOLE,
    attempts=INDEX,
    lease_until_us=INDEX,
    value=_VALUE,
)[JSON]

_ANY: Schema = {"type": "object"}
_VERBS: dict[type[ask.Asked], str] = {
    ask.DoneBatch: "The work on many jobs is done.",
    ask.Extend: "Keep a job for longer.",
    ask.Cancel: "Nobody wants this resource worked on any more.",
    ask.Redrive: "Put dead jobs back.",
    ask.RedriveAs: "Put dead jobs back, repaired.",
    ask.Set: "A key has this value.",
    ask.Get: "The value of a key, perhaps leased or touched.",
    ask.Probe: "What is known of a value, without it.",
    ask.Delete: "A key has no value any more.",
    ask.Add: "Add to a number.",
    ask.Flip: "Flip a truth value.",
    ask.Resize: "Cut or pad a value.",
    ask.Lock: "Nobody else may change a value.",
    ask.Unlock: "Everybody may again.",
    ask.Rename: "A value has another key instead.",
    ask.Link: "A value has another key, too.",
    ask.Range: "The values from one key to another, page by page.",
    ask.Match: "The values whose keys match an expression, page by page.",
}
JOURNAL_KINDS = (
    Stats,
    JournalSettings,
    ask.Put,
    ask.Next,
    ask.NextBatch,
    ask.Done,
    ask.Fail,
    ask.Listen,
    *_VERBS,
)

JOURNALS: dict[str, Operation] = {
    **{
        f"POST /journals/{{name}}/{kind.verb}": Operation(summary, {200: {JSON: _ANY}}, body=taken(kind))
        for kind, summary in _VERBS.items()
    },
    "POST /journals/{name}/put_batch": Operation(
        "Ask for work on many resources.",
        {201: said(ids=list_of(INDEX))},
        query={"after": TEXT, "writer": TEXT, "sequence": WHOLE},
        body={ARROW: BINARY},
    ),
    "POST /journals/{name}/next_batch": Operation(
        "Take many jobs.", {200: {ARROW: BINARY}}, body=taken(ask.NextBatch)
    ),
    "GET /journals/{name}/jobs": Operation("All jobs.", {200: {JSON_LINES: TEXT}}),
    "POST /journals/{name}/listen": Operation(
        "Be told whenever a value changes, for ever.", {200: {JSON_LINES: TEXT}}, body=taken(ask.Listen)
    ),
    "GET /journals/{name}/settings": Operation(
        "How a journal behaves.", {200: {JSON: shape_of(JournalSettings)}}
    ),
    "GET /journals": Operation("The names of all journals.", {200: said(journals=list_of(TEXT))}),
    "PUT /journals/{name}": Operation(
        "Make sure that a journal is there.",
        {200: said(name=TEXT, created=FLAG), 201: said(name=TEXT, created=FLAG)},
        body=taken(JournalSettings),
        body_required=False,
    ),
    "POST /journals/{name}/put": Operation(
        "Ask for work on a resource.", {201: said(id=INDEX)}, body=taken(ask.Put)
    ),
    "POST /journals/{name}/next": Operation(
        "Take the next job.",
        {200: said(job=or_null(_JOB), next_at_us=or_null(WHOLE))},
        body=taken(ask.Next),
        body_required=False,
    ),
    "POST /journals/{name}/done": Operation("The work is done.", {200: said(id=INDEX)}, body=taken(ask.Done)),
    "POST /journals/{name}/fail": Operation("The work failed.", {200: said(id=INDEX)}, body=taken(ask.Fail)),
    "GET /journals/{name}/stats": Operation(
        "What a journal knows of itself.", {200: {JSON: shape_of(Stats)}}
    ),
    "GET /journals/{name}/fj": Operation(
        "Go on in the FJ protocol, on this connection.", {101: {}}, headers={"Upgrade": TEXT}
    ),
}

NODE: dict[str, Operation] = {
    "GET /livez": Operation("Whether the node is alive.", {200: said(alive=FLAG)}),
    "GET /readyz": Operation("Whether it takes requests.", {200: said(ready=FLAG), 503: said(ready=FLAG)}),
    "GET /metrics": Operation("For Prometheus.", {200: {"text/plain": TEXT}}),
    "GET /openapi.json": Operation("This document.", {200: {JSON: {"type": "object"}}}),
}
