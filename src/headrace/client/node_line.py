"""A line to a node: requests over HTTP, and what the node says as values and as exceptions.

An error that the node answers is raised as the exception it was there. One on the way is CannotConnect,
ConnectionLost or NoAnswer; what is safe to repeat is sent again for a while before it is raised.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlsplit
from weakref import WeakSet

import aiohttp
import msgspec
from aiohttp.abc import AbstractStreamWriter

from headrace.client.errors import CannotConnect, ConnectionLost, NoAnswer, nobody
from headrace.kernel.backoff import Backoff
from headrace.kernel.errors import BadSettings, Broken, Busy, Closed, HeadraceError, Refused, by_code

T = TypeVar("T")
_PIECE_BYTES = 1 << 18
_READ_BUFFER_BYTES = 1 << 20
_ERROR_BYTES_MAX = 1 << 16
_PAUSE = Backoff(first_s=0.05, factor=2.0, longest_s=2.0)
AWAY = (CannotConnect, ConnectionLost, NoAnswer, Closed, Busy)
"""What passes when a node comes back."""
NOT_DONE = (CannotConnect, Busy)
"""The same, when nothing can have been done."""
_OF_OTHERS: Mapping[int, type[HeadraceError]] = {
    429: Busy,
    502: ConnectionLost,
    503: ConnectionLost,
    504: NoAnswer,
}
"""What a proxy means by a status of its own: but for the first, the node may have done what was asked for."""


class Closeable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a client waits for a node: to connect, for an answer, and altogether, before it gives up."""

    connect_s: float = 10.0
    answer_s: float = 60.0
    """For a whole answer; or for the next piece of one that goes on, which is asked for again then."""
    away_s: float = 60.0
    """How long what is safe to repeat is sent again, from the first time on that it failed."""
    pause: Backoff = _PAUSE


class NodeLine:
    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        ca: str | Path | None = None,
        patience: Patience | None = None,
    ) -> None:
        """`ca` is a file with the certificates to trust, beside those of the system."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise BadSettings(f"a node has a URL such as http://localhost:7400, not {url!r}")
        self.url = url.rstrip("/")
        self.token = token
        self.patience = patience or Patience()
        self.tls = trusted(ca) if parts.scheme == "https" else None
        self.conduits: WeakSet[Closeable] = WeakSet()
        """Those of the session's loop: they end with it."""
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | memoryview = b"",
        *,
        media: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """One request and its answer. It is not sent again."""
        sent = {**(headers or {}), **({"Content-Type": media} if media else {})}
        async with self._response(method, path, sent, body) as response:
            return await response.read()

    async def told(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The same for JSON both ways."""
        raw = b"" if body is None else msgspec.json.encode(body)
        return msgspec.json.decode(await self.ask(method, path, raw, **more))

    async def surely(
        self, work: Callable[[], Awaitable[T]], repeated: tuple[type[HeadraceError], ...] = AWAY
    ) -> T:
        """Do what is safe to repeat again and again, while the node is away."""
        return await Absence(self.patience).surely(work, asyncio.sleep, lambda: self._closed, repeated)

    @asynccontextmanager
    async def reading(
        self, path: str, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A response that goes on. One that says nothing for `answer_s` is lost: nobody can tell why."""
        method = "POST" if body else "GET"
        async with self._response(method, path, headers or {}, body, endless=True) as response:
            yield response

    @property
    def closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        self._closed = True
        for conduit in list(self.conduits):
            conduit.close()
        if self._session is not None:
            await self._session.close()

    # --- inside

    @asynccontextmanager
    async def _response(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | memoryview,
        *,
        endless: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._closed:
            raise Closed(f"the connection to {self.url} is closed")
        patience = self.patience
        limit = aiohttp.ClientTimeout(
            sock_connect=patience.connect_s,
            sock_read=patience.answer_s if endless else None,
            total=None if endless else patience.answer_s,
        )
        began = False
        try:
            async with self._opened().request(
                method, self.url + path, data=_Sent(body) if body else None, headers=headers, timeout=limit
            ) as response:
                if response.status >= 400:
                    raise failure(await response.content.read(_ERROR_BYTES_MAX), response.status)
                began = True
                yield response
        except aiohttp.ClientConnectorError as error:
            raise nobody(self.url, error.os_error) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise ConnectionLost(f"the connection to {self.url} broke ({error or 'closed'})") from error
        except TimeoutError as error:
            if began and endless:
                raise
            raise NoAnswer(f"{self.url} did not answer within {patience.answer_s:g} s") from error

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
            connector = aiohttp.TCPConnector(limit=0, ssl=self.tls or True)
            self._session = aiohttp.ClientSession(
                connector=connector, headers=headers, read_bufsize=_READ_BUFFER_BYTES, auto_decompress=False
            )
        return self._session


class _Sent(aiohttp.payload.Payload):
    """A body that is in memory, sent piece by piece."""

    _default_content_type = "application/octet-stream"

    def __init__(self, data: bytes | memoryview) -> None:
        super().__init__(data)
        self._size = len(data)

    async def write(self, writer: AbstractStreamWriter) -> None:
        view = memoryview(self._value)
        for at in range(0, len(view), _PIECE_BYTES):
            await writer.write(view[at : at + _PIECE_BYTES])

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        await self.write(writer)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return bytes(self._value).decode(encoding, errors)


class Absence:
    """Since when a node is away, for all who ask for the same thing one after the other.

    They share one time to wait: if one of them has given up, the next one looks once, and does not wait as
    long again. What failed long ago does not count.
    """

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._deadline = 0.0
        self._failed_at = 0.0

    async def surely(
        self,
        work: Callable[[], Awaitable[T]],
        rest: Callable[[float], Awaitable[object]],
        closed: Callable[[], bool],
        repeated: tuple[type[HeadraceError], ...] = AWAY,
    ) -> T:
        """Do it again and again, while the node is away: with a `rest` between, until it is closed here."""
        patience, attempts = self._patience, 0
        if time.monotonic() - self._failed_at > patience.away_s:
            self._deadline = 0.0
        while True:
            try:
                done = await work()
            except repeated as error:
                attempts += 1
                pause = patience.pause.pause_s(attempts)
                self._failed_at = time.monotonic()
                self._deadline = self._deadline or self._failed_at + patience.away_s
                if closed() or self._failed_at + pause > self._deadline:
                    self._deadline = self._failed_at
                    raise error
                await rest(pause)
            else:
                self._deadline = 0.0
                return done


def trusted(ca: str | Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if ca is not None:
        try:
            context.load_verify_locations(str(ca))
        except (OSError, ssl.SSLError) as error:
            raise BadSettings(f"{ca} holds no certificates that could be read: {error}") from error
    return context


def path_of(noun: str, name: str, *verb: str) -> str:
    return "/".join(("", noun, quote(name, safe=""), *verb))


def failure(body: bytes, status: int) -> HeadraceError:
    """What an answer with an error status says."""
    try:
        said = msgspec.json.decode(body, type=dict[str, Any])
        error = by_code(str(said["error"]), str(said["message"]))
        return Broken(str(error)) if status >= 500 and isinstance(error, Refused) else error
    except (msgspec.MsgspecError, KeyError):
        text = f"it answered {status}, not as a node does: {body[:200].decode('utf-8', 'replace')}"
        return _OF_OTHERS.get(status, Broken)(text)
