"""`headrace serve` towards others: TLS, tokens, and what it refuses to do without them."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.running import headrace, service

from server.certificates import self_signed

PORTS = ("--port", "0", "--fj-port", "0")


def token_of(store: Path, *allow: str) -> str:
    words = [word for each in allow or ("admin:*",) for word in ("--allow", each)]
    outcome = headrace(
        "token", "create", f"t{len(list(store.parent.iterdir()))}-{len(words)}", *words, "--store", store
    )
    assert outcome.code == 0, outcome
    return outcome.text.strip()


def asked(facts: dict[str, Any], path: str, token: str, trust: Path) -> tuple[int, Any]:
    context = ssl.create_default_context(cafile=str(trust))
    connection = http.client.HTTPSConnection("localhost", facts["port"], timeout=30, context=context)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
    response = connection.getresponse()
    answer = response.status, json.loads(response.read())
    connection.close()
    return answer


def first_line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    facts: dict[str, Any] = json.loads(process.stdout.readline())
    return facts


def test_with_tokens_and_tls_others_may_come(place: Path) -> None:
    store = place / "data"
    cert, key = self_signed(place)
    token = token_of(store)
    words = ("--host", "0.0.0.0", *PORTS, "--tls-cert", cert, "--tls-key", key, "--journal", "pages")
    with service("serve", *words, "--json", "--store", store) as process:
        facts = first_line(process)
        assert facts["scheme"] == "https"
        assert asked(facts, "/journals", token, cert) == (200, {"journals": ["pages"]})
        assert asked(facts, "/journals", "hr_wrong", cert)[0] == 401
        with pytest.raises(ssl.SSLError):  # TLS 1.1 is too old
            old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
            old.set_ciphers("DEFAULT:@SECLEVEL=0")
            old.maximum_version = ssl.TLSVersion.TLSv1_1
            http.client.HTTPSConnection("127.0.0.1", facts["port"], timeout=30, context=old).request(
                "GET", "/livez"
            )
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_at_sighup_a_new_certificate_is_taken_up(place: Path) -> None:
    store = place / "data"
    cert, key = self_signed(place)
    token = token_of(store)
    (place / "new").mkdir()
    with service(
        "serve", *PORTS, "--tls-cert", cert, "--tls-key", key, "--json", "--store", store
    ) as process:
        facts = first_line(process)
        assert asked(facts, "/streams", token, cert)[0] == 200
        old = place / "old.crt"
        old.write_bytes(cert.read_bytes())
        new_cert, new_key = self_signed(place / "new")
        new_key.rename(key)
        new_cert.rename(cert)
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 30
        while True:
            try:
                assert asked(facts, "/streams", token, cert)[0] == 200
                break
            except ssl.SSLError:
                assert time.monotonic() < deadline
        with pytest.raises(ssl.SSLError):
            asked(facts, "/streams", token, old)


def test_what_would_not_be_safe_is_refused_in_one_line_that_says_what_to_do(place: Path) -> None:
    store, refused = place / "data", "error (refused): "
    cert, key = self_signed(place)

    def serve(*words: str | Path) -> str:
        outcome = headrace("serve", "--host", "0.0.0.0", *PORTS, "--store", store, *words)
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, b"", 1), outcome
        for option in re.findall(r"--[-a-z]+", outcome.err):  # what it tells people to say can be said
            assert option in headrace("serve", "--help").text
        return outcome.err

    said = serve()
    assert said.startswith(refused)
    assert "token create" in said
    assert "--tls-cert" in said
    assert "--insecure" in said
    assert "token create" in serve("--insecure")
    assert "--tls-cert" not in serve("--tls-cert", cert, "--tls-key", key)
    outcome = headrace("token", "create", "old", "--allow", "read:*", "--expires", "1ms", "--store", store)
    assert outcome.code == 0
    assert "token create" in serve("--insecure"), "a token that has expired is none"
    token_of(store)
    assert "token create" not in serve()
    headrace("token", "revoke", "old", "--store", store)


def test_insecure_is_said_explicitly_and_fj_stays_on_the_machine(place: Path) -> None:
    store = place / "data"
    token_of(store)
    words = ("--host", "0.0.0.0", *PORTS, "--insecure", "--journal", "pages")
    with service("serve", *words, "--store", store) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert re.search(r"at http://0\.0\.0\.0:\d+, journal pages over FJ at 127\.0\.0\.1:\d+", line), line


def test_a_node_that_others_reach_is_never_open_even_if_its_tokens_vanish(place: Path) -> None:
    store = place / "data"
    token = token_of(store)
    with service("serve", "--host", "0.0.0.0", *PORTS, "--insecure", "--json", "--store", store) as process:
        facts = first_line(process)
        (store / "tokens.json").unlink()
        deadline = time.monotonic() + 30
        while status(facts, token) != 401:
            assert time.monotonic() < deadline
        assert status(facts, None) == 401


def status(facts: dict[str, Any], token: str | None) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", facts["port"], timeout=30)
    connection.request(
        "GET", "/streams", headers={} if token is None else {"Authorization": f"Bearer {token}"}
    )
    found = connection.getresponse().status
    connection.close()
    return found


@pytest.mark.parametrize("case", ["missing", "key of another", "no pem", "alone", "password"])
def test_certificates_that_cannot_be_used_are_one_clear_line(place: Path, case: str) -> None:
    cert, key = self_signed(place)
    other = place / "other"
    other.mkdir()
    words: list[str | Path] = ["--tls-cert", cert, "--tls-key", key]
    match case:
        case "missing":
            words[3] = place / "none"
        case "key of another":
            words[3] = self_signed(other)[1]
        case "no pem":
            cert.write_text("no certificate")
        case "alone":
            words = words[:2]
        case "password":
            locked = ["openssl", "ec", "-in", key, "-aes256", "-passout", "pass:x", "-out", other / "key"]
            subprocess.run(locked, check=True, capture_output=True)
            words[3] = other / "key"
    outcome = headrace("serve", *PORTS, "--store", place / "data", *words)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, b"", 1), outcome
    assert outcome.err.startswith("error (bad_settings): ")


def test_the_log_has_every_request_with_its_token_and_no_secret(place: Path) -> None:
    store = place / "data"
    token = token_of(store)
    with service(
        "serve", *PORTS, "--log-level", "info", "--log-format", "json", "--json", "--store", store
    ) as process:
        facts = first_line(process)
        assert status(facts, token) == 200
        assert status(facts, token[:-1]) == 401
        assert status(facts, None) == 401
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    lines = [json.loads(line) for line in err.splitlines()]
    requests = [line for line in lines if line.get("logger") == "headrace.requests"]
    assert [line["status"] for line in requests] == [200, 401, 401]
    assert [line["token"] is not None for line in requests] == [True, False, False]
    assert all(line["duration_ms"] >= 0 and line["path"] == "/streams" for line in requests)
    assert all(line["time"].endswith("Z") and line["level"] == "info" for line in requests)
    assert token[:-1] not in err
    assert token[3:20] not in err


def test_what_is_asked_for_cannot_forge_a_line_of_the_log(place: Path) -> None:
    with service(
        "serve", *PORTS, "--log-level", "info", "--json", "--log-format", "text", "--store", place / "d"
    ) as process:
        facts = first_line(process)
        connection = http.client.HTTPConnection("127.0.0.1", facts["port"], timeout=30)
        connection.request("GET", "/streams/a%0A2026-01-01T00:00:00.000Z%20error%20forged%1b[31m")
        connection.getresponse().read()
        connection.close()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    line, note = err.splitlines()
    assert "forged" in line
    assert "\x1b" not in err
    assert json.loads(note) == {"note": "stopped after 1 request"}


def test_a_store_can_be_served_by_its_own_settings(place: Path) -> None:
    store = place / "data"
    store.mkdir()
    (store / "headrace.toml").write_text('port = 0\nfj_port = 0\njournal = "pages"\nlog_format = "json"\n')
    with service("serve", "--json", "--store", store) as process:
        facts = first_line(process)
        assert facts["journal"] == "pages"
        assert facts["port"] not in (0, 7400)
    assert os.environ.get("HEADRACE_PORT") is None
