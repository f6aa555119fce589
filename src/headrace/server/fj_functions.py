"""What each function of FJ does to a journal. docs/protocols/fj.md tells the meaning of every flag.

Each becomes an operation on the journal's engine that answers a Reply; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.journal import checks
from headrace.journal.checks import RESERVED, TIME_MAX_US
from headrace.journal.engine import Engine
from headrace.journal.errors import BadRequest, LeaseLost, NoSuchKey
from headrace.journal.job_operations import NewJob, Wanted, domain_of
from headrace.journal.rows import ValueRow
from headrace.journal.scan import PAGE, Cursor, check_pattern, decode_cursor, read_page
from headrace.journal.value import Type, decode
from headrace.journal.value_operations import NewValue, is_locked
from headrace.journal.value_verbs import LOCK_US
from headrace.kernel.errors import HeadraceError
from headrace.wire.fj import (
    BUSY,
    CURSOR,
    DATA,
    LISTEN,
    OVERWRITE,
    PERSIST,
    QUERY,
    RANGE,
    REGEX,
    UPDATE_TIMEOUT,
    WORKED_ON,
    Function,
    Pair,
    Reply,
    Request,
)
from headrace.wire.fj_many import unpack_jobs, unpack_keys

REPLY_BYTES = 4 << 20
"""About how much one reply carries before it says that there is more."""


class Peer(Protocol):
    """The connection that asks."""

    def listen(self, key: bytes) -> None: ...

    def wait_for_job(self, domain: bytes) -> None: ...

    def holds(self, key: bytes, *, locked: bool) -> None: ...


Operation = Callable[[int], Reply]


class Functions:
    def __init__(self, engine: Engine) -> None:
        self.produced = 0
        """Bytes of values in replies."""
        self._engine = engine
        self._by_number: dict[int, Callable[[Request, Peer, int], Reply]] = {
            Function.NOP: lambda request, peer, now: Reply(request.identifier, 0, now),
            Function.SET: self._set,
            Function.GET: self._get,
            Function.DELETE: self._delete,
            Function.ADD: self._add,
            Function.NOT: self._not,
            Function.TRUNCATE: self._truncate,
            Function.LOCK: self._lock,
            Function.UNLOCK: self._unlock,
            Function.RENAME: self._rename,
            Function.NEXT: self._next,
            Function.LINK: self._link,
        }

    def enough(self) -> bool:
        """Whether the replies since `produced` was 0 are as large as one portion should be."""
        return self.produced > REPLY_BYTES

    def operation(self, request: Request, peer: Peer) -> tuple[Operation, int]:
        """What to run for a request, and how many bytes of keys and values it may bring."""
        function = self._by_number.get(request.function)
        size = len(request.key) + len(request.upper or b"") + len(request.value or b"")
        if function is None:
            number = request.function
            return lambda now: refusal(request, BadRequest(f"there is no function {number}"), now), 0
        return lambda now: function(request, peer, now), size

    # --- values

    def _set(self, request: Request, peer: Peer, now: int) -> Reply:
        flags = request.flags
        if flags & QUERY == RANGE:
            return self._job(request, now)
        if request.type is None or request.value is None:
            raise BadRequest("SET needs a value")
        _check_key(request.key)
        checks.size(request.value, self._engine.settings.value_bytes)
        stamp = _time(request.timestamp) or now
        expires = _time(request.timeout)
        new = NewValue(
            request.key,
            request.type,
            request.value,
            stamp,
            expires,
            None if expires is None else max(0, expires - stamp),
            flags & PERSIST != 0,
            flags & OVERWRITE != 0,
        )
        self._engine.values.set(now, new, peer)
        if flags & LISTEN:
            peer.listen(request.key)
        return Reply(request.identifier, 0, now)

    def _get(self, request: Request, peer: Peer, now: int) -> Reply:
        query = request.flags & QUERY
        if query:
            return self._get_many(request, now, query)
        flags, key, values = request.flags, request.key, self._engine.values
        if flags & LISTEN:
            peer.listen(key)
        found = values.get(now, key)
        if found is None:
            return self._get_job(request, now)
        row, value = found
        if flags & WORKED_ON and row.lease > now:
            raise NoSuchKey("it is worked on")
        timeout = _time(request.timeout)
        if flags & UPDATE_TIMEOUT:
            values.touch(now, key, timeout)
        elif timeout is not None:
            values.work_on(now, key, timeout)
        busy = BUSY if _busy(row, now) else 0
        pair = Pair(key, row.type, value if flags & DATA else b"")
        self.produced += len(value)
        return Reply(request.identifier, busy, row.stamp, row.expires, b"", [pair])

    def _get_job(self, request: Request, now: int) -> Reply:
        jobs = self._engine.state.jobs
        row = jobs.pending.get(request.key) or jobs.worked_on.get(request.key)
        if row is None:
            raise NoSuchKey("there is neither a value nor a job")
        busy = BUSY if request.key in jobs.worked_on else 0
        if request.timeout is not None:
            raise BadRequest("jobs are leased by NEXT, not by GET")
        if busy and request.flags & WORKED_ON:
            raise NoSuchKey("it is worked on")
        value = self._engine.read(row) if request.flags & DATA else b""
        self.produced += len(value)
        return Reply(request.identifier, busy, row.stamp, None, b"", [Pair(request.key, row.type, value)])

    def _get_many(self, request: Request, now: int, query: int) -> Reply:
        count = PAGE
        if query == RANGE:
            wanted = Cursor(None, request.key, request.upper, None)
            count = request.count or 0
        elif query == REGEX:
            check_pattern(request.key)
            wanted = Cursor(None, b"", None, request.key)
        else:
            assert query == CURSOR
            wanted = decode_cursor(request.key)
        self._engine.values.tick(now)
        page = read_page(self._engine.state.values, wanted, count, REPLY_BYTES)
        with_data, skip = request.flags & DATA, request.flags & WORKED_ON
        pairs = [
            Pair(key, row.type, self._engine.read(row) if with_data else b"")
            for key, row in page.rows
            if not (skip and row.lease > now)
        ]
        self.produced += sum(len(pair.key) + len(pair.value or b"") for pair in pairs)
        return Reply(request.identifier, 0, now, None, b"", pairs, page.cursor)

    def _delete(self, request: Request, peer: Peer, now: int) -> Reply:
        key, values, stamp = request.key, self._engine.values, _time(request.timestamp) or now
        if not key and request.value is not None:
            return self._done_many(request, now)
        reply = Reply(request.identifier, 0, now)
        if request.timeout is None and values.find(now, key) is not None:
            values.delete(now, key, stamp, erase=request.flags & OVERWRITE != 0, owner=peer)
            return reply
        table, jobs = self._engine.state.jobs, self._engine.jobs
        row = table.worked_on.get(key)
        if row is not None:
            jobs.done(now, row.id, request.timeout)
        elif request.timeout is not None:
            raise self._lost(key)
        elif (pending := table.pending.get(key)) is not None:
            if stamp >= pending.stamp:
                jobs.drop(now, key)
        else:
            _check_key(key)
            values.delete(now, key, stamp, erase=request.flags & OVERWRITE != 0, owner=peer)
        return reply

    def _add(self, request: Request, peer: Peer, now: int) -> Reply:
        if request.type is None or request.value is None:
            raise BadRequest("ADD needs a number")
        return self._changed(
            request, now, self._engine.values.add(now, request.key, request.type, request.value, peer)
        )

    def _not(self, request: Request, peer: Peer, now: int) -> Reply:
        return self._changed(request, now, self._engine.values.flip(now, request.key, peer))

    def _truncate(self, request: Request, peer: Peer, now: int) -> Reply:
        size = decode(request.type or 0, request.value or b"")
        if request.type != Type.INTEGER or not isinstance(size, int):
            raise BadRequest("TRUNCATE needs the new size, an integer")
        self._engine.values.resize(now, request.key, size, peer)
        return Reply(request.identifier, 0, now)

    def _lock(self, request: Request, peer: Peer, now: int) -> Reply:
        until = _time(request.timeout) or now + LOCK_US
        self._engine.values.lock(now, request.key, peer, until)
        peer.holds(request.key, locked=True)
        return Reply(request.identifier, 0, now)

    def _unlock(self, request: Request, peer: Peer, now: int) -> Reply:
        self._engine.values.unlock(now, request.key, peer)
        peer.holds(request.key, locked=False)
        return Reply(request.identifier, 0, now)

    def _rename(self, request: Request, peer: Peer, now: int) -> Reply:
        self._engine.values.rename(now, request.key, _upper(request), peer)
        return Reply(request.identifier, 0, now)

    def _link(self, request: Request, peer: Peer, now: int) -> Reply:
        self._engine.values.link(now, request.key, _upper(request), peer)
        return Reply(request.identifier, 0, now)

    # --- jobs

    def _job(self, request: Request, now: int) -> Reply:
        """SET with two keys: `<domain>:<priority>:<due>` and the resource."""
        parts = request.key.rsplit(b":", 2)
        if len(parts) != 3:
            raise BadRequest("a job is set under <domain>:<priority>:<due> and its resource")
        priority, due = _number(parts[1], 255, "priority"), _number(parts[2], TIME_MAX_US, "due time")
        if request.flags & WORKED_ON:
            return self._give_back(request, now, priority, due)
        if priority is None:
            raise BadRequest("a job needs a priority from 0 to 255")
        if not request.upper and request.value:
            several = unpack_jobs(request.value)
        else:
            several = [(_upper(request), request.type or 0, request.value or b"")]
        stamp, expires = _time(request.timestamp) or now, _time(request.timeout)
        common = checks.domain(checks.text(parts[0]))
        persist, put = request.flags & PERSIST != 0, self._engine.jobs.put
        for resource, _kind, value in several:
            _check_key(resource)
            checks.size(value, self._engine.settings.value_bytes)
        for resource, kind, value in several:
            domain = common or checks.domain(domain_of(checks.text(resource)))
            put(now, NewJob(resource, domain, priority, due or now, kind, value, stamp, expires, persist))
        return Reply(request.identifier, 0, now)

    def _done_many(self, request: Request, now: int) -> Reply:
        """DELETE without a key: the jobs of many resources, all under one lease, are done."""
        if request.timeout is None:
            raise BadRequest("the end of the lease is needed, as NEXT told it")
        jobs, worked_on = self._engine.jobs, self._engine.state.jobs.worked_on
        jobs.tick(now)
        lost = []
        for resource in unpack_keys(request.value or b""):
            row = worked_on.get(resource)
            if row is None or row.lease != request.timeout:
                lost.append(Pair(resource))
            else:
                jobs.done(now, row.id, request.timeout)
        return Reply(request.identifier, 0, now, None, b"", lost)

    def _give_back(self, request: Request, now: int, priority: int | None, due: int | None) -> Reply:
        resource = request.upper or b""
        row = self._engine.state.jobs.worked_on.get(resource)
        if request.timeout is None:
            raise BadRequest("the end of the lease is needed, as NEXT told it")
        if row is None:
            raise self._lost(resource)
        if request.flags & UPDATE_TIMEOUT:
            if not due or due <= now:
                raise BadRequest("a lease can only be extended to a time to come")
            self._engine.jobs.extend(now, row.id, request.timeout, due)
        else:
            self._engine.jobs.fail(now, row.id, request.timeout, due, priority)
        return Reply(request.identifier, 0, now)

    def _next(self, request: Request, peer: Peer, now: int) -> Reply:
        engine, flags = self._engine, request.flags
        until = _time(request.timeout) or now + engine.lease_us
        if until <= now:
            raise BadRequest("a lease must end in time to come")
        domain = checks.domain(checks.text(request.key)) or None
        wanted = Wanted(domain, until, flags & OVERWRITE != 0, engine.settings.fair)
        most = (request.count or 0xFFFF) if flags & QUERY == RANGE else 1
        pairs: list[Pair] = []
        size = 0
        while len(pairs) < most and size < REPLY_BYTES and (found := engine.jobs.take(now, wanted)):
            row, value = found
            pairs.append(Pair(row.resource, row.type, value if flags & DATA else b""))
            size += len(row.resource) + len(value)
        self.produced += size
        if pairs:
            return Reply(request.identifier, 0, now, until, b"", pairs)
        if flags & LISTEN:
            peer.wait_for_job(request.key)
        return Reply(request.identifier, 0, now, engine.jobs.next_time(domain), b"nothing to work on")

    # --- inside

    def _changed(self, request: Request, now: int, new: tuple[int, bytes]) -> Reply:
        self.produced += len(new[1])
        return Reply(request.identifier, 0, now, None, b"", [Pair(request.key, *new)])

    def _lost(self, resource: bytes) -> HeadraceError:
        return LeaseLost(f"{resource.decode(errors='replace')!r} is not leased any more")


def refusal(request: Request, error: HeadraceError, now: int) -> Reply:
    """What the client is told of an error; it makes the same exception of it again."""
    text = b"does not exist" if isinstance(error, NoSuchKey) else f"{error.code}: {error}".encode()[:60_000]
    return Reply(request.identifier, 0, now, None, text)


def _busy(row: ValueRow, now: int) -> bool:
    return row.lease > now or is_locked(row, now)


def _upper(request: Request) -> bytes:
    if not request.upper:
        raise BadRequest("a second key is needed (query 1)")
    _check_key(request.upper)
    return request.upper


def _check_key(key: bytes) -> None:
    if not key:
        raise BadRequest("a key is needed")
    if key.startswith(RESERVED):
        raise BadRequest("keys that begin with a zero byte are the journal's own")


def _time(time: int | None) -> int | None:
    if time is not None and time > TIME_MAX_US:
        raise BadRequest(f"times are microseconds since 1970; {time} is beyond all bounds")
    return time


def _number(text: bytes, most: int, what: str) -> int | None:
    """A decimal number; None if it is left out."""
    if not text:
        return None
    if not text.isdigit() or len(text) > 19 or int(text) > most:
        raise BadRequest(f"{text[:40].decode(errors='replace')!r} is no {what}")
    return int(text)
