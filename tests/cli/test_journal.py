"""`headrace journal`: the same commands on a store and on a server. Read this first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.journals import Journals, served

from conformance.faces import node


@pytest.fixture(params=["store", "node", "server"])
def pages(request: pytest.FixtureRequest, place: Path) -> Iterator[Journals]:
    if request.param == "store":
        yield Journals(place / "data")
    elif request.param == "node":
        with node(place / "data") as url:
            yield Journals(place / "data", url)
    else:
        with served(place / "data") as address:
            yield Journals(place / "data", address)


def until(pages: Journals) -> str:
    """Take a job: the end of its lease."""
    return str(pages.json("next")["lease_until_us"])


def test_a_job_is_put_taken_and_done(pages: Journals) -> None:
    pages("put", "https://example.com/a", "--priority", "10", "--value", "thumbnail")
    job = pages.json("next", "--lease", "2h")
    assert (job["resource"], job["domain"], job["value"]) == (
        "https://example.com/a",
        "example.com",
        "thumbnail",
    )
    assert "nothing to work on" in pages.refused("next")
    pages("done", job["resource"])
    assert "nothing to work on now\n" in pages.refused("next")
    assert "error (" in pages.refused("done", job["resource"])


def test_a_resource_has_one_pending_job_however_often_it_is_put(pages: Journals) -> None:
    for value in ("1", "2"):
        pages("put", "https://example.com/a", "--value", value, "--type", "integer")
    assert pages.json("next", "--done")["value"] == 2
    pages.refused("next")


def test_next_prints_the_id_and_the_resource(pages: Journals) -> None:
    pages("put", "a b")
    id_, resource = pages("next").text.rstrip("\n").split("\t")
    assert resource == "a b"
    assert id_ == ("-" if pages.over_fj else "0"), "a server does not tell ids"


def test_priorities_due_times_and_domains(pages: Journals) -> None:
    pages("put", "https://a.org/2")
    pages("put", "https://a.org/1", "--priority", "1")
    pages("put", "https://b.org/1", "--priority", "0")
    pages("put", "later", "--after", "1h", "--domain", "c")
    assert pages.json("next", "--domain", "a.org")["resource"] == "https://a.org/1"
    assert pages.json("next")["resource"] == "https://b.org/1"
    assert pages.json("next")["resource"] == "https://a.org/2"
    assert "may be due at 20" in pages.refused("next", "--domain", "c")


def test_what_failed_comes_back_when_it_is_time(pages: Journals) -> None:
    pages("put", "a")
    pages("fail", "a", "--retry-in", "1h", "--lease-until", until(pages))
    assert "may be due at" in pages.refused("next")
    pages("put", "b")
    pages("fail", "b", "--retry-in", "0s", "--lease-until", until(pages))
    assert pages.json("next", "--wait", "10s")["resource"] == "b"


def test_a_lease_can_be_proved(pages: Journals) -> None:
    pages("put", "a")
    end = int(until(pages))
    for verb in ("done", "fail"):
        assert "error (lease_lost)" in pages.refused(verb, "a", "--lease-until", str(end - 1))
    pages("done", "a", "--lease-until", str(end))


def test_many_jobs_come_from_a_file(pages: Journals, tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"https://a.org/1\n\n  https://a.org/2\nhttps://a.org/1\nz\n")
    assert pages("put", "--file", tmp_path / "list").text == "put 4 jobs\n"
    assert pages.run("put", "--file", "-", "--json", given=b"x\ny").json == {"count": 2}
    found = [pages.json("next", "--done")["resource"] for _ in range(5)]
    assert sorted(found) == sorted(["https://a.org/1", "https://a.org/2", "z", "x", "y"])
    pages.refused("next")


def test_values_have_types_and_come_out_as_they_went_in(pages: Journals) -> None:
    for key, text, kind, value in (
        ("s", "grün", "string", "grün"),
        ("i", "-7", "integer", -7),
        ("f", "1.5", "float", 1.5),
        ("b", "true", "boolean", True),
        ("v", "", "void", None),
    ):
        pages("set", key, "--type", kind, "--", text)
        facts = pages.json("get", key)
        assert (facts["key"], facts["type"], facts["value"]) == (key, kind, value)
        shown = "" if value is None else str(value).lower() if kind == "boolean" else str(value)
        assert pages("get", key).text == f"{shown}\n"
    pages("set", "raw", "-", "--type", "buffer", given=b"\xff\0\n")
    assert pages("get", "raw").out == b"\xff\0\n"
    assert pages.json("get", "raw")["value"] == {"base64": "/wAK"}


def test_values_are_kept_deleted_and_may_not_be_overwritten(pages: Journals) -> None:
    pages("set", "k", "one", "--ttl", "1h")
    assert pages.json("get", "k", "--touch")["expires"] is not None
    assert "error (key_taken)" in pages.refused("set", "k", "two", "--no-overwrite")
    pages("set", "k", "two")
    assert pages("get", "k").text == "two\n"
    pages("delete", "k")
    assert "error (no_such_key)" in pages.refused("get", "k")
    assert "error (no_such_key)" in pages.refused("delete", "k")
    pages("set", "k", "three")
    pages("delete", "k", "--now")


def test_ranges_and_patterns(pages: Journals) -> None:
    for key in ("b", "a", "c1", "c2", "grün"):
        pages("set", key, key.upper())
    assert pages("range").text == "a\tA\nb\tB\nc1\tC1\nc2\tC2\ngrün\tGRÜN\n"
    assert [row["key"] for row in pages.rows("range", "--from", "b", "--to", "c1")] == ["b", "c1"]
    assert [row["value"] for row in pages.rows("range", "--match", "^c")] == ["C1", "C2"]
    assert [row["key"] for row in pages.rows("range", "--count", "2")] == ["a", "b"]
    assert pages("range", "--count", "0").text == ""
    assert "error (bad_request)" in pages.refused("range", "--match", "(")
    assert "not both" in pages.refused("range", "--match", "x", "--from", "a", code=2)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("put",), "give either a RESOURCE or --file"),
        (("put", "a", "--file", "-"), "give either a RESOURCE or --file"),
        (("put", "--file", "-", "--ttl", "1s"), "for one job at a time"),
        (("put", "--file", "-", "--value", "-"), "stdin cannot be both"),
        (("put", "a", "--priority", "256"), "less than or equal to 255"),
        (("put", "a", "--after", "soon"), "is not a duration"),
        (("set", "k", "x", "--type", "integer"), "'x' is no integer"),
        (("set", "k", "maybe", "--type", "boolean"), "'maybe' is no boolean"),
        (("set", "k", "x", "--type", "void"), "a void has no value"),
        (("get",), "Missing argument 'KEY'"),
    ],
)
def test_wrong_usage_is_told(pages: Journals, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in pages.refused(*words, code=2)


def test_an_error_is_json_if_asked_for(pages: Journals) -> None:
    pages("set", "k", "v")
    outcome = pages.run("get", "nope", "--json")
    assert (outcome.code, outcome.out, outcome.error["code"]) == (1, b"", "no_such_key")
