"""The FJ protocol, version 1, kept for ever: messages become these bytes, and these bytes messages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.wire.fj import (
    BUSY,
    CURSOR,
    DATA,
    LISTEN,
    OVERWRITE,
    PERSIST,
    RANGE,
    REGEX,
    UPDATE_TIMEOUT,
    WORKED_ON,
    Function,
    Pair,
    Reply,
    Request,
    encode_reply,
    encode_request,
)
from headrace.wire.fj_replies import ReplyParser
from headrace.wire.fj_requests import RequestParser

T, LATER = 1_700_000_000_000_000, 1_700_000_060_000_000
SEVEN, MINUS_ONE = b"\7" + bytes(7), b"\xff" * 8

REQUESTS = {
    "nop": Request(Function.NOP, 1),
    "quit": Request(Function.QUIT, 65535, 0, T),
    "set": Request(Function.SET, 2, OVERWRITE | PERSIST, T, key=b"k", type=2, value=b"v"),
    "set with expiry": Request(Function.SET, 3, LISTEN, T, LATER, key=b"key", type=3, value=SEVEN),
    "set void": Request(Function.SET, 4, OVERWRITE | PERSIST, T, key=b"k", type=0, value=b""),
    "put": Request(
        Function.SET, 5, PERSIST | RANGE, T, None, 0, b"example:10:0", b"https://example/abc", 1, b"pq"
    ),
    "give back": Request(Function.SET, 6, PERSIST | RANGE | WORKED_ON, T, LATER, 0, b"::", b"r"),
    "extend": Request(
        Function.SET,
        7,
        PERSIST | RANGE | WORKED_ON | UPDATE_TIMEOUT,
        T,
        LATER,
        0,
        b"::1700000120000000",
        b"r",
    ),
    "get": Request(Function.GET, 8, DATA, T, key=b"k"),
    "get range": Request(Function.GET, 9, DATA | RANGE, T, None, 100, b"a", b"z"),
    "get regex": Request(Function.GET, 10, DATA | REGEX, T, key=b"^a"),
    "get cursor": Request(Function.GET, 11, DATA | CURSOR, T, key=b"c1"),
    "get leased": Request(Function.GET, 12, DATA | WORKED_ON, T, LATER, key=b"k"),
    "get touched": Request(Function.GET, 13, DATA | UPDATE_TIMEOUT, T, LATER, key=b"k"),
    "delete": Request(Function.DELETE, 14, OVERWRITE, T, key=b"k"),
    "done": Request(Function.DELETE, 15, PERSIST, T, LATER, key=b"r"),
    "add": Request(Function.ADD, 16, PERSIST, T, key=b"n", type=3, value=MINUS_ONE),
    "not": Request(Function.NOT, 17, PERSIST, T, key=b"b"),
    "truncate": Request(Function.TRUNCATE, 18, PERSIST, T, key=b"k", type=3, value=b"\2"),
    "lock": Request(Function.LOCK, 19, 0, T, LATER, key=b"k"),
    "unlock": Request(Function.UNLOCK, 20, 0, T, key=b"k"),
    "rename": Request(Function.RENAME, 21, PERSIST | RANGE, T, None, 0, b"old", b"new"),
    "next": Request(Function.NEXT, 22, DATA | LISTEN, T, LATER, key=b"example"),
    "next many": Request(Function.NEXT, 23, DATA | OVERWRITE | RANGE, T, None, 1000, b"", b""),
    "link": Request(Function.LINK, 24, PERSIST | RANGE, T, None, 0, b"k", b"other"),
    "unknown": Request(777, 25, 0, T, key=b"k", type=1, value=b"*"),
}

REPLIES = {
    "done": Reply(2, 0, T),
    "does not exist": Reply(8, 0, T, error=b"does not exist"),
    "value": Reply(8, BUSY, T, LATER, b"", [Pair(b"k", 2, b"v")]),
    "types": Reply(9, 0, T, None, b"", [Pair(b"a", 3, b""), Pair(b"b", 5, b"")]),
    "page": Reply(9, 0, T, None, b"", [Pair(b"a", 1, b"\1\2"), Pair(b"b", 0, b"")], b"c1"),
    "empty page": Reply(9, 0, T, None, b"", []),
    "job": Reply(22, 0, T, LATER, b"", [Pair(b"r", 1, b"pq")]),
    "nothing to work on": Reply(22, 0, T, LATER, b"nothing to work on"),
    "push": Reply(0, 0, T, None, b"", [Pair(b"k", 2, b"")]),
    "refused": Reply(16, 0, T, error=b"wrong_type: x"),
}


def golden() -> dict[str, bytes]:
    """The messages of the file by name, `request set` or `reply done`."""
    found: dict[str, bytes] = {}
    name = ""
    for line in (Path(__file__).parent / "fj_v1.txt").read_text().splitlines():
        if line.startswith(("request ", "reply ")):
            name = line
            found[name] = b""
        elif line and not line.startswith("#"):
            found[name] += bytes.fromhex(line)
    return found


GOLDEN = golden()
PAGE = (Path(__file__).parents[2] / "docs" / "protocols" / "fj.md").read_text()
BYTES = re.compile(r"((?:[0-9a-f]{2} {1,8})*[0-9a-f]{2})(?=\s|$)")


def test_every_message_of_the_file_is_checked_and_every_function_is_in_it() -> None:
    assert set(GOLDEN) == {f"request {name}" for name in REQUESTS} | {f"reply {name}" for name in REPLIES}
    assert {*Function} <= {request.function for request in REQUESTS.values()}


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_these_bytes_for_ever(name: str) -> None:
    assert encode_request(REQUESTS[name]).hex(" ") == GOLDEN[f"request {name}"].hex(" ")
    assert RequestParser().feed(GOLDEN[f"request {name}"]) == [REQUESTS[name]]


@pytest.mark.parametrize("name", REPLIES)
def test_replies_are_these_bytes_for_ever(name: str) -> None:
    assert encode_reply(REPLIES[name]).hex(" ") == GOLDEN[f"reply {name}"].hex(" ")
    assert ReplyParser().feed(GOLDEN[f"reply {name}"]) == [REPLIES[name]]


@pytest.mark.parametrize(("size", "flags"), [(254, 0x0002), (255, 0x0004), (65534, 0x0004), (65535, 0x0006)])
def test_sizes_of_values_are_as_narrow_as_they_can_be(size: int, flags: int) -> None:
    """The size counts the byte of the type: a value of 255 bytes needs sixteen bits."""
    raw = encode_request(Request(Function.SET, 1, key=b"k", type=1, value=bytes(size)))
    width = {2: 1, 4: 2, 6: 4}[flags]
    assert raw[8:10] == flags.to_bytes(2, "big")
    assert raw[20 : 20 + width] == (size + 1).to_bytes(width, "big")
    assert len(raw) == 20 + width + 1 + size


def test_keys_are_wide_only_if_one_of_them_is() -> None:
    raw = encode_request(Request(Function.RENAME, 1, RANGE, 0, None, 0, b"k", b"l" * 256))
    assert raw.hex(" ").startswith("46 4a 00 01 00 0a 00 01 00 81" + " 00" * 10 + " 00 01 6b 01 00 6c")
    raw = encode_reply(Reply(1, 0, 0, None, b"", [Pair(b"k"), Pair(b"l" * 256)]))
    assert raw.hex(" ").startswith("4a 52 00 01 00 01 20 01" + " 00" * 8 + " 00 02 00 00 00 01 6b 01 00 6c")


def test_either_of_the_two_bits_means_persist() -> None:
    for bit in (9, 12):
        raw = bytearray(GOLDEN["request get"])
        raw[8:10] = (1 << bit).to_bytes(2, "big")
        (request,) = RequestParser().feed(bytes(raw))
        assert request.flags & PERSIST


# --- the page


def examples() -> list[bytes]:
    """The messages in the page's blocks: lines that begin with bytes; one ends where another begins."""
    found: list[bytes] = []
    for block in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            match = BYTES.match(line)
            if match is None:
                continue
            if line.startswith(("46 4a", "4a 52")):
                found.append(b"")
            found[-1] += bytes.fromhex(match[1])
    return found


def test_every_example_is_a_golden_message() -> None:
    assert len(examples()) == 7
    for example in examples():
        assert example in GOLDEN.values(), example.hex(" ")


def test_every_function_is_in_the_table() -> None:
    for function in Function:
        assert re.search(rf"^\| {function.value} \| {function.name}\b", PAGE, re.MULTILINE), function
