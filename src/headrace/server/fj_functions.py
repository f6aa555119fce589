"""What each function of FJ does to a journal. docs/protocols/fj.md tells the meaning of every flag.

Each becomes an operation on the journal's engine that answers a Reply; nothing here waits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from headrace.journal import checks
from headrace.journal.checks import RESERVED
from headrace.journal.engine import BRIEF, Engine
from headrace.journal.errors import BadRequest, NoSuchKey
from headrace.journal.events import EVENT_BYTES
from headrace.journal.rows import ValueRow
from headrace.journal.scan import PAGE, Cursor, check_pattern, decode_cursor, read_page
from headrace.journal.value import Type, decode
from headrace.journal.value_operations import NewValue, is_locked
from headrace.journal.value_verbs import LOCK_US
from headrace.server.fj_fields import (
    REPLY_BYTES,
    check_cursor,
    check_key,
    check_type,
    moment,
    refusal,
    second_key,
)
from headrace.server.fj_job_functions import JobFunctions, lost
from headrace.wire.fj import (
    BUSY,
    CURSOR,
    DATA,
    HAS_TIMEOUT,
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

_NEXT = int(Function.NEXT)
_READING = frozenset((Function.NOP, Function.GET))


class Peer(Protocol):
    """The connection that asks."""

    def may_listen(self, key: bytes) -> None:
        """BadRequest, if it listens to as many keys as it may."""

    def listen(self, key: bytes) -> None: ...

    def wait_for_job(self, domain: bytes) -> None: ...

    def holds(self, key: bytes, *, locked: bool) -> None: ...


Operation = Callable[[int], Reply]


class Functions:
    def __init__(self, engine: Engine, value_bytes: int) -> None:
        """`value_bytes`: the largest value that goes over the wire."""
        self.produced = 0
        """Bytes of values in replies, or made by them."""
        self._value_bytes = value_bytes
        self._engine = engine
        self._jobs = JobFunctions(engine)
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
            Function.NEXT: self._jobs.next,
            Function.LINK: self._link,
        }

    def begin(self) -> None:
        """Of another portion of requests."""
        self.produced = self._jobs.produced = 0

    def enough(self) -> bool:
        """Whether the replies of this portion are as large as they should be together."""
        return self.produced + self._jobs.produced > REPLY_BYTES

    def moved(self) -> bool:
        """Whether some job may be due that was not when this was asked last: those who wait for one look."""
        moved, self._jobs.moved = self._jobs.moved, False
        return moved

    def operation(self, request: Request, peer: Peer) -> tuple[Operation, int]:
        """What to run for a request, and how many bytes of keys and values it may bring; 0 if it reads."""
        number, _, flags, _, _, _, key, upper, _, value = request
        function = self._by_number.get(number)
        if function is None:
            return lambda now: refusal(request, BadRequest(f"there is no function {number}"), now), 0
        if number in _READING and not flags & (HAS_TIMEOUT | UPDATE_TIMEOUT):
            return partial(function, request, peer), 0
        size = len(key) + (len(upper) if upper else 0) + (len(value) if value else 0) + BRIEF
        return partial(function, request, peer), size

    # --- values

    def _set(self, request: Request, peer: Peer, now: int) -> Reply:
        flags = request.flags
        if flags & QUERY == RANGE:
            return self._jobs.put(request, now)
        if request.type is None or request.value is None:
            raise BadRequest("SET needs a value")
        if flags & LISTEN:
            peer.may_listen(request.key)  # or it would be refused when it is done
        check_key(request.key)
        check_type(request.type)
        checks.size(request.value, self._engine.value_bytes)
        stamp = moment(request.timestamp) or now
        expires = moment(request.timeout)
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
            check_key(key)
            peer.listen(key)
        found = None if key.startswith(RESERVED) else values.get(now, key)
        if found is None:
            return self._jobs.get(request, now)
        row, value = found
        if flags & WORKED_ON and row.lease > now:
            raise NoSuchKey("it is worked on")
        if request.timeout is not None or flags & UPDATE_TIMEOUT:
            self._keep(request, now, {row: key})
        busy = BUSY if _busy(row, now) else 0
        pair = Pair(key, row.type, value if flags & DATA else b"")
        self.produced += len(value)
        return Reply(request.identifier, busy, row.stamp, row.expires, b"", [pair])

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
        check_cursor(page.cursor)
        with_data, skip = request.flags & DATA, request.flags & WORKED_ON
        rows = [(key, row) for key, row in page.rows if not (skip and row.lease > now)]
        pairs = [Pair(key, row.type, self._engine.read(row) if with_data else b"") for key, row in rows]
        if request.timeout is not None or request.flags & UPDATE_TIMEOUT:
            self._keep(request, now, {row: key for key, row in rows})
        self.produced += sum(len(pair.key) + len(pair.value or b"") for pair in pairs)
        return Reply(request.identifier, 0, now, None, b"", pairs, page.cursor)

    def _keep(self, request: Request, now: int, keys: dict[ValueRow, bytes]) -> None:
        """Lease values that were read, or move their expiry: each once, whichever of its keys were read."""
        values, timeout = self._engine.values, moment(request.timeout)
        size = sum(len(key) + EVENT_BYTES for key in keys.values())
        self._engine.check_size(size)
        self._engine.admit(size)
        for key in keys.values():
            if request.flags & UPDATE_TIMEOUT:
                values.touch(now, key, timeout)
            elif timeout is not None:
                values.work_on(now, key, timeout)

    def _delete(self, request: Request, peer: Peer, now: int) -> Reply:
        key, values, stamp = request.key, self._engine.values, moment(request.timestamp) or now
        if not key and request.value is not None:
            return self._jobs.done_many(request, now)
        reply = Reply(request.identifier, 0, now)
        if request.timeout is None and not key.startswith(RESERVED) and values.find(now, key) is not None:
            values.delete(now, key, stamp, erase=request.flags & OVERWRITE != 0, owner=peer)
            return reply
        table, jobs = self._engine.state.jobs, self._engine.jobs
        jobs.tick(now)
        row = table.worked_on.get(key)
        if row is not None:
            jobs.done(now, row.id, request.timeout)
            self._jobs.moved = True
        elif request.timeout is not None:
            raise lost(key)
        elif (pending := table.pending.get(key)) is not None:
            if stamp >= pending.stamp:
                jobs.drop(now, key)
        else:
            check_key(key)
            values.delete(now, key, stamp, erase=request.flags & OVERWRITE != 0, owner=peer)
        return reply

    def _add(self, request: Request, peer: Peer, now: int) -> Reply:
        if request.type is None or request.value is None:
            raise BadRequest("ADD needs a number")
        check_key(request.key)
        number, stamp = (request.type, request.value), _stamp(request)
        return self._changed(request, now, self._engine.values.add(now, request.key, number, peer, stamp))

    def _not(self, request: Request, peer: Peer, now: int) -> Reply:
        check_key(request.key)
        return self._changed(request, now, self._engine.values.flip(now, request.key, peer, _stamp(request)))

    def _truncate(self, request: Request, peer: Peer, now: int) -> Reply:
        size = decode(request.type or 0, request.value or b"")
        if request.type != Type.INTEGER or not isinstance(size, int):
            raise BadRequest("TRUNCATE needs the new size, an integer")
        check_key(request.key)
        if size > self._value_bytes:
            raise BadRequest(f"a value has up to {self._value_bytes} bytes here, not {size}")
        self._engine.admit(max(size, 0))
        self.produced += max(size, 0)
        self._engine.values.resize(now, request.key, size, peer, _stamp(request))
        return Reply(request.identifier, 0, now)

    def _lock(self, request: Request, peer: Peer, now: int) -> Reply:
        check_key(request.key)
        until = moment(request.timeout) or now + LOCK_US
        self._engine.values.lock(now, request.key, peer, until)
        peer.holds(request.key, locked=True)
        return Reply(request.identifier, 0, now)

    def _unlock(self, request: Request, peer: Peer, now: int) -> Reply:
        check_key(request.key)
        self._engine.values.unlock(now, request.key, peer)
        peer.holds(request.key, locked=False)
        return Reply(request.identifier, 0, now)

    def _rename(self, request: Request, peer: Peer, now: int) -> Reply:
        check_key(request.key)
        values, key, other = self._engine.values, request.key, second_key(request)
        self._engine.admit(values.size_of(key))
        values.rename(now, key, other, peer, _stamp(request))
        row = values.find(now, other)
        if row is not None and row.lock_owner is peer:  # the lock moves along, and ends with its connection
            peer.holds(key, locked=False)
            peer.holds(other, locked=True)
        return Reply(request.identifier, 0, now)

    def _link(self, request: Request, peer: Peer, now: int) -> Reply:
        check_key(request.key)
        self._engine.values.link(now, request.key, second_key(request), peer)
        return Reply(request.identifier, 0, now)

    # --- inside

    def _changed(self, request: Request, now: int, new: tuple[int, bytes]) -> Reply:
        self.produced += len(new[1])
        return Reply(request.identifier, 0, now, None, b"", [Pair(request.key, *new)])


def _stamp(request: Request) -> int | None:
    """When the client says that it asked; None if it does not."""
    return moment(request.timestamp) or None


def _busy(row: ValueRow, now: int) -> bool:
    return row.lease > now or is_locked(row, now)


def waits_for_disk(request: Request) -> bool:
    """Whether its reply says that what it did is on the disk.

    That a job is taken is written down before the reply, and synced with what comes next: after a power cut
    it may be given out again. Who needs more asks for it with the bit *persist*.
    """
    return request.function != _NEXT or request.flags & PERSIST != 0
