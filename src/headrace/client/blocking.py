"""The blocking client: each verb sends one request and waits for its reply; a pipeline sends many at once.

Threads may share a client: their calls take turns. A thread that waits for jobs wants a client of its own.
"""

from __future__ import annotations

import builtins
import functools
import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from headrace.client.answers import text
from headrace.client.calls import Call, Pause
from headrace.client.line import Asking
from headrace.client.value_calls import Key, Page
from headrace.client.words import ClientWords
from headrace.journal.job import Job, Nothing
from headrace.journal.value import Value
from headrace.kernel.clock import Clock, SystemClock
from headrace.kernel.durations import Duration, microseconds
from headrace.kernel.errors import Refused
from headrace.wire.fj import Reply

P = ParamSpec("P")
T = TypeVar("T")
_LONG_S = 3600.0


class Push(NamedTuple):
    """A key that has changed, and the type of its value now: 0 if it is gone."""

    key: str
    type: int


def _now(
    build: Callable[Concatenate[ClientWords, P], Call[T]],
) -> Callable[Concatenate[FjClient, P], T]:
    """The verb of a call: sent, and its reply read."""

    @functools.wraps(build)
    def verb(self: FjClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        request, read = build(self._words, *args, **kwargs)
        with self._lock:
            reply = self._line.ask(request)
        return read(reply)

    return verb


def _queued(
    build: Callable[Concatenate[ClientWords, P], Call[T]],
) -> Callable[Concatenate[Pipeline, P], Pending[T]]:
    """The verb of a call: sent with others."""

    @functools.wraps(build)
    def verb(self: Pipeline, /, *args: P.args, **kwargs: P.kwargs) -> Pending[T]:
        return self._add(build(self._words, *args, **kwargs))

    return verb


class FjClient:
    """A journal on a server. The verbs are those of an embedded journal. Made by `connect`."""

    def __init__(self, line: Asking, clock: Clock | None = None) -> None:
        self._line = line
        self._clock = clock or SystemClock()
        self._words = ClientWords(self._clock, self)
        self._lock = threading.RLock()

    # --- jobs

    put = _now(ClientWords.put)
    put_batch = _now(ClientWords.put_batch)
    next_batch = _now(ClientWords.next_batch)
    done = _now(ClientWords.done)
    fail = _now(ClientWords.fail)
    extend = _now(ClientWords.extend)

    def next(
        self,
        domain: str = "",
        *,
        lease: Duration | None = None,
        wait: Duration | None = None,
        delete: bool = False,
    ) -> Job | Nothing:
        """The next job of a domain, or of any; `wait` so long for one. With `delete` it is gone at once."""
        if wait is None:
            return self._run(self._words.next(domain, lease=lease, delete=delete))
        with self._lock:
            return self._talk(self._words.wait_for_job(domain, wait, lease=lease, delete=delete))

    def done_batch(self, jobs: Iterable[Job]) -> builtins.list[Job]:
        """Many jobs are done; those whose lease was lost."""
        return [job for call in self._words.done_batch(jobs) for job in self._run(call)]

    # --- values

    set = _now(ClientWords.set)
    get = _now(ClientWords.get)
    probe = _now(ClientWords.probe)
    delete = _now(ClientWords.delete)
    add = _now(ClientWords.add)
    flip = _now(ClientWords.flip)
    resize = _now(ClientWords.resize)
    lock = _now(ClientWords.lock)
    unlock = _now(ClientWords.unlock)
    rename = _now(ClientWords.rename)
    link = _now(ClientWords.link)
    listen = _now(ClientWords.listen)

    def range(self, low: Key = "", high: Key | None = None, count: int = 0) -> Iterator[Value]:
        """The values from one key to another, both included, as they are asked for."""
        return self._values(self._words.range(low, high, count))

    def match(self, regex: Key, count: int = 0) -> Iterator[Value]:
        """The values whose key matches the regular expression (RE2) anywhere."""
        return self._values(self._words.match(regex, count))

    def pushes(self, wait: Duration | None = None) -> Iterator[Push]:
        """Keys that change, of those listened to; ends when none has for `wait`, and never without it."""
        seconds = _LONG_S if wait is None else microseconds(wait) / 1e6
        while True:
            with self._lock:
                if not self._line.pushes:
                    self._wait_for(None, self._clock.now_us() + round(seconds * 1e6))
                taken = [Push(text(key), kind) for key, kind in self._line.pushes.items()]
                self._line.pushes.clear()
            yield from taken
            if not taken and wait is not None:
                return

    def pipeline(self) -> Pipeline:
        """Calls that are sent together when the block ends; each answers a Pending."""
        return Pipeline(self)

    def close(self) -> None:
        self._line.close()

    def __enter__(self) -> FjClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # --- inside

    def _run(self, call: Call[T]) -> T:
        request, read = call
        with self._lock:
            reply = self._line.ask(request)
        return read(reply)

    def _run_all(self, calls: builtins.list[Call[Any]], answers: dict[int, Reply]) -> None:
        with self._lock:
            self._line.ask_many([call.request for call in calls], answers)

    def _talk(self, talk: Generator[Call[Any] | Pause, Any, T]) -> T:
        answer: Any = None
        try:
            while True:
                step = talk.send(answer)
                if isinstance(step, Pause):
                    self._wait_for(step.key, step.until_us)
                    answer = None
                else:
                    answer = self._run(step)
        except StopIteration as end:
            result: T = end.value
            return result

    def _wait_for(self, key: bytes | None, until_us: int) -> None:
        """Until a push about the key, or about any, has come, or the time has."""
        pushes = self._line.pushes
        while (left_us := until_us - self._clock.now_us()) > 0:
            if pushes if key is None else key in pushes:
                break
            self._line.wait(left_us / 1e6)
        if key is not None:
            pushes.pop(key, None)

    def _values(self, call: Call[Page] | None) -> Iterator[Value]:
        while call is not None:
            page = self._run(call)
            yield from page.values
            call = page.following


class Pending(Generic[T]):
    """The answer of a call in a pipeline, once the pipeline was sent."""

    def __init__(self, call: Call[T]) -> None:
        self._call = call
        self._reply: Reply | None = None

    def result(self) -> T:
        """What the verb answers, or raises."""
        if self._reply is None:
            raise Refused("the pipeline was not sent yet, or broke before this call was answered")
        return self._call.read(self._reply)


class Pipeline:
    """Calls that are sent together, in order. Errors come from `result`, each from its own."""

    def __init__(self, client: FjClient) -> None:
        self._client = client
        self._words = client._words
        self._queue: builtins.list[Pending[Any]] = []
        self._sent: builtins.list[Pending[Any]] = []

    put = _queued(ClientWords.put)
    put_batch = _queued(ClientWords.put_batch)
    next = _queued(ClientWords.next)
    next_batch = _queued(ClientWords.next_batch)
    done = _queued(ClientWords.done)
    fail = _queued(ClientWords.fail)
    extend = _queued(ClientWords.extend)
    set = _queued(ClientWords.set)
    get = _queued(ClientWords.get)
    probe = _queued(ClientWords.probe)
    delete = _queued(ClientWords.delete)
    add = _queued(ClientWords.add)
    flip = _queued(ClientWords.flip)
    resize = _queued(ClientWords.resize)
    lock = _queued(ClientWords.lock)
    unlock = _queued(ClientWords.unlock)
    rename = _queued(ClientWords.rename)
    link = _queued(ClientWords.link)
    listen = _queued(ClientWords.listen)

    def send(self) -> None:
        """Send what is queued up, and wait for all the replies."""
        queue, self._queue = self._queue, []
        self._sent += queue
        answers: dict[int, Reply] = {}
        try:
            self._client._run_all([pending._call for pending in queue], answers)
        finally:
            for number, reply in answers.items():
                queue[number]._reply = reply

    def results(self) -> builtins.list[Any]:
        """The results of all calls so far, in order; the first error is raised."""
        return [pending.result() for pending in self._sent]

    def _add(self, call: Call[T]) -> Pending[T]:
        pending = Pending(call)
        self._queue.append(pending)
        return pending

    def __len__(self) -> int:
        return len(self._queue)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.send()
