"""FJ as bytes: what is encoded comes back, in whatever pieces it arrives, and nothing else does any harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import Refused, TooLarge
from headrace.wire.errors import ProtocolError
from headrace.wire.fj import (
    PERSIST,
    RANGE,
    REQUEST_MAGIC,
    Function,
    Limits,
    Pair,
    Query,
    Reply,
    Request,
    encode_reply,
    encode_request,
)
from headrace.wire.fj_layout import Parser
from headrace.wire.fj_replies import ReplyParser
from headrace.wire.fj_requests import RequestParser

from .messages import pieces, replies, requests

SMALL = Limits(key_bytes=300, value_bytes=1000, reply_bytes=4000)
cuts = st.lists(st.integers(0, 1 << 20), max_size=8)


def fed(parser: Parser, parts: list[bytes]) -> tuple[list[object], bool]:  # type: ignore[type-arg]
    """All messages, and whether the conversation ended in a ProtocolError."""
    found: list[object] = []
    for part in parts:
        try:
            found += parser.feed(part)
        except ProtocolError:
            return found, True
        if parser.failed:
            return found, True
    return found, False


# --- a message there and back


@given(requests())
def test_any_request_comes_back_as_it_was(request: Request) -> None:
    assert RequestParser().feed(encode_request(request)) == [request]


@given(replies())
def test_any_reply_comes_back_as_it_was(reply: Reply) -> None:
    assert ReplyParser().feed(encode_reply(reply)) == [reply]


@given(st.lists(requests(), max_size=5), cuts)
def test_requests_may_arrive_in_any_pieces(sent: list[Request], places: list[int]) -> None:
    data = b"".join(map(encode_request, sent))
    assert fed(RequestParser(), pieces(data, places)) == (sent, False)


@given(st.lists(replies(), max_size=5), cuts)
def test_replies_may_arrive_in_any_pieces(sent: list[Reply], places: list[int]) -> None:
    data = b"".join(map(encode_reply, sent))
    assert fed(ReplyParser(), pieces(data, places)) == (sent, False)


def test_bytes_may_arrive_one_at_a_time() -> None:
    sent = [
        Request(Function.SET, 1, PERSIST | RANGE, 2, 3, 4, b"key", b"x" * 300, 1, b"y" * 300),
        Request(Function.NOP, 9),
    ]
    data = b"".join(map(encode_request, sent))
    assert fed(RequestParser(), [data[at : at + 1] for at in range(len(data))]) == (sent, False)
    answers = [
        Reply(1, 0, 2, 3, b"error", [Pair(b"k", 1, b"v" * 300), Pair(b"l" * 300, 2, b"")], b"more"),
        Reply(2),
    ]
    data = b"".join(map(encode_reply, answers))
    assert fed(ReplyParser(), [data[at : at + 1] for at in range(len(data))]) == (answers, False)


def test_another_identifier_is_given_while_encoding() -> None:
    request = Request(Function.GET, 7, key=b"k")
    assert encode_request(request, 9) == encode_request(request._replace(identifier=9))


def test_a_request_knows_its_query() -> None:
    assert Request(Function.GET, 1, RANGE, count=0, upper=b"").query is Query.RANGE
    assert Request(Function.GET, 1).query is Query.KEY


# --- garbage


@given(st.binary(max_size=400), cuts)
def test_garbage_is_no_request_and_no_other_harm(data: bytes, places: list[int]) -> None:
    for parser in (RequestParser(SMALL), ReplyParser(SMALL)):
        _, failed = fed(parser, pieces(data, places))
        assert failed or not data or data[:1] in (b"F", b"J")


@given(st.lists(requests(), min_size=1, max_size=4), st.data())
def test_mutated_requests_give_requests_or_an_error_the_same_in_any_pieces(
    sent: list[Request], data: st.DataObject
) -> None:
    raw = bytearray(b"".join(map(encode_request, sent)))
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, min(len(raw) - 1, 400)))] = data.draw(st.integers(0, 255))
    whole = fed(RequestParser(SMALL), [bytes(raw)])
    assert fed(RequestParser(SMALL), pieces(bytes(raw), data.draw(cuts))) == whole


@given(st.lists(replies(), min_size=1, max_size=4), st.data())
def test_mutated_replies_give_replies_or_an_error_the_same_in_any_pieces(
    sent: list[Reply], data: st.DataObject
) -> None:
    raw = bytearray(b"".join(map(encode_reply, sent)))
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, min(len(raw) - 1, 400)))] = data.draw(st.integers(0, 255))
    limits = SMALL._replace(reply_bytes=1 << 30)
    whole = fed(ReplyParser(limits), [bytes(raw)])
    assert fed(ReplyParser(limits), pieces(bytes(raw), data.draw(cuts))) == whole


@given(st.binary(max_size=3000), st.integers(0, 0xFFFF), cuts)
def test_no_more_than_one_frame_is_ever_kept(data: bytes, flags: int, places: list[int]) -> None:
    """Header, two keys and a value of the largest size, with what tells their sizes."""
    most = 18 + 8 + 2 + 2 * (2 + SMALL.key_bytes) + 4 + 1 + SMALL.value_bytes
    parser = RequestParser(SMALL)
    raw = REQUEST_MAGIC + bytes(4) + flags.to_bytes(2, "big") + data
    for piece in pieces(raw, places):
        before = parser.buffered_bytes
        try:
            parser.feed(piece)
        except ProtocolError:
            return
        if parser.failed:
            return
        assert parser.buffered_bytes <= max(most, before)


# --- what ends a conversation, and how it is said


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GET / HTTP/1.1\r\n", "does not speak FJ"),
        (b"F", None),
        (b"FX", "does not speak FJ"),
        (b"FJ\0\2" + bytes(15), "version 2"),
        (b"FJ\0\1" + bytes(4) + b"\0\2" + bytes(8) + b"\0\0", "never 0"),
        (b"FJ\0\1" + bytes(4) + b"\0\6" + bytes(8) + b"\0\xff\xff\xff\xff", "at most 1000"),
        (b"FJ\0\1" + bytes(4) + b"\0\1" + bytes(8) + b"\xff\xff", "key of 65535 bytes"),
        (b"FJ\0\1" + bytes(4) + b"\0\x81" + bytes(10) + b"\0\0\1\x2d", "key of 301 bytes"),
    ],
)
def test_what_is_no_request_is_said_in_a_sentence(data: bytes, words: str | None) -> None:
    parser = RequestParser(SMALL)
    if words is None:
        assert parser.feed(data) == []
        return
    with pytest.raises(ProtocolError, match=words) as caught:
        parser.feed(data)
    assert isinstance(caught.value, Refused)
    assert caught.value.code == "protocol"
    with pytest.raises(ProtocolError):
        parser.feed(encode_request(Request(Function.NOP, 1)))


def test_requests_before_a_bad_one_are_handed_out() -> None:
    good = Request(Function.GET, 1, key=b"k")
    parser = RequestParser()
    assert parser.feed(encode_request(good) + b"nonsense") == [good]
    assert parser.failed is not None
    with pytest.raises(ProtocolError):
        parser.feed(b"")


def test_a_value_of_exactly_the_limit_is_taken() -> None:
    request = Request(Function.SET, 1, key=b"k", type=1, value=bytes(1000))
    assert RequestParser(SMALL).feed(encode_request(request)) == [request]
    with pytest.raises(ProtocolError, match="value of 1001 bytes"):
        RequestParser(SMALL).feed(encode_request(request._replace(value=bytes(1001))))


def test_a_reply_of_endless_pairs_is_refused() -> None:
    reply = Reply(1, pairs=[Pair(bytes(100), 1, bytes(900))] * 5)
    with pytest.raises(ProtocolError, match="reply of"):
        ReplyParser(SMALL).feed(encode_reply(reply))


def test_what_does_not_fit_the_protocol_is_not_encoded() -> None:
    with pytest.raises(TooLarge, match="65535"):
        encode_request(Request(Function.GET, 1, key=bytes(65536)))
    with pytest.raises(TooLarge, match="65535"):
        encode_request(Request(Function.GET, 1, RANGE, count=0, key=b"k", upper=bytes(65536)))
    with pytest.raises(TooLarge, match="65535"):
        encode_reply(Reply(1, error=bytes(65536)))
    with pytest.raises(TooLarge, match="65535 pairs"):
        encode_reply(Reply(1, pairs=[Pair(b"k")] * 65536))
    with pytest.raises(ProtocolError, match="by range only"):
        encode_request(Request(Function.GET, 1, upper=b"z"))
    with pytest.raises(ProtocolError, match="all pairs"):
        encode_reply(Reply(1, pairs=[Pair(b"a", 1, b""), Pair(b"b")]))
