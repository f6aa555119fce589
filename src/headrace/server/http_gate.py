"""The gate: who asks, and may they? It stands before every route, and nothing of a body is read before it.

A store without `tokens.json` is open to its own machine. Then a browser is the one dangerous caller: any page
could make it send requests here. So such a node answers only to names of the machine itself (a page cannot
have one of them, whatever DNS says), and to no page of another origin.

The file is looked at twice a second, whatever happens, by a thread that nothing else keeps busy. Whoever has
got in with a token that is gone, changed or expired since, is cut off: a follower of a stream could stay for
months. While the file cannot be read, nobody else gets in.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.errors import Broken, HeadraceError, NoPermission, Unauthorized
from headrace.server.http_door import Visit
from headrace.server.http_errors import Handler
from headrace.server.http_permissions import check_need, kind_of, need_of
from headrace.server.node import Node
from headrace.server.permissions import ANYONE, Holder, Permission
from headrace.server.tokens import PREFIX, Keyring, TokenFile

LOOK_EVERY_S = 0.5
STAY_S = 1.0
"""A request that was let in rightly is answered, if that takes no longer."""
HOLDER = web.RequestKey("headrace.holder", Holder)
_UNKNOWN = object()
_logger = logging.getLogger("headrace.server")


class Gate:
    def __init__(self, node: Node, *, required: bool = False, clock: Clock | None = None) -> None:
        """`required`: without tokens nobody gets in, instead of everybody."""
        self._node = node
        self._required = required
        self._clock = clock or SystemClock()
        self._file = TokenFile(Path(node.store.path), clock=self._clock)
        self._state: object = _UNKNOWN
        self._keyring: Keyring | None = None
        self._error: HeadraceError | None = None
        self._inside: dict[asyncio.Transport, tuple[Holder, float]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the tokens; what is wrong with them is raised now."""
        await self.look()
        if self._error is not None:
            raise self._error
        self._looking = asyncio.get_running_loop().create_task(self._look_on())

    async def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking

    async def look(self) -> None:
        """Take up what has changed in the file, and let those go who may not stay."""
        try:
            state = await asyncio.to_thread(self._file.state)
            if state != self._state:
                tokens = await asyncio.to_thread(self._file.tokens)
                self._keyring = None if tokens is None else Keyring(tokens, self._clock)
                self._state, self._error = state, None
        except HeadraceError as error:  # nobody gets in on a guess
            if str(error) != str(self._error):
                _logger.error("%s", error)
            self._state, self._error = _UNKNOWN, error
        now = asyncio.get_running_loop().time()
        for transport, (holder, since) in list(self._inside.items()):
            if transport.is_closing():
                del self._inside[transport]
            elif now - since > STAY_S and not self._may_stay(holder):
                transport.abort()

    async def _look_on(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.look()
            except Exception:  # a node that looks no more would let in whoever was revoked
                _logger.exception("the tokens could not be looked at")

    def _may_stay(self, holder: Holder) -> bool:
        if self._keyring is None:
            return holder is ANYONE and not self._required
        return self._keyring.knows(holder)

    @web.middleware
    async def guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        need = need_of(request)
        if need.open:
            return await handler(request)
        holder = self.holder(request)
        request[HOLDER] = holder
        check_need(need, holder, kind_of(request), request.match_info.get("name", ""))
        if request.transport is None:
            raise ConnectionResetError("whoever asked has gone")
        transport = request.transport
        self._inside[transport] = holder, asyncio.get_running_loop().time()
        try:
            return await handler(request)
        finally:
            visit = transport.get_protocol()
            if isinstance(visit, Visit) and not visit.switched:
                self._inside.pop(transport, None)
            # Otherwise it goes on in another protocol, which knows no tokens: it stays until it is closed.

    def holder(self, request: web.Request) -> Holder:
        """Who asks; Unauthorized if that is nobody we know."""
        if self._error is not None:  # strangers need not know more
            raise Broken("this node cannot read its tokens: its log says why")
        if self._keyring is None and not self._required:
            _check_no_page(request)
            return ANYONE
        scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip().startswith(PREFIX):
            raise Unauthorized("this node needs a token: send it as `Authorization: Bearer hr_…`")
        if self._keyring is None:
            raise Unauthorized("this node has no tokens yet: make one with `headrace token create`")
        return self._keyring.holder(secret.strip())


def holder_of(request: web.Request) -> Holder:
    """Who asks, as the gate has found."""
    return request[HOLDER]


def may_create(request: web.Request) -> bool:
    """Whether a PUT may make or change what it names."""
    return holder_of(request).may(Permission.CREATE, kind_of(request), request.match_info["name"])


def _check_no_page(request: web.Request) -> None:
    origin = request.headers.get("Origin")
    if not _is_here(request.headers.get("Host", "localhost")) or (
        origin is not None and not _is_here(urlsplit(origin).netloc)
    ):
        raise NoPermission(
            "without tokens a node answers only to its own machine, as localhost or 127.0.0.1, and to no "
            "page of another site: make a token with `headrace token create`"
        )


def _is_here(host: str) -> bool:
    """Whether `host:port` is a name of this machine that nobody else can give to theirs."""
    with contextlib.suppress(ValueError):
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    return False
