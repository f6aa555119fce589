"""What a node takes and answers, as an OpenAPI document: GET /openapi.json.

The document is made of operations, a row for each route (`openapi_streams`, `openapi_journals`). A test sees
to it that no route is without a row, and lets schemathesis try whether every row is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.kernel.limits import NAME_BYTES_MAX

Schema = Mapping[str, Any]
_SCHEMAS = "#/components/schemas/"
JSON = "application/json"

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
INDEX: Schema = {"type": "integer", "minimum": 0}
WHOLE: Schema = {"type": "integer"}
BINARY: Schema = {"type": "string", "format": "binary"}
NAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": NAME_BYTES_MAX,
    "pattern": "^[-_A-Za-z0-9]([-_A-Za-z0-9]|[.][-_A-Za-z0-9])*[.]?$",
}
ERROR: Schema = {
    "type": "object",
    "required": ["error", "message"],
    "additionalProperties": False,
    "properties": {
        "error": {"type": "string", "description": "a stable code"},
        "message": {"type": "string", "description": "what happened, to what, and what to do"},
    },
}
_ERROR = {
    "description": "It was not done.",
    "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
}


@dataclass(frozen=True, slots=True)
class Operation:
    """What one route takes and answers."""

    summary: str
    answers: Mapping[int, Mapping[str, Schema]]
    """By status: the media types, and what they hold."""
    query: Mapping[str, Schema] = field(default_factory=dict)
    headers: Mapping[str, Schema] = field(default_factory=dict)
    path: Mapping[str, Schema] = field(default_factory=dict)
    """What is in the path beside `name`."""
    body: Mapping[str, Schema] = field(default_factory=dict)
    body_required: bool = True


def said(**fields: Schema) -> dict[str, Schema]:
    """An answer in JSON with these fields, and no others."""
    schema: Schema = {
        "type": "object",
        "required": list(fields),
        "additionalProperties": False,
        "properties": fields,
    }
    return {JSON: schema}


def list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def shape_of(kind: type) -> Schema:
    """What JSON looks like that is read as this type, or was made of it: one of the document's `kinds`."""
    return {"$ref": f"{_SCHEMAS}{kind.__name__}"}


def taken(kind: type) -> dict[str, Schema]:
    """A body in JSON that is read as this type."""
    return {JSON: shape_of(kind)}


def document(operations: Mapping[str, Operation], kinds: Iterable[type], version: str) -> dict[str, Any]:
    """The whole document; keys of `operations` are `METHOD /path`, `kinds` the types that bodies are of."""
    _, shapes = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
    paths: dict[str, dict[str, Any]] = {}
    for route, operation in operations.items():
        method, _, path = route.partition(" ")
        paths.setdefault(path, {})[method.lower()] = _described(path, operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace",
            "version": version,
            "summary": "The streams and journals of one store.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR, **shapes},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _described(path: str, operation: Operation) -> dict[str, Any]:
    parameters = [_parameter("path", "name", NAME, required=True)] if "{name}" in path else []
    parameters += [_parameter("path", name, schema, required=True) for name, schema in operation.path.items()]
    parameters += [_parameter("query", name, schema) for name, schema in operation.query.items()]
    parameters += [_parameter("header", name, schema) for name, schema in operation.headers.items()]
    responses: dict[str, Any] = {
        str(status): {
            "description": operation.summary,
            "content": {media: {"schema": schema} for media, schema in content.items()},
        }
        for status, content in operation.answers.items()
    }
    described: dict[str, Any] = {
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses | {"default": _ERROR},
    }
    if operation.body:
        described["requestBody"] = {
            "required": operation.body_required,
            "content": {media: {"schema": schema} for media, schema in operation.body.items()},
        }
    return described


def _parameter(where: str, name: str, schema: Schema, *, required: bool = False) -> dict[str, Any]:
    return {"name": name, "in": where, "required": required, "schema": schema}
