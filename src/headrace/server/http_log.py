"""The request log: a line for every request, when its answer has ended. Secrets are never in it.

Requests that a node could not serve (5xx) are warnings, all others are of the level `info`, which is off
unless it is asked for: a busy node answers thousands a second.
"""

from __future__ import annotations

import logging
import time

from aiohttp import web

from headrace.server.http_errors import Handler
from headrace.server.http_gate import HOLDER

_logger = logging.getLogger("headrace.requests")
FIELDS = "fields"
"""The attribute of a log record that has the facts of its sentence, by name."""


@web.middleware
async def logged(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The outermost of all: it sees the answer as it is sent."""
    if not _logger.isEnabledFor(logging.INFO):
        response = await handler(request)
        if response.status >= 500:
            _log(request, response.status, None)
        return response
    began, status = time.monotonic(), 499  # as nginx has it: whoever asked has gone
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        _log(request, status, time.monotonic() - began)


def _log(request: web.Request, status: int, seconds: float | None) -> None:
    holder = request.get(HOLDER)
    fields = {
        "method": request.method,
        "path": request.path[:300],
        "status": status,
        "token": None if holder is None else holder.name,
        "peer": request.remote,
    }
    if seconds is not None:
        fields["duration_ms"] = round(seconds * 1000, 3)
    level = logging.WARNING if status >= 500 else logging.INFO
    sentence = "%s %s answered with %d"
    _logger.log(level, sentence, request.method, request.path[:300], status, extra={FIELDS: fields})
