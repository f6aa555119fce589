"""A few bytes that would become many: bodies that say something once for a million rows, or ask too much."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.server import http_segments

from .http_node import ARROW, ipc
from .test_http_limits import limited

pytestmark = pytest.mark.usefixtures("quiet_log")
ROWS = 100_000
LONG = "x" * 10_000


def dictionary() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([0] * ROWS, pa.int8()), pa.array([LONG]))


def run_ends() -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([ROWS], pa.int32()), pa.array([LONG]))


def views() -> pa.Array:
    one = pa.array([LONG], pa.string_view())
    view, data = one.buffers()[1], one.buffers()[2]
    return pa.Array.from_buffers(pa.string_view(), ROWS, [None, pa.py_buffer(view.to_pybytes() * ROWS), data])


@pytest.mark.parametrize("made", [dictionary, run_ends, views])
@pytest.mark.parametrize("path", ["/streams/s", "/journals/j/put_batch"])
def test_columns_that_say_once_what_they_hold_often_are_refused(place: Path, made, path: str) -> None:  # type: ignore[no-untyped-def]
    with limited(place) as node:
        node.ask.done("PUT", "/journals/j")
        name = "text" if "streams" in path else "resource"
        body = ipc(pa.table({name: made()}))
        assert node.ask("POST", path, body, {"Content-Type": ARROW}).error == "schema_mismatch"
        nested = ipc(pa.table({name: pa.StructArray.from_arrays([dictionary()], ["inner"])}))
        assert node.ask("POST", path, nested, {"Content-Type": ARROW}).error == "schema_mismatch"
        assert node.ask.done("GET", "/streams/s/info")["next"] == 0


def test_rows_that_take_no_bytes_are_counted_wherever_they_come(place: Path) -> None:
    nothing = pa.table({"resource": pa.nulls(1_001)})
    with limited(place, rows=1_000) as node:
        node.ask.done("PUT", "/journals/j")
        node.ask.done("PUT", "/streams/u", {"fields": {"id": "string"}, "unique_by": "id"})
        for path in ("/streams/s", "/streams/u/ids", "/journals/j/put_batch"):
            assert node.ask("POST", path, nothing).error == "too_large"


def test_only_line_feeds_make_lines(place: Path) -> None:
    """Others would not have been counted."""
    with limited(place, rows=10) as node:
        assert node.ask("POST", "/streams/s", b'{"n": 1, "text": ""}\r' * 100).error == "schema_mismatch"
        node.ask.done("POST", "/streams/s", b'{"n": 1, "text": ""}\r\n\r\n{"n": 2, "text": ""}\r\n')
        assert [row["n"] for row in node.ask.rows("/streams/s")] == [1, 2]


def test_a_file_is_asked_for_once(place: Path) -> None:
    with limited(place) as node:
        (name,) = node.ask.done("GET", "/streams/s/segments")["files"]
        for verb in ("segments", "verify"):
            assert node.ask("POST", f"/streams/s/{verb}", {"files": [name]}).status == 200
            assert node.ask("POST", f"/streams/s/{verb}", {"files": [name, name]}).error == "refused"


def test_checks_of_those_who_have_gone_count_until_they_are_done(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    going, most, lock, go_on = [0], [0], threading.Lock(), threading.Event()

    def slow(*arguments: object) -> None:
        with lock:
            going[0] += 1
            most[0] = max(most[0], going[0])
        go_on.wait(30)
        with lock:
            going[0] -= 1

    monkeypatch.setattr(http_segments, "check_segment", slow)
    with limited(place) as node:
        (name,) = node.ask.done("GET", "/streams/s/segments")["files"]
        for _ in range(12):
            asking = node.ask.keeping()
            assert asking.kept is not None
            asking.kept.request("POST", "/streams/s/verify", b'{"files": ["%s"]}' % name.encode())
            asking.kept.close()
        assert node.ask.done("GET", "/streams/s/info")["next"] == 0  # others come through
        go_on.set()
        assert node.ask("POST", "/streams/s/verify", {"files": [name]}).status == 200
    assert 0 < most[0] <= 4


def test_probes_are_answered_by_a_node_that_is_busy(place: Path) -> None:
    with limited(place, requests=1) as node:
        following = node.ask.following("/streams/s?follow=true")
        assert node.ask("GET", "/streams").error == "busy"
        assert node.ask("GET", "/livez").status == 200
        assert node.ask("GET", "/readyz").status == 200
        following.close()


def test_a_schema_has_so_many_fields_at_the_most(place: Path) -> None:
    with limited(place) as node:
        fields = {f"f{n}": "int64" for n in range(4097)}
        assert node.ask("PUT", "/streams/wide", {"fields": fields}).error == "schema_mismatch"
        assert node.ask("PUT", "/streams/w", {"fields": dict(list(fields.items())[:1000])}).status == 201
