"""When the other side is gone, silent or mad: a clear error, never a hang, never somebody else's answer."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import headrace.journal.errors
import headrace.stream.errors
from headrace.client.answers import failure
from headrace.client.conversation import Conversation
from headrace.client.errors import CannotConnect, ConnectionLost, NoAnswer
from headrace.client.fj import FjClient, aconnect, connect
from headrace.journal.errors import BadRequest, NoSuchKey
from headrace.kernel import errors
from headrace.kernel.errors import Broken, Closed, HeadraceError, Refused, Retryable
from headrace.wire.errors import ProtocolError
from headrace.wire.fj import Function, Limits, Pair, Reply, Request, encode_reply

from .stand_in import StandIn


@contextmanager
def answering(*answers: bytes) -> Iterator[int]:
    """A port that answers what arrives with these bytes, one after the other, and then closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connected, _ = listening.accept()
            with connected:
                for answer in answers:
                    connected.recv(65536)
                    connected.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        thread.join(10)


def raised_by_async(port: int, verb: Callable[[Any], Any], timeout: float = 10) -> HeadraceError:
    async def talk() -> HeadraceError:
        async with await aconnect(port=port, timeout=timeout) as client:
            with pytest.raises(HeadraceError) as caught:
                await verb(client)
            with pytest.raises(type(caught.value)):  # and it stays so
                await verb(client)
            return caught.value

    return asyncio.run(talk())


def raised_by_blocking(port: int, verb: Callable[[Any], Any], timeout: float = 10) -> HeadraceError:
    with connect(port=port, timeout=timeout) as client:
        with pytest.raises(HeadraceError) as caught:
            verb(client)
        with pytest.raises(type(caught.value)):
            verb(client)
        return caught.value


RAISED = pytest.mark.parametrize("raised", [raised_by_blocking, raised_by_async])
Raised = Callable[..., HeadraceError]


def get(client: Any) -> Any:
    return client.get("k")


def test_nobody_is_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(CannotConnect, match="is the server running"):
        connect(port=port)
    with pytest.raises(CannotConnect):
        asyncio.run(aconnect(port=port))
    assert issubclass(CannotConnect, Retryable)


@RAISED
def test_a_server_that_closes(raised: Raised) -> None:
    with answering(b"") as port:
        error = raised(port, get)
    assert isinstance(error, ConnectionLost)
    assert isinstance(error, Broken)
    assert "may have been done or not" in str(error)


@RAISED
def test_a_server_that_says_nothing(raised: Raised, server: StandIn) -> None:
    server.shelf.silent = True
    assert isinstance(raised(server.port, get, timeout=0.1), NoAnswer)


@RAISED
def test_a_server_that_sends_half_an_answer(raised: Raised) -> None:
    with answering(encode_reply(Reply(1, pairs=[Pair(b"k", 1, b"value")]))[:-2]) as port:
        assert isinstance(raised(port, get), ConnectionLost)


@RAISED
@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n", b"JR\0\2" + bytes(20), encode_reply(Reply(77))]
)
def test_a_server_that_speaks_something_else(raised: Raised, answer: bytes) -> None:
    with answering(answer) as port:
        assert isinstance(raised(port, get), ProtocolError)


@RAISED
def test_the_servers_last_word_is_heard(raised: Raised) -> None:
    with StandIn(limits=Limits(value_bytes=100)).serving() as server:
        error = raised(server.port, lambda client: client.set("k", bytes(101)))
    assert isinstance(error, ProtocolError)
    assert "at most 100" in str(error)


@RAISED
def test_answers_before_garbage_count(raised: Raised) -> None:
    with answering(encode_reply(Reply(1, error=b"does not exist")) + b"nonsense") as port:
        assert connect(port=port).get("k") is None
    with answering(encode_reply(Reply(1, error=b"code: x")) + b"nonsense", b"") as port:
        assert isinstance(raised(port, get), Refused)


def test_a_client_that_was_closed(server: StandIn) -> None:
    client = connect(port=server.port)
    client.close()
    client.close()
    with pytest.raises(Closed):
        client.get("k")


def test_an_interrupted_call_leaves_no_answer_for_the_next_one(
    client: FjClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client._line, "_hear", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.get("k")
    monkeypatch.undo()
    with pytest.raises(ConnectionLost, match="interrupted"):
        client.get("k")


def test_a_pipeline_that_breaks_keeps_the_answers_it_had(client: FjClient, server: StandIn) -> None:
    server.shelf.drop_after = 5
    pipeline = client.pipeline()
    calls = [pipeline.set(f"k{number}", number) for number in range(10)]
    with pytest.raises(ConnectionLost):
        pipeline.send()
    for call in calls[:5]:
        call.result()
    for call in calls[5:]:
        with pytest.raises(Refused, match="broke before"):
            call.result()


def test_threads_take_turns(client: FjClient) -> None:
    client.set("n", 0)

    def add() -> None:
        for _ in range(100):
            client.add("n", 1)

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.add("n", 0) == 400


def test_a_cancelled_call_harms_no_other(server: StandIn) -> None:
    async def talk() -> None:
        async with await aconnect(port=server.port) as client:
            calls = [asyncio.create_task(client.set("k", number)) for number in range(100)]
            await asyncio.sleep(0)
            for call in calls[::2]:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            assert [call.cancelled() for call in calls] == [True, False] * 50
            found = await client.get("k")
            assert found is not None

    asyncio.run(talk())


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.put("a", priority=256),
        lambda client: client.put("a", after=1, due_us=1),
        lambda client: client.put("a", due_us=-1),
        lambda client: client.put("x" * 65536),
        lambda client: client.get("x" * 65536),
        lambda client: client.set("k", 1, timestamp_us=-1),
        lambda client: client.set("k", object()),
        lambda client: client.get("k", lease=1, touch=True),
        lambda client: client.next_batch(0),
        lambda client: client.next_batch(65536),
    ],
)
def test_wrong_requests_are_refused_before_they_are_sent(
    client: FjClient, server: StandIn, call: Callable[[FjClient], Any]
) -> None:
    with pytest.raises(BadRequest):
        call(client)
    assert not server.shelf.seen
    client.set("k", 1)


# --- errors and identifiers


def all_errors() -> list[type[HeadraceError]]:
    modules = (errors, headrace.journal.errors, headrace.stream.errors)
    classes = {kind for module in modules for _, kind in inspect.getmembers(module, inspect.isclass)}
    return sorted((kind for kind in classes if issubclass(kind, HeadraceError)), key=lambda kind: kind.code)


@pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.code)
def test_every_error_comes_back_as_its_own_class(kind: type[HeadraceError]) -> None:
    error = failure(f"{kind.code}: what: happened".encode())
    if kind is not HeadraceError:
        assert type(error) is kind
        assert str(error) == "what: happened"
    assert isinstance(error, kind)


def test_an_error_that_takes_more_than_a_sentence_comes_back_as_its_group() -> None:
    class Special(errors.Damaged):
        code = "special_of_this_test"

        def __init__(self, one: str, two: str) -> None:
            super().__init__(one + two)

    assert type(failure(b"special_of_this_test: x")) is errors.Damaged


def test_errors_that_nobody_knows_are_refusals() -> None:
    assert type(failure(b"brand_new: sentence")) is Refused
    assert str(failure(b"no code at all")) == "no code at all"
    assert isinstance(failure(b"does not exist", b"k"), NoSuchKey)
    assert isinstance(failure(b"\xff\xfe"), Refused)


def test_identifiers_go_round_and_skip_those_in_flight() -> None:
    talk: Conversation[str] = Conversation()
    request = Request(Function.GET, 0, key=b"k")
    assert talk.ask(request, "first")[6:8] == b"\0\1"
    for number in range(2, 65536):
        data = talk.ask(request, "other")
        assert data[6:8] == number.to_bytes(2, "big")
        assert talk.hear(encode_reply(Reply(number))) == [("other", Reply(number))]
    assert talk.ask(request, "again")[6:8] == b"\0\2"
    assert talk.hear(encode_reply(Reply(1))) == [("first", Reply(1))]


def test_a_key_that_changes_often_is_pushed_once_until_it_is_taken() -> None:
    talk: Conversation[str] = Conversation()
    for kind in range(5):
        assert talk.hear(encode_reply(Reply(0, pairs=[Pair(b"k", kind, b"")]))) == []
    assert talk.pushes == {b"k": 4}
