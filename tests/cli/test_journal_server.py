"""`headrace journal serve` and `forward` as the services they are: processes, signals, addresses."""

from __future__ import annotations

import json
import signal
import socket
import threading
from pathlib import Path

import pytest
from tests.cli.journals import Journals, served
from tests.cli.running import headrace, service

import headrace as hr
from headrace.client.fj import connect
from headrace.client.spool import Spool


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_a_server_says_where_it_is_and_ends_well_when_told_to(place: Path, end: signal.Signals) -> None:
    with service("journal", "serve", "pages", "--port", "0", "--json", "--store", place / "data") as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
        assert (facts["name"], facts["host"]) == ("pages", "127.0.0.1")
        pages = Journals(place / "data", f"127.0.0.1:{facts['port']}")
        pages("put", "a")
        pages("set", "k", "v", "--volatile")
        assert pages("get", "k").text == "v\n"
        process.send_signal(end)
        out, err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "")
        assert json.loads(err)["note"].startswith("stopped after ")
    with hr.open(place / "data") as store, store.journal("pages") as journal:
        assert [job.resource for job in journal.jobs()] == ["a"]


def test_addresses_that_others_reach_are_refused_unless_that_is_meant(place: Path) -> None:
    for host in ("0.0.0.0", "::", ""):
        outcome = headrace("journal", "serve", "pages", "--host", host, "--store", place / "data")
        assert (outcome.code, outcome.out) == (1, b"")
        assert "--open-to-anyone" in outcome.err
    assert not (place / "data").exists()
    words = ("--host", "0.0.0.0", "--port", "0", "--open-to-anyone", "--store", place / "data")
    with service("journal", "serve", "pages", *words) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("serving journal pages at 0.0.0.0:")


def test_a_port_that_is_taken_is_told(place: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        outcome = headrace("journal", "serve", "pages", "--port", port, "--store", place / "data")
    assert outcome.code == 1
    assert f"127.0.0.1:{port} cannot be listened on" in outcome.err


def test_nobody_at_the_address_is_one_line(place: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        pages = Journals(place, f"127.0.0.1:{nobody.getsockname()[1]}")
        assert "error (cannot_connect): nobody answers at 127.0.0.1:" in pages.refused("get", "k")
    for address in ("localhost", "localhost:http", "localhost:0", ":70000"):
        assert "not HOST:PORT" in Journals(place, address).refused("get", "k", code=2)


def test_what_a_server_cannot_be_asked_for_is_told(place: Path) -> None:
    with served(place / "data") as address:
        pages = Journals(place / "data", address)
        for verb in ("ls", "stats", "redrive", "create"):
            said = pages.refused(verb)
            assert f"`{verb}` cannot be asked for over FJ" in said
        said = headrace("journal", "put", "pages", "a", "--server", address)
        assert said.code == 2
        assert "with --server HOST:PORT, leave the journal's NAME out" in said.err
        pages("put", "a")
        pages("next")
        assert "give --lease-until" in pages.refused("fail", "a")
        assert "a server tells of one key: which?" in pages.refused("watch", code=2)
        assert "from now on" in pages.refused("watch", "k", "--from", "start", code=2)


def test_a_server_tells_who_watches_a_key(place: Path) -> None:
    with served(place / "data") as address:
        pages = Journals(place / "data", address)
        setting = threading.Timer(0.3, lambda: _set(address, "k", 1))
        setting.start()
        outcome = pages("watch", "k", "--count", "1")
        setting.join()
        assert outcome.text == "k\tinteger\n"


def test_a_spool_is_forwarded_once(place: Path) -> None:
    spool = place / "spool"
    with Spool(spool) as writing:
        writing.put("https://example.com/a", priority=10)
        writing.set("k", "v")
    with served(place / "data") as address:
        outcome = headrace("journal", "forward", spool, "--server", address, "--once", "--json")
        assert (outcome.code, outcome.json["sent"], outcome.json["refused"]) == (0, 2, 0)
        again = headrace("journal", "forward", spool, "--server", address, "--once")
        assert again.text == "sent 0 requests\n"
        pages = Journals(place / "data", address)
        assert pages("get", "k").text == "v\n"
        assert pages.json("next")["resource"] == "https://example.com/a"


def test_a_forwarder_is_a_service_that_ends_well_when_told_to(place: Path) -> None:
    spool = place / "spool"
    with (
        served(place / "data") as address,
        service("journal", "forward", spool, "--server", address) as process,
        Spool(spool) as writing,
    ):
        assert process.stderr is not None
        assert process.stderr.readline().startswith("forwarding ")
        writing.put("late")
        assert Journals(place, address).json("next", "--wait", "30s")["resource"] == "late"
        process.terminate()
        out, _err = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, "sent 1 request\n")


def test_a_spool_that_cannot_be_sent_is_told(place: Path) -> None:
    assert "error (not_found): there is no spool" in _forward(place / "nowhere", "localhost:1")
    with Spool(place / "spool") as writing:
        writing.put("a")
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        assert "error (cannot_connect)" in _forward(place / "spool", address)


def _set(address: str, key: str, value: int) -> None:
    with connect("127.0.0.1", int(address.rpartition(":")[2])) as client:
        client.set(key, value)


def _forward(spool: Path, address: str) -> str:
    outcome = headrace("journal", "forward", spool, "--server", address, "--once")
    assert (outcome.code, outcome.out) == (1, b"")
    return outcome.err


def test_a_server_needs_no_name_where_there_is_one_journal_or_none(place: Path) -> None:
    store = place / "data"
    for _ in range(2):  # it makes one, and then there is one
        with service("journal", "serve", "--port", "0", "--json", "--store", store) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["name"] == "jobs"
    assert headrace("journal", "create", "pages", "--store", store).code == 0
    asked = headrace("journal", "serve", "--port", "0", "--store", store)
    assert (asked.code, "say which of jobs, pages" in asked.err) == (1, True)


@pytest.mark.parametrize("address", ["http://localhost:7400", "localhost", "localhost:x", "localhost:0"])
def test_a_spool_is_sent_over_fj_and_to_no_url(place: Path, address: str) -> None:
    asked = headrace("journal", "forward", place, "--server", address, "--once")
    assert (asked.code, "is not HOST:PORT of a server of FJ" in asked.err) == (2, True)
