"""What a node refuses: every time a JSON object with a code and a sentence, and nothing has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.log.log import Log
from headrace.log.settings import Finalize, Settings
from headrace.server.http_limits import HttpLimits

from .http_node import ARROW, Served, ipc, served

pytestmark = pytest.mark.usefixtures("quiet_log")
SMALL = 1 << 20
FIELDS = {"at": "int64", "who": "string"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A stream `orders` with two entries, in a node that takes bodies of up to 1 MiB.

    One for all: what is refused changes nothing, and each test looks whether that is so.
    """
    with served(tmp_path_factory.mktemp("node") / "store", HttpLimits(body_bytes=SMALL)) as one:
        one.ask.done("PUT", "/streams/orders", {"fields": FIELDS, "order_by": "at"})
        one.ask.done("POST", "/streams/orders", [{"at": 10, "who": "ada"}, {"at": 20, "who": "bob"}])
        yield one


def check_unchanged(node: Served) -> None:
    assert [row["at"] for row in node.ask.rows("/streams/orders")] == [10, 20]
    assert node.ask.done("GET", "/streams") == {"streams": ["orders"]}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "schema_mismatch"),
        (b"{", "schema_mismatch"),
        (b"[]", "schema_mismatch"),
        (b"\xff\xfe", "schema_mismatch"),
        (b'{"fi\xe6lds": {}}', "schema_mismatch"),
        ({"fields": {"a\0b": "int64"}}, "schema_mismatch"),
        ({}, "schema_mismatch"),
        ({"fields": {}}, "schema_mismatch"),
        ({"fields": ["a"]}, "schema_mismatch"),
        ({"fields": {"a": "int"}}, "schema_mismatch"),
        ({"fields": {"a": 5}}, "schema_mismatch"),
        ({"fields": {"_index": "int64"}}, "schema_mismatch"),
        ({"fields": {"a": "timestamp[us, tz=Mars]"}}, "schema_mismatch"),
        ({"fields": {"a": "decimal128(99, 2)"}}, "schema_mismatch"),
        ({"fields": {"a": "decimal128(99999999999999999999, 2)"}}, "schema_mismatch"),
        ({"fields": {"a": "list<" * 3000 + "int8" + ">" * 3000}}, "schema_mismatch"),
        ({"fields": {"a": "int64"}, "order_by": "b"}, "bad_settings"),
        ({"fields": {"a": "string"}, "order_by": "a"}, "bad_settings"),
        ({"fields": {"a": "int64"}, "unique_by": "b"}, "bad_settings"),
        ({"fields": {"a": "int64"}, "ordered_by": "a"}, "schema_mismatch"),
    ],
    ids=lambda value: str(value)[:50],
)
def test_a_stream_that_cannot_be_is_not_made(node: Served, body: Any, code: str) -> None:
    answer = node.ask("PUT", "/streams/new", body)
    assert (answer.status, answer.error) == (400, code)
    check_unchanged(node)


@pytest.mark.parametrize(
    "body",
    [
        {"fields": FIELDS},
        {"fields": FIELDS, "order_by": "at", "strict": True},
        {"fields": FIELDS, "order_by": "at", "unique_by": "who"},
        {"fields": {**FIELDS, "at": "int32"}, "order_by": "at"},
        {"fields": {**FIELDS, "who": "string not null"}, "order_by": "at"},
    ],
    ids=str,
)
def test_a_stream_that_is_otherwise_there_is_refused(node: Served, body: Any) -> None:
    answer = node.ask("PUT", "/streams/orders", body)
    assert answer.status == 400
    assert answer.error in ("schema_mismatch", "bad_settings")
    check_unchanged(node)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "line 1"),
        (b'{"at": 30}\nnull', "line 2"),
        (b'{"at": 30}\n\n{"at": "x"}', "line 3"),
        (b'{"at": 30, "nope": 1}', "nope"),
        (b'{"at": 30.5}', "at"),
        (b'{"at": 99999999999999999999}', "at"),
        (b'{"who": "no key"}', "at"),
        (b'{"at": 30}\n{"at": 29}', "at"),
        (b'{"at": 15}', "at"),
        (b'{"at": 30, "who": "\xff"}', "line 1"),
        (b"[" * 100_000, "line 1"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_lines_that_do_not_fit_are_refused_all_together(node: Served, body: bytes, says: str) -> None:
    answer = node.ask("POST", "/streams/orders", body)
    assert (answer.status, says in answer.json["message"]) == (400, True), answer
    assert answer.error in ("schema_mismatch", "key_order")
    check_unchanged(node)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no arrow",
        ipc(pa.table({"at": [30, 40]}))[:-100],
        ipc(pa.table({"at": ["x"]})),
        ipc(pa.table({"at": [30], "nope": [1]})),
        ipc(pa.table({"at": pa.array([None], pa.int64())})),
        ipc(pa.table({"at": [40, 30]})),
        ipc(pa.Table.from_arrays([pa.array([30]), pa.array([31])], ["at", "at"])),
        ipc(pa.table({"who": ["ada"]})),
    ],
)
def test_tables_that_do_not_fit_are_refused(node: Served, body: bytes) -> None:
    answer = node.ask("POST", "/streams/orders", body, {"Content-Type": ARROW})
    assert answer.status == 400
    assert answer.error in ("schema_mismatch", "key_order")
    check_unchanged(node)


@pytest.mark.parametrize(
    "query",
    [
        "from=-1",
        "from=x",
        "from=",
        "from=99999999999999999999",
        "from=1_0",
        "from=1&key=10",
        "key=x",
        "key=",
        "key=99999999999999999999",
        "until=x",
        "until=99999999999999999999",
        "count=-1",
        "count=x",
        "columns=",
        "columns=nope",
        "columns=at,nope",
        "format=xml",
        "follow=maybe",
        "form=1",
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(node: Served, query: str) -> None:
    answer = node.ask("GET", f"/streams/orders?{query}")
    assert answer.status == 400
    assert answer.error


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", {}, {"key": "x"}, {"key": None}, {"key": 1 << 70}, {"key": 19}, b'{"\xe6": 1}']
)
def test_head_cannot_go_back_nor_anywhere_else(node: Served, body: Any) -> None:
    answer = node.ask("POST", "/streams/orders/head", body)
    assert answer.status == 400
    assert answer.error
    assert [row["_index"] for row in node.ask.rows("/streams/orders")] == [0, 1]


@pytest.mark.parametrize(
    "headers",
    [
        {"Headrace-Producer": "a"},
        {"Headrace-Sequence": "1"},
        {"Headrace-Producer": "", "Headrace-Sequence": "1"},
        {"Headrace-Producer": "a", "Headrace-Sequence": ""},
        {"Headrace-Producer": "a", "Headrace-Sequence": "-1"},
        {"Headrace-Producer": "a", "Headrace-Sequence": "x"},
        {"Headrace-Producer": "a", "Headrace-Sequence": str(1 << 63)},
        {"Headrace-Producer": "a" * 300, "Headrace-Sequence": "1"},
        {"Headrace-Producer": "\xff\xfe", "Headrace-Sequence": "1"},
    ],
    ids=str,
)
def test_headers_of_a_producer_that_make_no_sense_are_refused(node: Served, headers: dict[str, str]) -> None:
    answer = node.ask("POST", "/streams/orders", [{"at": 30}], headers)
    assert answer.status in (400, 413)
    assert answer.error
    check_unchanged(node)


def test_what_is_not_there_and_what_cannot_be_done_is_told(node: Served) -> None:
    for method, path, status, code in (
        ("GET", "/streams/none", 404, "not_found"),
        ("GET", "/streams/none/info", 404, "not_found"),
        ("POST", "/streams/none", 404, "not_found"),
        ("GET", "/", 404, "not_found"),
        ("GET", "/streams/orders/nope", 404, "not_found"),
        ("PATCH", "/streams/orders", 405, "bad_method"),
        ("POST", "/streams", 405, "bad_method"),
        ("PATCH", "/streams/orders", 405, "bad_method"),
    ):
        answer = node.ask(method, path)
        assert (answer.status, answer.error) == (status, code), (method, path)
    check_unchanged(node)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "../x",
        "../../x",
        "/etc",
        "",
        "x" * 300,
        "a\0b",
        ".hidden",
        "a b",
        "a..b",
        "ü",
        "a/b",
        "\\x",
    ],
)
@pytest.mark.parametrize("noun", ["streams", "journals"])
def test_no_name_leaves_the_directory(node: Served, noun: str, name: str) -> None:
    place = node.store.path.parent
    before = sorted(place.rglob("*"))
    for path in (f"/{noun}/{quote(name, safe='')}", f"/{noun}/{quote(name)}".replace(".", "%2e")):
        answer = node.ask("PUT", path, {"fields": {"n": "int64"}} if noun == "streams" else b"")
        assert answer.status in (400, 404, 405)
        assert answer.error in ("bad_name", "not_found", "bad_method")
    assert sorted(place.rglob("*")) == before


def test_a_path_that_climbs_as_it_stands_is_nowhere(node: Served) -> None:
    place = node.store.path.parent
    before = sorted(place.rglob("*"))
    for path in ("/streams/../x", "/streams/../../x", "//x", "/streams//x", "/./streams/x/../../y"):
        answer = node.ask("PUT", path, {"fields": {"n": "int64"}})
        assert (answer.status, answer.error) == (404, "not_found")
    assert sorted(place.rglob("*")) == before


def test_a_body_beyond_the_limit_is_refused(node: Served) -> None:
    body = b'{"at": 30, "who": "%s"}' % (b"x" * SMALL)
    answer = node.ask("POST", "/streams/orders", body)
    assert (answer.status, answer.error) == (413, "too_large")
    chunks = {"Transfer-Encoding": "chunked"}  # its length is not known before
    answer = node.ask("POST", "/streams/orders", b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body), chunks)
    assert (answer.status, answer.error) == (413, "too_large")
    check_unchanged(node)


def test_arrow_is_measured_by_what_it_unpacks_to(node: Served) -> None:
    zeros = pa.table({"at": np.zeros(SMALL, dtype="i8") + 30})
    packed = ipc(zeros, "zstd")
    assert len(packed) < SMALL
    answer = node.ask("POST", "/streams/orders", packed, {"Content-Type": ARROW})
    assert (answer.status, answer.error) == (413, "too_large")
    check_unchanged(node)


def test_a_body_that_is_packed_by_http_is_refused(node: Served) -> None:
    answer = node.ask("POST", "/streams/orders", b'{"at": 30}', {"Content-Encoding": "gzip"})
    assert (answer.status, answer.error) == (400, "bad_request")
    check_unchanged(node)


def test_an_entry_that_is_gone_is_told_by_the_status(place: Path) -> None:
    with hr.open(place / "store") as store:
        small = Settings(finalize=Finalize(entries=10))
        stream = store.stream("s", pa.schema([("n", pa.int64())]), settings=small)
        with stream.publisher() as publisher:
            for first in range(0, 100, 10):
                publisher.publish_batch([{"n": n} for n in range(first, first + 10)])
    with Log.open(place / "store" / "streams" / "s") as log:
        log.trim(50)
    with served(place / "store") as node:
        answer = node.ask("GET", "/streams/s?from=5")
        assert (answer.status, answer.error) == (410, "trimmed")
        assert node.ask.rows("/streams/s?from=start")[0]["_index"] == 50


def test_damage_ends_the_answer_so_that_nobody_takes_it_for_the_end(place: Path) -> None:
    with hr.open(place / "store") as store:
        small = Settings(finalize=Finalize(entries=10))
        stream = store.stream("s", pa.schema([("n", pa.string())]), settings=small)
        with stream.publisher() as publisher:
            for first in range(0, 100, 10):
                publisher.publish_batch([{"n": f"entry {n}"} for n in range(first, first + 10)])
    segment = sorted((place / "store" / "streams" / "s").glob("*.seg"))[3]
    content = bytearray(segment.read_bytes())
    content[content.index(b"entry 31")] ^= 0xFF
    segment.write_bytes(content)
    with served(place / "store") as node:
        with pytest.raises(Exception, match=r"IncompleteRead|reset|aborted"):  # cut, not ended
            node.ask("GET", "/streams/s")
        answer = node.ask("GET", "/streams/s?from=30")
        assert answer.status == 500
        assert answer.error.startswith("damaged")
        assert [row["_index"] for row in node.ask.rows("/streams/s?from=40")] == list(range(40, 100))
