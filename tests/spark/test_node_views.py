"""What a store knows of itself, told by a node: the same as over the store's path."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from tests.server.http_node import Served, ipc
from tests.spark.queries import column, publish
from tests.spark.test_node import SMALL, node, url

import headrace as hr
from headrace.journal import Journal
from headrace.kernel.errors import BadSettings, Refused, Truncated
from headrace.log.verify import conclude
from headrace.server import http_history
from headrace.spark.datasource import HeadraceSource
from headrace.spark.place import Place
from headrace.stream.errors import StreamExists

__all__ = ["node"]


def over_path(node: Served, **options: str) -> HeadraceSource:
    return HeadraceSource({"path": str(node.store.path), **options})


def over_http(node: Served, **options: str) -> HeadraceSource:
    return HeadraceSource({"url": url(node.ask), **options})


def rows(source: HeadraceSource) -> list[dict[str, Any]]:
    reader = source.reader(source.schema())
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_segments_are_told_as_over_the_path(node: Served) -> None:
    publish(node.store, "a", *((n, n + 10) for n in range(0, 100, 10)), settings=SMALL)
    publish(node.store, "b", (0, 5))
    for options in ({}, {"stream": "a"}, {"columns": "file,bytes"}):
        told = rows(over_http(node, view="segments", **options))
        assert told == rows(over_path(node, view="segments", **options))
        assert len(told) == (3 if options.get("stream") else 4)
    whole = rows(over_http(node, view="segments", stream="a"))
    assert [row["checksum"] is None for row in whole] == [False, False, True]


def test_no_other_file_can_be_asked_for(node: Served) -> None:
    publish(node.store, "a", (0, 5))
    for verb, name in itertools.product(("segments", "verify"), ("meta.json", "../b/x", "0.seg", "")):
        assert node.ask("POST", f"/streams/a/{verb}", {"files": [name]}).error == "refused"
    assert node.ask("POST", "/streams/a/verify", {"files": ["x"] * 5000}).error == "refused"
    gone = f"{0:020d}-{9:020d}.k{0:016x}-{9:016x}.seg"
    assert node.ask.done("POST", "/streams/a/segments", {"files": [gone]}) == {"segments": []}
    assert node.ask.done("POST", "/streams/a/verify", {"files": [gone]}) == {"found": []}


@pytest.mark.parametrize("harm", ["nothing", "body", "missing", "cut"])
def test_damage_is_found_as_over_the_path(node: Served, harm: str) -> None:
    publish(node.store, "a", *((n, n + 10) for n in range(0, 100, 10)), settings=SMALL)
    first, second, active = sorted((node.store.path / "streams" / "a").glob("0*"))
    node.ask.done("GET", "/streams/a/info")  # it has the stream open
    if harm == "body":
        data = bytearray(first.read_bytes())
        data[len(data) // 2] ^= 1
        first.write_bytes(data)
    if harm == "missing":
        second.unlink()
    if harm == "cut":
        active.write_bytes(active.read_bytes()[:300])
    reports = []
    for place in (Place(str(node.store.path)), Place(url=url(node.ask))):
        outset = place.inventory.outset("a")
        found = place.inventory.check("a", outset.listing.segments, outset.trimmed)
        reports.append(conclude(outset, found))
    assert reports[0] == reports[1]
    assert reports[0].ok == (harm == "nothing")
    if harm == "nothing":
        assert reports[0].entries == 100


def test_a_node_makes_a_stream_of_chosen_entries(node: Served) -> None:
    publish(node.store, "a", (0, 30), (30, 60), settings=SMALL)

    def compact(indexes: list[int], into: str, head: int = 0) -> Any:
        address = Place(url=url(node.ask)).node
        assert address is not None
        chosen = pa.array(indexes, pa.int64())
        return address.run(lambda store: address.parts("a").compact(into, chosen, head))

    assert compact([0, 7, 29, 30, 59], "some") == 5
    assert column(node.store, "some") == [0, 7, 29, 30, 59]
    assert compact([], "none", (1 << 63) + 100) == 0
    assert node.store.stream("none").head == 100
    with pytest.raises(StreamExists, match="choose another name"):
        compact([1], "some")
    for wrong in ([1, 1], [2, 1], [60], [-1, 3]):
        with pytest.raises(Refused, match="indexes"):
            compact(wrong, "wrong")
    assert node.ask("POST", "/streams/a/compact?into=..%2fx", b"").error == "bad_name"
    body = pa.table({"n": pa.array([1], pa.int64())})
    assert node.ask("POST", "/streams/a/compact?into=x", ipc(body)).error == "schema_mismatch"
    assert sorted(node.store.streams()) == ["a", "none", "some"]
    assert not list((node.store.path / "staging").rglob("*"))[1:], "nothing is left of it"


def test_jobs_are_told_as_over_the_path(node: Served) -> None:
    with filled(node):
        told, wanted = (rows(source(node, journal="pages")) for source in (over_http, over_path))
        for row in (*told, *wanted):
            row.pop("age")
        assert sorted(told, key=_id) == sorted(wanted, key=_id)
        assert [row["state"] for row in sorted(told, key=_id)] == ["dead", "leased", *["pending"] * 3]
        chosen = rows(over_http(node, journal="pages", columns="state,id"))
        assert [list(row) for row in chosen] == [["state", "id"]] * 5


def test_history_is_read_as_over_the_path(node: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_history, "_PART_BYTES", 1 << 12)  # many answers make a part
    with filled(node) as journal:
        for first in range(0, 500, 50):
            journal.put_batch([f"r{n}" for n in range(first, first + 50)])
    everything = {"journal": "pages", "view": "history", "withIndex": "true"}
    for options in (
        {},
        {"partitionRows": "100"},
        {"startIndex": "7", "endIndex": "60", "columns": "kind,text"},
        {"startIndex": "latest"},
    ):
        told = rows(over_http(node, **everything, **options))
        assert told == rows(over_path(node, **everything, **options)), options
    assert len(rows(over_http(node, **everything))) > 500
    for wrong in ({"startKey": "1"}, {"position": "me"}):
        source = over_http(node, **everything, **wrong)
        with pytest.raises(BadSettings, match=r"ordered by index|setting 'history'"):
            source.streamReader(source.schema()).initialOffset()
    for wrong in ("", "?from=0", "?from=0&to=1&columns=nope", "?from=-1&to=2"):
        assert node.ask("GET", f"/journals/pages/history{wrong}").error == "refused"


def test_history_is_followed_and_another_log_is_noticed(node: Served) -> None:
    with filled(node):
        pass
    source = over_http(node, journal="pages", view="history", maxRowsPerTrigger="4")
    reader = source.streamReader(source.schema())
    offset, kinds = reader.initialOffset(), list[str]()
    limit = reader.getDefaultReadLimit()  # type: ignore[attr-defined]
    while (end := reader.latestOffset(offset, limit)) != offset:  # type: ignore[call-arg]
        for part in reader.partitions(offset, end):
            kinds += [kind for batch in reader.read(part) for kind in batch["kind"].to_pylist()]
        offset = end
    assert kinds == [row["kind"] for row in rows(over_path(node, journal="pages", view="history"))]
    again = source.streamReader(source.schema())
    with pytest.raises(Truncated, match="made anew"):
        again.latestOffset({**offset, "log": "another"}, limit)  # type: ignore[call-arg]


@contextmanager
def filled(node: Served) -> Iterator[Journal]:
    """A journal with jobs in every state; when it is closed, all that happened to it is in its log."""
    settings = hr.JournalSettings(max_attempts=1, history="forever")
    with node.store.journal("pages", settings) as journal:
        journal.put("https://a.org/dead", value="http://x", priority=1)
        dead = journal.next()
        assert dead
        dead.fail()
        journal.put("https://a.org/leased", value=b"\xff", priority=2)
        assert journal.next(lease="1h")
        journal.put("plain", value=7, domain="mine")
        journal.put("\udcff", value=True)
        journal.put("https://b.org/later", after="1h")
        yield journal


def _id(row: dict[str, Any]) -> int:
    found: int = row["id"]
    return found
