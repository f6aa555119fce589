"""`headrace doctor`: what is wrong is found, named, and comes with what to do; nothing is changed."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import headrace, service

import headrace as hr
from headrace.cli import doctor_machine
from headrace.log.settings import Finalize, Settings
from server.certificates import self_signed
from server.http_node import served


@pytest.fixture
def store(place: Path) -> Path:
    with hr.open(place / "data") as opened:
        stream = opened.stream("orders", bytes, settings=Settings(finalize=Finalize(entries=2)))
        with stream.publisher() as publisher:
            for n in range(6):
                publisher.publish(b"entry %d" % n)
                publisher.flush()
        opened.journal("pages").put("a")
    return place / "data"


def examined(store: Path, *words: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """The exit code, and the findings by their check."""
    outcome = headrace("doctor", "--store", store, "--json", *words)
    found: dict[str, list[dict[str, Any]]] = {}
    for each in outcome.json["findings"]:
        found.setdefault(each["check"], []).append(each)
        assert (each["advice"] is None) <= (each["state"] != "warning")
    return outcome.code, found


def states(found: dict[str, list[dict[str, Any]]], check: str) -> list[str]:
    return [each["state"] for each in found[check]]


def test_a_store_that_is_well_is_told_so_line_by_line(store: Path) -> None:
    before = sorted(store.rglob("*"))
    outcome = headrace("doctor", "--store", store)
    assert outcome.code == 0, outcome
    *lines, summary = outcome.lines
    assert all(line.startswith(("ok ", "warning ")) for line in lines)
    assert summary.endswith("0 failed")
    for check in (
        "python",
        "server",
        "open files",
        "inotify",
        "fsync",
        "free space",
        "store",
        "permissions",
        "tokens",
    ):
        assert any(f"  {check}: " in line for line in lines), check
    assert sorted(store.rglob("*")) == before


def test_damage_is_found_and_the_other_streams_are_looked_at(store: Path) -> None:
    with hr.open(store) as opened:
        opened.stream("whole", bytes)
    segment = sorted((store / "streams" / "orders").glob("*.seg"))[0]
    content = bytearray(segment.read_bytes())
    content[content.index(b"entry 0")] ^= 1
    segment.write_bytes(content)
    code, found = examined(store)
    assert code == 1
    assert states(found, "stream orders") == ["failed"]
    assert "headrace stream verify orders" in found["stream orders"][0]["advice"]
    assert "stream whole" not in found


def test_files_that_others_can_read_are_found(store: Path) -> None:
    assert headrace("token", "create", "a", "--allow", "read:*", "--store", store).code == 0
    assert examined(store)[0] == 0
    (store / "tokens.json").chmod(0o644)
    code, found = examined(store)
    assert (code, states(found, "permissions")) == (1, ["failed"])
    assert found["permissions"][0]["advice"].startswith("chmod 600 ")
    (store / "tokens.json").chmod(0o600)
    store.chmod(0o777)
    assert states(examined(store)[1], "permissions") == ["failed"]


def test_tokens_that_expire_are_found(store: Path) -> None:
    for name, expires in (("soon", "3d"), ("old", "1ms"), ("fine", "60d")):
        headrace("token", "create", name, "--allow", "read:*", "--expires", expires, "--store", store)
    code, found = examined(store)
    assert (code, states(found, "tokens")) == (0, ["warning", "warning"])
    headrace("token", "revoke", "soon", "--store", store)
    headrace("token", "revoke", "fine", "--store", store)
    code, found = examined(store)
    assert (code, states(found, "tokens")) == (1, ["warning", "failed"])
    (store / "tokens.json").write_text("{")
    assert states(examined(store)[1], "tokens") == ["failed"]


def test_settings_that_cannot_be_are_found(store: Path) -> None:
    (store / "headrace.toml").write_text("prot = 5")
    assert states(examined(store)[1], "settings") == ["failed"]
    cert, key = self_signed(store.parent)
    (store / "headrace.toml").write_text(f"tls_cert = '{cert}'\ntls_key = '{key}'\n")
    key.chmod(0o600)
    assert "with TLS" in examined(store)[1]["settings"][0]["found"]
    key.chmod(0o644)
    assert states(examined(store)[1], "settings") == ["failed"]
    key.write_text("no key")
    assert states(examined(store)[1], "settings") == ["failed"]


def test_a_node_is_asked_whether_it_is_ready(store: Path) -> None:
    with served(store) as node:
        url = f"http://127.0.0.1:{node.ask.port}"
        assert states(examined(store, "--url", url)[1], "node") == ["ok"]
        node.node.stopping = True
        code, found = examined(store, "--url", url)
        assert (code, states(found, "node")) == (1, ["failed"])
    for gone in (url, "no url", "http://"):
        code, found = examined(store, "--url", gone)
        assert (code, states(found, "node")) == (1, ["failed"])


def test_without_a_store_it_says_so(place: Path) -> None:
    code, found = examined(place / "none")
    assert (code, states(found, "store")) == (1, ["failed"])
    assert not (place / "none").exists()


def test_a_directory_that_is_empty_may_become_a_store(place: Path) -> None:
    """So a service finds it when it is started for the first time."""
    (place / "empty").mkdir()
    outcome = headrace("doctor", "--store", place / "empty")
    assert outcome.code == 0, outcome
    assert f"warning  store: {place / 'empty'} is empty" in outcome.text


def test_limits_that_are_low_are_a_warning(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 1024))
    monkeypatch.setattr(doctor_machine, "_INOTIFY", {"max_user_instances": 1 << 60})
    monkeypatch.setattr(doctor_machine, "_installed", lambda name: name != "uvloop")
    monkeypatch.setattr(doctor_machine, "_SLOW_SYNC_MS", -1)
    monkeypatch.setattr(doctor_machine, "file_system", lambda folder: "nfs4")
    code, found = examined(store)
    assert [states(found, check) for check in ("open files", "inotify", "server", "fsync")] == [
        ["warning"]
    ] * 4
    assert (code, states(found, "file system")) == (1, ["failed"])


def test_a_directory_where_one_may_not_write_becomes_no_store(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "theirs").mkdir()
    monkeypatch.setattr("os.access", lambda *_: False)
    code, found = examined(place / "theirs")
    assert (code, states(found, "store"), states(found, "permissions")) == (1, ["warning"], ["failed"])


def test_a_directory_where_one_may_not_look_is_a_finding(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    (place / "theirs").mkdir()
    monkeypatch.setattr(Path, "iterdir", refuse)
    code, found = examined(place / "theirs")
    assert (code, states(found, "store")) == (1, ["failed"])


def test_settings_are_those_of_the_file_that_is_named(store: Path) -> None:
    named = store.parent / "elsewhere.toml"
    named.write_text("port = 7999")
    assert "127.0.0.1:7999" in examined(store, "--config", str(named))[1]["settings"][0]["found"]
    named.write_text("prot = 5")
    assert states(examined(store, "--config", str(named))[1], "settings") == ["failed"]


def test_a_certificate_of_ones_own_making_is_trusted_if_it_is_named(store: Path) -> None:
    cert, key = self_signed(store.parent)
    words = ("--tls-cert", cert, "--tls-key", key, "--port", "0", "--json")
    with service("serve", "--store", store, *words) as process:
        assert process.stdout is not None
        url = f"https://localhost:{json.loads(process.stdout.readline())['port']}"
        assert states(examined(store, "--url", url, "--ca", str(cert))[1], "node") == ["ok"]
        (finding,) = examined(store, "--url", url)[1]["node"]
        assert "is not to be trusted" in finding["found"]
        assert "--ca" in finding["advice"]
        (finding,) = examined(store, "--url", url, "--ca", str(store / "none"))[1]["node"]
        assert "cannot be looked at" in finding["found"]
