"""A conversation: which reply belongs to which request, and what the server says unasked.

Identifiers are 1 to 65535, each used again only after its reply has come. A reply with identifier 0 is a
push, or, if it has an error, the server's last word.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from headrace.client.answers import failure
from headrace.client.errors import ConnectionLost
from headrace.kernel.errors import HeadraceError
from headrace.wire.errors import ProtocolError
from headrace.wire.fj import Limits, Reply, Request, encode_request
from headrace.wire.fj_replies import ReplyParser

IN_FLIGHT_MAX = 1000
_IDENTIFIERS = 65535
Token = TypeVar("Token")


class Conversation(Generic[Token]):
    """Each request is asked with a token, which comes back with its reply."""

    def __init__(self, limits: Limits | None = None, in_flight_max: int = IN_FLIGHT_MAX) -> None:
        self._parser = ReplyParser(limits or Limits())
        self._waiting: dict[int, Token] = {}
        self._identifier = 0
        self.in_flight_max = min(in_flight_max, _IDENTIFIERS)
        self.pushes: dict[bytes, int] = {}
        """Keys that changed, with their types, in order; each once, however often it has changed."""
        self.failed: HeadraceError | None = None
        """Set when the server's bytes make no sense any more, or it said that ours do not."""
        self.told = False
        """Whether it was the server that said so."""

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def ask(self, request: Request, token: Token) -> bytes:
        """The bytes to send."""
        waiting, identifier = self._waiting, self._identifier % _IDENTIFIERS + 1
        while identifier in waiting:
            identifier = identifier % _IDENTIFIERS + 1
        data = encode_request(request, identifier)  # first: it may refuse
        self._identifier = identifier
        waiting[identifier] = token
        return data

    def hear(self, data: bytes) -> list[tuple[Token, Reply]]:
        """What arrived, as replies with their tokens; pushes are put aside."""
        answered = []
        try:
            replies = self._parser.feed(data)
            self.failed = self._parser.failed
        except ProtocolError as error:
            self.failed = error
            return []
        for reply in replies:
            identifier = reply[0]
            if not identifier:
                self._pushed(reply)
                continue
            token = self._waiting.pop(identifier, None)
            if token is None:
                self.failed = ProtocolError(f"the server answers {identifier}, which nobody asked")
                break
            answered.append((token, reply))
        return answered

    def _pushed(self, reply: Reply) -> None:
        if reply.error:
            self.failed, self.told = failure(reply.error), True
        for key, kind, _ in reply.pairs or ():
            self.pushes[key] = kind or 0

    def abandon(self) -> list[Token]:
        """The connection is gone: those who wait for nothing now."""
        tokens = list(self._waiting.values())
        self._waiting.clear()
        return tokens


def lost(where: str, why: object = "") -> ConnectionLost:
    reason = f" ({why})" if str(why) else ""
    return ConnectionLost(
        f"the connection to {where} has ended{reason}: what was not answered may have been done or not; "
        "connect again"
    )
