"""What the two parsers of FJ share: layouts by flags, the bytes that wait, and how to say what is wrong."""

from __future__ import annotations

from struct import Struct
from typing import Any, Generic, NamedTuple, TypeVar

from headrace.wire.errors import ProtocolError
from headrace.wire.fj import Limits

_U8, _U16, _U32 = Struct(">B"), Struct(">H"), Struct(">I")
KEY_SIZE = (_U8, _U16)
VALUE_SIZE = (_U8, _U8, _U16, _U32)
USUAL = Limits()

Message = TypeVar("Message")


class Layout(NamedTuple):
    """How a frame begins, by the bits of its flags that decide it."""

    unpack: Any
    head_bytes: int
    has_timeout: bool
    has_count: bool


def layout_of(head: Struct, timeout: bool, count: bool) -> Layout:
    return Layout(head.unpack_from, head.size, timeout, count)


class Parser(Generic[Message]):
    """Pieces of bytes in, whole messages out; what is not whole yet is kept."""

    def __init__(self, limits: Limits = USUAL) -> None:
        self._limits = limits
        self._rest = bytearray()
        self._need = 0
        self.failed: ProtocolError | None = None

    @property
    def buffered_bytes(self) -> int:
        return len(self._rest)

    def feed(self, data: bytes) -> list[Message]:
        """All messages that are whole now. ProtocolError, or `failed` is set, if the conversation is over."""
        if self.failed is not None:
            raise self.failed
        if self._rest:
            self._rest += data
            if len(self._rest) < self._need:
                return []
            data = bytes(self._rest)
            self._rest = bytearray()
        found: list[Message] = []
        try:
            at = self._parse(data, found)
        except ProtocolError as error:
            self.failed = error
            if not found:
                raise
            return found
        if at < len(data):
            self._rest += memoryview(data)[at:]
        return found

    def _parse(self, data: bytes, found: list[Message]) -> int:
        """Append all whole messages to `found`; answer where the rest starts, with its size in `_need`."""
        raise NotImplementedError


def no_frame(begin: bytes, magic: bytes) -> ProtocolError:
    if begin[:2] == magic[:2] and len(begin) == 4:
        version = int.from_bytes(begin[2:], "big")
        return ProtocolError(
            f"the peer speaks version {version} of FJ, and this is version 1: update one of them"
        )
    return ProtocolError(
        f"a message starts with {magic[:2]!r}, not with {begin[:2]!r}: the peer does not speak FJ"
    )


def too_large(what: str, size: int, most: int) -> ProtocolError:
    return ProtocolError(f"the peer sends a {what} of {size} bytes, and at most {most} are taken")


def wrong_value(size: int, most: int) -> ProtocolError:
    if size == 0:
        return ProtocolError(
            "a value's size counts the byte of its type, so it is never 0; leave the value out instead"
        )
    return too_large("value", size - 1, most)
