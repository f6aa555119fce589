"""The async client: the same verbs, awaited. Calls that run at once share a connection, and often a packet.

client = await aconnect("localhost", 4011)
await asyncio.gather(*(client.put(url) for url in urls))       # that is the pipeline
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from headrace.client.answers import text
from headrace.client.blocking import Push
from headrace.client.calls import Call, Pause
from headrace.client.conversation import Conversation, lost
from headrace.client.errors import NoAnswer
from headrace.client.value_calls import Key, Page
from headrace.client.words import ClientWords
from headrace.journal.job import Job, Nothing
from headrace.journal.value import Value
from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.durations import Duration, microseconds
from headrace.kernel.errors import Closed, HeadraceError
from headrace.wire.fj import Function, Limits, Reply, Request

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    build: Callable[Concatenate[ClientWords, P], Call[T]],
) -> Callable[Concatenate[AsyncFjClient, P], Coroutine[Any, Any, T]]:
    @functools.wraps(build)
    async def verb(self: AsyncFjClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(build(self._words, *args, **kwargs))

    return verb


class Link(asyncio.Protocol):
    """One connection: requests out, replies to the futures that wait for them."""

    def __init__(self, where: str, timeout: float, limits: Limits | None = None) -> None:
        self._where = where
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._talk: Conversation[asyncio.Future[Reply]] = Conversation(limits)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._asked: deque[tuple[float, asyncio.Future[Reply]]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._waiters = 0
        self._moved = asyncio.Event()
        """Set whenever something may have changed for those who wait: room, pushes, the end."""
        self._writable = True
        self._gone: HeadraceError | None = None

    @property
    def pushes(self) -> dict[bytes, int]:
        return self._talk.pushes

    @property
    def told(self) -> bool:
        """Whether the server ended it with a word why."""
        return self._talk.told

    @property
    def closed(self) -> bool:
        return self._gone is not None

    async def ask(self, request: Request) -> Reply:
        while self._gone is None and not self._has_room():
            await self._next_move(self._timeout)
        self.check_open()
        answer: asyncio.Future[Reply] = self._loop.create_future()
        data = self._talk.ask(request, answer)
        if not self._out:
            self._loop.call_soon(self._flush)  # what others ask in this turn of the loop goes with it
        self._out.append(data)
        asked = self._asked
        while asked and asked[0][1].done():
            asked.popleft()
        asked.append((self._loop.time() + self._timeout, answer))
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout, self._look_at_the_oldest)
        return await answer

    async def wait(self, seconds: float) -> None:
        """Until anything has happened on the connection, or the time is over."""
        self.check_open()
        await self._next_move(seconds)
        self.check_open()

    def check_open(self) -> None:
        if self._gone is not None:
            raise type(self._gone)(str(self._gone))

    def close(self) -> None:
        if self._gone is None and self._transport is not None:
            self._flush()
            answer: asyncio.Future[Reply] = self._loop.create_future()
            self._transport.write(self._talk.ask(Request(Function.QUIT, 0), answer))
            self._end(Closed(f"the client of {self._where} is closed"))

    # --- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are of other classes

    def data_received(self, data: bytes) -> None:
        for answer, reply in self._talk.hear(data):
            if not answer.done():  # cancelled
                answer.set_result(reply)
        if self._talk.failed is not None:
            self._end(self._talk.failed)
        self._move()

    def connection_lost(self, error: Exception | None) -> None:
        self._end(lost(self._where, error or "the server closed it"))

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._move()

    # --- inside

    def _has_room(self) -> bool:
        return self._writable and self._talk.in_flight < self._talk.in_flight_max

    def _flush(self) -> None:
        if self._out and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def _move(self) -> None:
        if self._waiters:
            self._moved.set()
            self._moved = asyncio.Event()

    async def _next_move(self, seconds: float) -> None:
        moved = self._moved  # this one: what moves before the wait begins must count
        self._waiters += 1
        try:
            await asyncio.wait_for(moved.wait(), seconds)
        except TimeoutError:
            return
        finally:
            self._waiters -= 1

    def _look_at_the_oldest(self) -> None:
        """Requests are answered or too late; one timer looks for all of them."""
        self._watch = None
        asked = self._asked
        while asked and asked[0][1].done():
            asked.popleft()
        if not asked or self._gone is not None:
            return
        left = asked[0][0] - self._loop.time()
        if left > 0:
            self._watch = self._loop.call_later(left, self._look_at_the_oldest)
        else:
            self._end(
                NoAnswer(
                    f"{self._where} did not answer within {self._timeout:g} s: what was asked may have been "
                    "done or not; connect again"
                )
            )

    def _end(self, why: HeadraceError) -> None:
        if self._gone is not None:
            return
        self._gone = why
        for answer in self._talk.abandon():
            if not answer.done():
                answer.set_exception(type(why)(str(why)))
                answer.exception()  # nobody may be waiting any more: that is no news
        if self._watch is not None:
            self._watch.cancel()
        if self._transport is not None:
            self._transport.close()
        self._move()


class AsyncFjClient:
    """A journal on a server, for asyncio. The verbs are those of `FjClient`. Made by `aconnect`."""

    def __init__(self, link: Link, clock: Clock | None = None) -> None:
        self._link = link
        self._clock = clock or SystemClock()
        self._words = ClientWords(self._clock)
        self._waiting: Counter[bytes | None] = Counter()
        """How many wait for a push about each key."""

    # --- jobs

    put = _awaited(ClientWords.put)
    put_batch = _awaited(ClientWords.put_batch)
    next_batch = _awaited(ClientWords.next_batch)
    done = _awaited(ClientWords.done)
    fail = _awaited(ClientWords.fail)
    extend = _awaited(ClientWords.extend)

    async def next(
        self,
        domain: str = "",
        *,
        lease: Duration | None = None,
        wait: Duration | None = None,
        delete: bool = False,
    ) -> Job | Nothing:
        """The next job of a domain, or of any; `wait` so long for one. With `delete` it is gone at once."""
        if wait is None:
            return await self._run(self._words.next(domain, lease=lease, delete=delete))
        return await self._talk(self._words.wait_for_job(domain, wait, lease=lease, delete=delete))

    async def done_batch(self, jobs: Iterable[Job]) -> list[Job]:
        """Many jobs are done; those whose lease was lost."""
        return [job for call in self._words.done_batch(jobs) for job in await self._run(call)]

    # --- values

    set = _awaited(ClientWords.set)
    get = _awaited(ClientWords.get)
    probe = _awaited(ClientWords.probe)
    delete = _awaited(ClientWords.delete)
    add = _awaited(ClientWords.add)
    flip = _awaited(ClientWords.flip)
    resize = _awaited(ClientWords.resize)
    lock = _awaited(ClientWords.lock)
    unlock = _awaited(ClientWords.unlock)
    rename = _awaited(ClientWords.rename)
    link = _awaited(ClientWords.link)
    listen = _awaited(ClientWords.listen)

    def range(self, low: Key = "", high: Key | None = None, count: int = 0) -> AsyncIterator[Value]:
        """The values from one key to another, both included, as they are asked for."""
        return self._values(self._words.range(low, high, count))

    def match(self, regex: Key, count: int = 0) -> AsyncIterator[Value]:
        """The values whose key matches the regular expression (RE2) anywhere."""
        return self._values(self._words.match(regex, count))

    async def pushes(self, wait: Duration | None = None) -> AsyncIterator[Push]:
        """Keys that change, of those listened to; ends when none has for `wait`, and never without it."""
        while True:
            end_us = None if wait is None else self._clock.now_us() + microseconds(wait)
            await self._wait_for(None, end_us)
            taken = [Push(text(key), kind) for key, kind in self._link.pushes.items()]
            self._link.pushes.clear()
            for push in taken:
                yield push
            if not taken:
                return

    async def close(self) -> None:
        self._link.close()

    async def __aenter__(self) -> AsyncFjClient:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    # --- inside

    async def _run(self, call: Call[T]) -> T:
        return call.read(await self._link.ask(call.request))

    async def _talk(self, talk: Generator[Call[Any] | Pause, Any, T]) -> T:
        answer: Any = None
        try:
            while True:
                step = talk.send(answer)
                if isinstance(step, Pause):
                    await self._wait_for(step.key, step.until_us)
                    answer = None
                else:
                    answer = await self._run(step)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _wait_for(self, key: bytes | None, until_us: int | None) -> None:
        """Until a push about the key, or about any, has come, or the time has.

        A push is for all who wait for its key then: the last of them takes it away.
        """
        pushes = self._link.pushes
        self._waiting[key] += 1
        try:
            while not (pushes if key is None else key in pushes):
                left_us = 3_600_000_000 if until_us is None else until_us - self._clock.now_us()
                if left_us <= 0:
                    break
                await self._link.wait(left_us / 1e6)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
                if key is not None:
                    pushes.pop(key, None)

    async def _values(self, call: Call[Page] | None) -> AsyncIterator[Value]:
        while call is not None:
            page = await self._run(call)
            for value in page.values:
                yield value
            call = page.following
