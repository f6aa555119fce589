"""Errors over HTTP: a status that machines know, and the same code and sentence as everywhere."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from headrace.kernel.errors import (
    Broken,
    Closed,
    Damaged,
    Diverged,
    HeadraceError,
    IsReplica,
    NoPermission,
    NotFound,
    Refused,
    Retryable,
    TooLarge,
    TooSlow,
    Trimmed,
    Unauthorized,
    WriterTaken,
)
from headrace.stream.errors import DuplicateId, StreamExists

_STATUS: list[tuple[type[HeadraceError], int]] = [
    (NotFound, 404),
    (Unauthorized, 401),
    (NoPermission, 403),
    (TooLarge, 413),
    (Trimmed, 410),
    (StreamExists, 409),
    (DuplicateId, 409),
    (WriterTaken, 409),
    (Diverged, 409),
    (IsReplica, 409),
    (Refused, 400),
    (TooSlow, 408),
    (Retryable, 503),
    (Closed, 503),
    (Damaged, 500),
    (Broken, 500),
]
_HEADERS: dict[int, dict[str, str]] = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "1"}}
_logger = logging.getLogger("headrace.server")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def status_of(error: HeadraceError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def answer(body: object, status: int = 200) -> web.Response:
    """Anything as JSON, with a line end for those who read it in a terminal."""
    return web.Response(
        body=msgspec.json.encode(body) + b"\n",
        status=status,
        content_type="application/json",
        headers=_HEADERS.get(status),
    )


def code_of(error: web.HTTPException) -> str:
    """The code of what aiohttp refuses by itself."""
    return {404: "not_found", 405: "bad_method", 413: "too_large"}.get(error.status, "bad_request")


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error is one JSON object: its code, and what to do."""
    try:
        return await handler(request)
    except HeadraceError as error:
        return answer({"error": error.code, "message": str(error)}, status_of(error))
    except web.RequestPayloadError as error:
        return answer(
            {"error": "bad_request", "message": f"{request.path}: the body is broken ({error})"}, 400
        )
    except ConnectionError:
        raise  # whoever asked has gone: there is nobody to tell
    except web.HTTPException as error:
        if error.status < 400:
            raise
        message = f"{request.method} {request.path}: {error.reason}"
        refused = answer({"error": code_of(error), "message": message}, error.status)
        if "Allow" in error.headers:
            refused.headers["Allow"] = error.headers["Allow"]
        return refused
    except Exception as error:
        _logger.exception("%s %s failed", request.method, request.path)
        kind = type(error).__name__
        return answer(
            {"error": "internal", "message": f"{kind}: this is a bug in headrace, see its log"}, 500
        )
