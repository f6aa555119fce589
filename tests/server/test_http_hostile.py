"""Peers that send garbage: every answer is a proper one, no exception of ours gets out, the node stays."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.server.http_limits import HttpLimits
from headrace.stream.agreement import encode_schema
from headrace.wire.http_words import TERMS

from .http_node import ARROW, Answer, Served, ipc, served

pytestmark = pytest.mark.usefixtures("quiet_log")
CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))
REQUESTS = 10_000 if CAMPAIGN else 300

METHODS = ["GET", "GET", "PUT", "POST", "POST", "POST", "DELETE", "HEAD", "PATCH", "OPTIONS"]
NAMES = [
    "s",
    "t",
    "pages",
    "",
    "..",
    "%2e%2e",
    "%00",
    "%ff",
    "a%2fb",
    "none",
    "x" * 250,
    "%",
    "ü",
    "*",
    "{name}",
]
PATHS = [
    *("/streams", "/streams/{}", "/streams/{}", "/streams/{}", "/streams/{}/info", "/streams/{}/head"),
    *("/streams/{}/publisher", "/streams/{}/grow", "/streams/{}/ids", "/streams/{}/meta"),
    *("/journals", "/journals/{}", "/journals/{}/put", "/journals/{}/next", "/journals/{}/done"),
    *("/journals/{}/fail", "/journals/{}/stats", "/livez", "/metrics", "/{}", "/{}/{}/{}"),
]
QUERIES = [
    *("from=0", "from=-1", "from=end", "from=1e9", "from=%00", "key=5", "key=2024-01-01", "key=nan", "key="),
    *(
        "until=3",
        "until=end",
        "until=%ff",
        "count=2",
        "count=99999999999999999999",
        "columns=n",
        "columns=n,,text",
    ),
    *(
        "columns=%00",
        "follow=false",
        "follow=2",
        "format=arrow",
        "format=json",
        "format=%f0",
        "a=b",
        "&&&",
        "=",
        "%",
    ),
]
HEADERS = [
    ("Content-Type", ARROW),
    ("Content-Type", "application/json; charset=utf-99"),
    ("Content-Type", "\xff/\xff"),
    ("Content-Encoding", "gzip"),
    ("Content-Encoding", "deflate"),
    ("Content-Encoding", "identity"),
    ("Accept", ARROW),
    ("Headrace-Producer", "p"),
    ("Headrace-Producer", "\xff"),
    ("Headrace-Sequence", "5"),
    ("Headrace-Sequence", "-5"),
    ("Content-Type", TERMS),
    ("Headrace-Publisher", "p"),
    ("Headrace-Publisher", "\xff" * 300),
    ("Headrace-Base", "0"),
    ("Headrace-Base", "1" * 60),
    ("Headrace-Stream", "another"),
    ("Expect", "100-continue"),
    ("Range", "bytes=0-5"),
    ("If-Match", '"x"'),
    ("Cookie", "a=b;;;=\x01"),
    ("X-Long", "x" * 5000),
]
UNTIL_NOW = {"headrace.until_now": "X"}
TEXTS: list[object] = [
    {"fields": {"n": "int64"}, "order_by": "n"},
    {"fields": {"n": "list<decimal128(5, 2)>", "at": "timestamp[us, tz=UTC] not null"}, "strict": True},
    {"fields": {"id": "string"}, "unique_by": "id"},
    {"n": 5, "text": "x"},
    {
        "resource": "https://example.com/a",
        "priority": 3,
        "after": "1s",
        "value": {"base64": "/w=="},
        "ttl": 5,
    },
    {"domain": "example.com", "lease": "2h", "wait": "1ms", "delete": False},
    {"id": 0, "retry_in": "1m", "lease_until_us": 5},
    {"key": 7},
    {"bits": 1 << 63},
    {"id": "p", "take_over": True},
    {"schema": encode_schema(pa.schema([("n", pa.int64())])), "words": {}, "order_by": "n"},
    {"schema": encode_schema(pa.schema([("n", pa.int64())], {"a": "b" * 99})), "words": {"unique_by": "n"}},
    {
        "schema": encode_schema(
            pa.schema([pa.field("_type", pa.string(), metadata={"headrace.until_now": "X"})])
        ),
        "words": {"raw": True, "required": {"X": ["n"]}, "unique_window": -1},
    },
    {"schema": "AAAA", "words": {"required": {"": [""]}}, "settings": {"durability": "os"}},
]
ODD: list[object] = [
    None,
    True,
    -1,
    1 << 70,
    1e308,
    "",
    "x",
    "\0",
    "9999-99-99",
    [],
    {},
    [[]],
    {"a": 1},
    "é" * 300,
]


@pytest.fixture
def node(place: Path) -> Iterator[Served]:
    with served(place / "store", HttpLimits(body_bytes=1 << 18, drain_s=1)) as one:
        one.ask.done("PUT", "/streams/s", {"fields": {"n": "int64", "text": "string"}})
        one.ask.done(
            "PUT", "/streams/t", {"fields": {"at": "timestamp[us, tz=UTC]", "n": "float64"}, "order_by": "at"}
        )
        one.ask.done("PUT", "/journals/pages")
        one.ask.done("POST", "/streams/s", [{"n": n, "text": "x"} for n in range(20)])
        yield one


def check_alive(node: Served) -> None:
    node.ask.done("PUT", "/streams/alive", {"fields": {"n": "int64"}})  # others may be dropped, or held
    answer = node.ask.done("POST", "/streams/alive", [{"n": 7}])
    assert node.ask.rows(f"/streams/alive?from={answer['first']}")[0]["n"] == 7
    assert node.ask.done("GET", "/livez") == {"alive": True}


def check_proper(answer: Answer, method: str, asked: object) -> None:
    assert answer.status != 500, (asked, answer)
    if (
        answer.status >= 400
        and method != "HEAD"
        and not answer.headers["Content-Type"].startswith("text/plain")
    ):
        assert answer.error, (asked, answer)  # (in plain text: what is no HTTP)


def changed(lot: random.Random, value: object) -> object:
    """JSON with one thing in it replaced, left out or doubled."""
    if isinstance(value, dict) and value and lot.random() < 0.9:
        key = lot.choice(list(value))
        match lot.randrange(4):
            case 0:
                return {name: inner for name, inner in value.items() if name != key}
            case 1:
                return {**value, str(lot.choice(ODD)): lot.choice(ODD)}
        return {**value, key: changed(lot, value[key])}
    return lot.choice(ODD)


def mutated(lot: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(lot.randrange(4)):
        if made:
            made[lot.randrange(len(made))] = lot.getrandbits(8)
    if lot.random() < 0.2:
        del made[lot.randrange(len(made) + 1) :]
    return bytes(made)


def some_body(lot: random.Random) -> bytes:
    match lot.randrange(4):
        case 0:
            return b""
        case 1:
            return mutated(lot, json.dumps(lot.choice(TEXTS)).encode())
        case 2:
            return b"\n".join(
                json.dumps(changed(lot, lot.choice(TEXTS))).encode() for _ in range(lot.randrange(1, 3))
            )
    return mutated(lot, lot.choice(TABLES))


TABLES = [
    ipc(pa.table({"n": [1, 2, 3], "text": ["a", None, "c"]})),
    ipc(pa.table({"n": [1, 2, 3], "text": ["a", None, "c"]}), "zstd"),
    ipc(pa.table({"n": [1, 2, 3], "text": pa.array(["a", "b", "a"]).dictionary_encode()})),
    ipc(pa.table({"n": pa.array([[1], None, [2, 3]]), "s": [{"a": 1}, {"a": None}, None]})),
    ipc(pa.table({"at": pa.array([5, 6, 7], pa.timestamp("us", "UTC")), "n": [1.0, 2.0, 3.0]})),
]


def test_requests_that_are_wrong_in_every_way_get_proper_answers(node: Served) -> None:
    lot = random.Random(11)
    for _ in range(REQUESTS):
        method = lot.choice(METHODS)
        path = lot.choice(PATHS).replace("{}", lot.choice(NAMES))
        query = "&".join(lot.sample(QUERIES, lot.randrange(3)))
        headers = dict(lot.sample(HEADERS, lot.randrange(3)))
        body = some_body(lot)
        target = (f"{path}?{query}" if query else path).encode().decode("latin-1")
        head = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Content-Length: {len(body)}\r\n"
        head += "".join(f"{name}: {text}\r\n" for name, text in headers.items()) + "\r\n"
        answer = raw(node, head.encode("latin-1") + body, method)
        check_proper(answer, method, (head, body))
    check_alive(node)


@pytest.mark.parametrize("table", TABLES, ids=range(len(TABLES)))
def test_arrow_with_any_bytes_changed_is_published_or_refused(node: Served, table: bytes) -> None:
    lot = random.Random(5)
    ask = node.ask.keeping()
    for _ in range(REQUESTS // 4):
        data = bytearray(table)
        for _ in range(lot.randrange(1, 4)):
            data[lot.randrange(len(data))] = lot.choice((0, 1, 0x7F, 0x80, 0xFF, lot.getrandbits(8)))
        for path in ("/streams/s", "/streams/t"):
            answer = ask("POST", path, bytes(data), {"Content-Type": ARROW})
            assert answer.status in (200, 400, 413), (answer, bytes(data).hex())
        answer = ask("PUT", "/streams/new", bytes(data), {"Content-Type": ARROW})
        assert answer.status in (200, 201, 400), (answer, bytes(data).hex())
    assert ask.kept is not None
    ask.kept.close()
    check_alive(node)
    for name in node.ask.done("GET", "/streams")["streams"]:  # whatever was taken can be read
        assert node.ask("GET", f"/streams/{name}").status == 200
        assert node.ask("GET", f"/streams/{name}?format=arrow").table.validate(full=True) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 1000,
        b"\xff" * 100_000,
        b"BREW /streams HTTP/1.1\r\n\r\n",
        b"GET /streams HTTP/9.9\r\n\r\n",
        b"GET /streams\r\n\r\n",
        b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /livez HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"POST /streams/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST /streams/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /streams/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
        b"POST /streams/s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n",
        b"POST /streams/s HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    ],
    ids=lambda data: repr(data[:40]),
)
def test_what_is_no_http_ends_the_connection_and_nothing_else(node: Served, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", node.ask.port), timeout=30) as wire:
        answer = b""
        try:
            wire.sendall(data)
            wire.shutdown(socket.SHUT_WR)
            while part := wire.recv(65536):
                answer += part
        except (ConnectionError, OSError):
            pass
    assert answer == b"" or answer.startswith(b"HTTP/"), answer[:100]
    assert b" 500 " not in answer.partition(b"\r\n")[0]
    check_alive(node)


def test_peers_that_never_finish_a_request_do_not_keep_others_out(node: Served) -> None:
    starts = (
        b"",
        b"GET",
        b"GET /streams HTTP/1.1\r\n",
        b"POST /streams/s HTTP/1.1\r\nContent-Length: 50\r\n\r\n{",
    )
    half = [socket.create_connection(("127.0.0.1", node.ask.port)) for _ in range(100)]
    for number, wire in enumerate(half):
        wire.sendall(starts[number % len(starts)])
    check_alive(node)
    for wire in half:
        wire.close()
    check_alive(node)


def test_requests_that_are_cut_anywhere_publish_nothing_or_all(node: Served) -> None:
    before = node.ask.done("GET", "/streams/s/info")["next"]
    body = b'{"n": 1}\n{"n": 2}\n'
    whole = b"POST /streams/s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    for cut in range(1, len(whole) + 1, 3):
        with socket.create_connection(("127.0.0.1", node.ask.port)) as wire:
            wire.sendall(whole[:cut])
    check_alive(node)
    added = [row["n"] for row in node.ask.rows(f"/streams/s?from={before}")][:-1]  # without check_alive's own
    assert added in ([], [1, 2])


def raw(node: Served, data: bytes, method: str) -> Answer:
    with socket.create_connection(("127.0.0.1", node.ask.port), timeout=30) as wire:
        wire.sendall(data)
        response = http.client.HTTPResponse(wire, method=method)
        response.begin()
        return Answer(response.status, dict(response.getheaders()), response.read())
