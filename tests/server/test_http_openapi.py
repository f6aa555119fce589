"""The OpenAPI document is true: every route has a row, and schemathesis finds nothing that is otherwise."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.server.http_openapi import OPERATIONS
from headrace.server.http_permissions import NEEDS

from .http_node import served

schemathesis = pytest.importorskip("schemathesis")

EXAMPLES = 400 if os.environ.get("HEADRACE_CAMPAIGN") else 12
STREAM, JOURNAL = "orders", "pages"
ENDLESS = {
    "GET /journals/{name}/fj",
    "GET /journals/{name}/frames",
    "GET /streams/{name}/frames",
    "GET /streams/{name}/pipe",
    "POST /journals/{name}/listen",
}
"""What goes on for ever, or not as HTTP."""


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a node with a stream and a journal says of itself."""
    with served(tmp_path_factory.mktemp("node") / "data") as node:
        fields = {"fields": {"at": "int64", "who": "string"}, "order_by": "at"}
        node.ask.done("PUT", f"/streams/{STREAM}", fields)
        node.ask.done("POST", f"/streams/{STREAM}", [{"at": 1, "who": "ada"}, {"at": 2, "who": "bob"}])
        node.ask.done("PUT", f"/journals/{JOURNAL}")
        yield schemathesis.openapi.from_url(f"http://127.0.0.1:{node.ask.port}/openapi.json")


@schemathesis.serializer("application/vnd.apache.arrow.stream", "application/x-ndjson")
def as_it_is(context: Any, value: Any) -> bytes:
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else bytes(value or b"")


@schemathesis.serializer("application/vnd.headrace.terms+json")
def as_json(context: Any, value: Any) -> bytes:
    return json.dumps(value).encode()


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    assert set(OPERATIONS) == set(NEEDS)


@pytest.mark.parametrize("route", sorted(set(OPERATIONS) - ENDLESS))
def test_what_is_answered_is_what_the_document_says(schema: Any, route: str) -> None:
    """Whatever is sent, to streams and journals that are there and to others."""
    method, _, path = route.partition(" ")
    operation = schema[path][method]
    there = JOURNAL if path.startswith("/journals") else STREAM

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        derandomize=EXAMPLES < 100,
    )
    @given(case=operation.as_strategy(), known=st.booleans())
    def try_it(case: Any, known: bool) -> None:
        if known and "name" in (case.path_parameters or {}) and method != "DELETE":
            case.path_parameters["name"] = there
        if isinstance(case.body, dict):
            case.body.pop("wait", None)  # it is true that `next` waits for so long
        case.call_and_validate(
            excluded_checks=[
                # What a stream takes is said by its own fields, not by the document.
                schemathesis.checks.positive_data_acceptance,
            ]
        )

    try_it()
