"""The same queue of jobs on three servers, through their blocking Python clients.

`put` and `take` wait for each answer; `put_many` and `take_many` send up to a thousand requests, or one for
a thousand jobs, before they read the answers. To take a job is to lease it, and then to say that it is done.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Any, Protocol

import greenstalk
import redis

from bench.journal.data import DOMAIN, LEASE_S, PRIORITY
from bench.servers import HOST
from headrace.client.fj import connect


class Queue(Protocol):
    def put(self, resource: str) -> None: ...

    def take(self) -> None: ...

    def put_many(self, resources: Sequence[str]) -> None: ...

    def take_many(self, count: int) -> None: ...

    def close(self) -> None: ...


class HeadraceQueue:
    def __init__(self, port: int) -> None:
        self._client = connect(HOST, port)

    def put(self, resource: str) -> None:
        self._client.put(resource)

    def take(self) -> None:
        job = self._client.next(DOMAIN, lease=LEASE_S)
        assert job
        job.done()

    def put_many(self, resources: Sequence[str]) -> None:
        self._client.put_batch(resources)

    def take_many(self, count: int) -> None:
        jobs = self._client.next_batch(count, DOMAIN, lease=LEASE_S)
        assert len(jobs) == count
        self._client.done_batch(jobs)

    def close(self) -> None:
        self._client.close()


class BeanstalkQueue:
    """greenstalk for one request at a time; it has no pipelining, so that is done here, by hand."""

    def __init__(self, port: int) -> None:
        self._client = greenstalk.Client((HOST, port))
        self._socket = socket.create_connection((HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb")

    def put(self, resource: str) -> None:
        self._client.put(resource, priority=PRIORITY, ttr=LEASE_S)

    def take(self) -> None:
        self._client.delete(self._client.reserve(timeout=0))

    def put_many(self, resources: Sequence[str]) -> None:
        bodies = [resource.encode() for resource in resources]
        put = b"put %d 0 %d %d\r\n%b\r\n"
        self._socket.sendall(b"".join(put % (PRIORITY, LEASE_S, len(body), body) for body in bodies))
        for _ in bodies:
            assert self._answers.readline().startswith(b"INSERTED")

    def take_many(self, count: int) -> None:
        self._socket.sendall(b"reserve-with-timeout 0\r\n" * count)
        ids = []
        for _ in range(count):
            word, number, size = self._answers.readline().split()
            assert word == b"RESERVED"
            self._answers.read(int(size) + 2)
            ids.append(number)
        self._socket.sendall(b"".join(b"delete %b\r\n" % number for number in ids))
        for _ in ids:
            assert self._answers.readline() == b"DELETED\r\n"

    def close(self) -> None:
        self._client.close()
        self._answers.close()
        self._socket.close()


_TAKE = """
local found = redis.call('zrangebyscore', KEYS[1], '-inf', ARGV[1], 'limit', 0, ARGV[3])
for _, name in ipairs(found) do
    redis.call('zrem', KEYS[1], name)
    redis.call('zadd', KEYS[2], ARGV[2], name)
end
return found
"""


class RedisQueue:
    """A sorted set of what is ready, by time, another of what is leased, and a hash of what is known of it.

    Each step is one round trip: two commands in a transaction, or a script. Priorities are left out.
    """

    def __init__(self, port: int) -> None:
        self._client: Any = redis.Redis(HOST, port, decode_responses=True)
        self._next = self._client.register_script(_TAKE)

    def put(self, resource: str) -> None:
        pipeline = self._client.pipeline()
        pipeline.hset("jobs", resource, PRIORITY)
        pipeline.zadd("ready", {resource: time.time()})
        pipeline.execute()

    def take(self) -> None:
        self._done(self._lease(1))

    def put_many(self, resources: Sequence[str]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for resource in resources:
            pipeline.hset("jobs", resource, PRIORITY)
            pipeline.zadd("ready", {resource: time.time()})
        pipeline.execute()

    def take_many(self, count: int) -> None:
        found = self._lease(count)
        assert len(found) == count
        self._done(found)

    def close(self) -> None:
        self._client.close()

    def _lease(self, count: int) -> list[str]:
        now = time.time()
        found: list[str] = self._next(keys=["ready", "leased"], args=[now, now + LEASE_S, count])
        assert found
        return found

    def _done(self, names: list[str]) -> None:
        pipeline = self._client.pipeline()
        pipeline.zrem("leased", *names)
        pipeline.hdel("jobs", *names)
        pipeline.execute()
