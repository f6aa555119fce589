"""Requests and answers of a pipe come out as they went in, wherever they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.errors import ProtocolError
from headrace.wire.pipe import PipeAnswers, PipeRequest, PipeRequests, Verb, answer_bytes, key_bits, key_body

_requests = st.lists(
    st.builds(
        PipeRequest,
        st.sampled_from(Verb),
        st.integers(0, (1 << 64) - 1),
        st.integers(-1, (1 << 63) - 1),
        st.binary(max_size=200),
    ),
    max_size=8,
)


def test_the_bytes_of_a_request_are_those_of_the_page() -> None:
    request = PipeRequest(Verb.PUBLISH, 7, 1, b"body")
    assert request.head.hex(" ", 4) == "04000000 01000000 07000000 00000000 01000000 00000000"
    assert PipeRequest(Verb.WHERE).head.hex() == "00000000030000000000000000000000" + "ff" * 8
    assert answer_bytes(b"{}") == b"\x02\x00\x00\x00{}"
    assert key_body(258) == b"\x02\x01\x00\x00\x00\x00\x00\x00"


@settings(max_examples=60)
@given(_requests, st.lists(st.integers(1, 90), min_size=1, max_size=8))
def test_requests_in_pieces_of_any_size(requests: list[PipeRequest], sizes: list[int]) -> None:
    data = b"".join(request.head + bytes(request.body) for request in requests)
    parser, found, at, turn = PipeRequests(200), list[PipeRequest](), 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found += parser.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert [(each.verb, each.sequence, each.base, bytes(each.body)) for each in found] == [
        (each.verb, each.sequence, each.base, each.body) for each in requests
    ]
    assert parser.held == 0


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.integers(1, 20))
def test_answers_in_pieces_of_any_size(answers: list[bytes], size: int) -> None:
    data, parser, found = b"".join(map(answer_bytes, answers)), PipeAnswers(), []
    for at in range(0, len(data), size):
        answer = parser.feed(data[at : at + size])
        while answer is not None:
            found.append(answer)
            answer = parser.feed(b"")
    assert found == answers


@pytest.mark.parametrize(
    "head",
    [
        PipeRequest(Verb.PUBLISH, body=b"x" * 101).head,
        bytes.fromhex("0000000000000000") + bytes(16),
        bytes.fromhex("0000000004000000") + bytes(16),
        bytes.fromhex("0000000001000000") + bytes(8) + b"\xfe" + b"\xff" * 7,
    ],
    ids=["too large", "no verb", "an unknown verb", "a base below none"],
)
def test_what_cannot_be_a_request_is_refused_before_its_body_comes(head: bytes) -> None:
    good = PipeRequest(Verb.PUBLISH, 7, body=b"good")
    for before in ([], [good, good]):
        parser = PipeRequests(100)
        found = parser.feed(b"".join(each.head + bytes(each.body) for each in before) + head)
        assert [bytes(each.body) for each in found] == [b"good"] * len(before)
        assert isinstance(parser.wrong, ProtocolError)
        assert (parser.feed(good.head + b"good"), parser.held) == ([], 0)


def test_a_key_that_is_no_key_and_an_answer_without_end_are_refused() -> None:
    with pytest.raises(ProtocolError):
        key_bits(b"short")
    with pytest.raises(ProtocolError):
        PipeAnswers().feed(b"\xff\xff\xff\xff")
