"""How a journal's verbs become routes: each is what it takes, and what it does, written once.

POST /journals/{name}/{verb}   with a JSON object, answered by one
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from headrace.journal.errors import BadRequest
from headrace.journal.journal import Journal
from headrace.journal.requests import Asked
from headrace.server.answered import Answered
from headrace.server.http_errors import answer
from headrace.server.node import Node
from headrace.wire.http_words import REQUEST, SESSION

NO_JSON = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
A = TypeVar("A", bound=Asked)
B = TypeVar("B", bound=Asked)


@dataclass(frozen=True, slots=True)
class Verb:
    kind: type[Asked]
    run: Callable[[Journal, Any, str], object]
    status: int = 200


def verb(kind: type[B], run: Callable[[Journal, B], object], status: int = 200) -> Verb:
    return Verb(kind, lambda journal, wanted, session: run(journal, wanted), status)


def owned(kind: type[B], run: Callable[[Journal, B, object], object]) -> Verb:
    """One that looks at locks: it is told who asks, a client and one of the owners that it speaks for."""

    def of_somebody(journal: Journal, wanted: Any, session: str) -> object:
        owner = None if wanted.owner is None else (session, wanted.owner)
        return run(journal, wanted, owner)

    return Verb(kind, of_somebody)


class VerbRoutes:
    def __init__(self, node: Node, verbs: Sequence[Verb]) -> None:
        self._node = node
        self._verbs = verbs
        self._answered = Answered()

    def routes(self) -> list[web.RouteDef]:
        return [web.post(path_of(each.kind), partial(self._do, each)) for each in self._verbs]

    async def _do(self, each: Verb, request: web.Request) -> web.Response:
        wanted, journal = await asked(request, each.kind), await journal_of(self._node, request)
        session = request.headers.get(SESSION, "")

        async def work() -> bytes:
            return msgspec.json.encode(await self._node.in_pool(each.run, journal, wanted, session))

        told = await self._answered.once(request.path, request.headers.get(REQUEST), work)
        return answer(msgspec.Raw(told), each.status)


def path_of(kind: type[Asked]) -> str:
    return f"/journals/{{name}}/{kind.verb}"


async def journal_of(node: Node, request: web.Request) -> Journal:
    return await node.journal(request.match_info["name"])


async def asked(request: web.Request, kind: type[A]) -> A:
    """What the body of a request says."""
    raw = await request.read()
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except NO_JSON as error:
        raise BadRequest(f"the body is not what {request.path} takes: {error}") from error
