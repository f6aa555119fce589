"""A journal as the functions of FJ see it: requests in, replies or errors out, without a line between."""

from __future__ import annotations

from headrace.journal import Journal
from headrace.kernel.errors import HeadraceError
from headrace.server.fj_functions import Functions
from headrace.wire.fj import Function, Reply, Request

VALUE_BYTES = 1 << 20


class Asking:
    """A peer of a journal."""

    def __init__(self, journal: Journal) -> None:
        self.functions = Functions(journal.engine, VALUE_BYTES)
        self.listens_to: list[bytes] = []
        self._journal = journal

    def __call__(self, function: Function, key: bytes = b"", flags: int = 0, **fields: object) -> Reply:
        """The reply to a request whose timestamp is now, if none is given; its error is raised."""
        engine = self._journal.engine
        stamp = fields.pop("timestamp", None)
        now = engine.clock.now_us() if stamp is None else stamp
        request = Request(function, 1, flags, now, key=key, **fields)  # type: ignore[arg-type]
        result, ticket = engine.start(*self.functions.operation(request, self))
        engine.settle(ticket)
        if isinstance(result, HeadraceError):
            raise result
        return result

    def may_listen(self, key: bytes) -> None: ...

    def listen(self, key: bytes) -> None:
        self.listens_to.append(key)

    def wait_for_job(self, domain: bytes) -> None: ...

    def holds(self, key: bytes, *, locked: bool) -> None: ...
