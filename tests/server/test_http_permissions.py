"""Every route with every permission: who is let in, who is not, and that nobody sees what is not theirs."""

from __future__ import annotations

import http.client
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import headrace as hr
from docs.pages import ROOT
from headrace.server.http_permissions import NEEDS, Need
from headrace.server.permissions import Grant, Holder, Permission
from headrace.server.tokens import TOKENS_FILE, TokenFile
from waiting import until

from .http_node import Asking, Following, Served, served

pytestmark = pytest.mark.usefixtures("quiet_log")
FIELDS = {"fields": {"n": "int64"}}
MORE_FIELDS = {"fields": {"n": "int64", "text": "string"}}
ALLOWED: dict[str, list[str]] = {
    **{str(permission): [f"{permission}:mine"] for permission in Permission},
    "publish-and-read": ["publish:mine", "read:mine"],
    "another-name": ["admin:other", "admin:min", "admin:mine.*", "admin:Mine"],
    "read-everything": ["read:*"],
    "everything": ["admin:*"],
}


ENDLESS = {"GET /streams/{name}/frames", "GET /journals/{name}/frames", "POST /journals/{name}/listen"}
"""What goes on for ever: the status is all there is to wait for."""


class Guarded:
    """A node with a stream and a journal `mine`, and a token for each of ALLOWED."""

    def __init__(self, node: Served) -> None:
        self.node = node
        file = TokenFile(node.store.path)
        self.secrets = {name: file.create(name, allow).secret for name, allow in ALLOWED.items()}
        until(lambda: node.ask("GET", "/streams").status == 401)
        until(lambda: self.by("everything")("GET", "/streams").status == 200)
        self.by("everything").done("PUT", "/streams/mine", FIELDS)
        self.by("everything").done("PUT", "/journals/mine")

    def by(self, name: str) -> Asking:
        return self.node.ask.by(self.secrets[name])

    def status(self, route: str, asking: Asking) -> int:
        method, path = route.replace("{name}", "mine").replace("{batch}", "0").split(" ")
        path = re.sub(r"\{\w+\}", "x", path)
        if route in ENDLESS:
            return asking.status_of(method, path)
        status = asking(method, path, FIELDS if route == "PUT /streams/{name}" else b"").status
        if route == "DELETE /streams/{name}":
            self.by("everything")("PUT", "/streams/mine", FIELDS)  # for those who come next
        return status


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    with served(tmp_path_factory.mktemp("node") / "store") as one:
        yield Guarded(one)


def lets_in(need: Need, allow: list[str]) -> bool:
    """What the table says, in other words."""
    if need.all_names:
        return all(f"{permission}:*" in allow or "admin:*" in allow for permission in need.every)
    holder = Holder("t", tuple(map(Grant.parse, allow)))
    has = {permission for permission in Permission if holder.may(permission, "streams", "mine")}
    return has >= set(need.every) and (not need.some or bool(has & set(need.some)))


def test_every_route_is_in_the_table(guarded: Guarded) -> None:
    assert set(guarded.node.server.routes) <= set(NEEDS)
    assert len(guarded.node.server.routes) > 15


@pytest.mark.parametrize("route", NEEDS)
def test_a_route_lets_those_in_whom_the_table_names(guarded: Guarded, route: str) -> None:
    if route not in guarded.node.server.routes:
        pytest.skip("the table has it before the node")
    need = NEEDS[route]
    open_to_all = guarded.status(route, guarded.node.ask) not in (401, 403)
    assert open_to_all == need.open
    for wrong in ("hr_", "hr_" + "A" * 43, "Bearer", guarded.secrets["everything"][:-1]):
        assert (guarded.status(route, guarded.node.ask.by(wrong)) == 401) != need.open, wrong
    for name, allow in ALLOWED.items():
        status = guarded.status(route, guarded.by(name))
        assert status != 401, (route, name)
        assert (status != 403) == (need.open or lets_in(need, allow)), (route, name, status)


def test_the_page_shows_the_same_table() -> None:
    page = (ROOT / "docs" / "guide" / "http.md").read_text()
    shown = dict(re.findall(r"^\| `([A-Z]+ /[^`]+)` \| ([^|]+) \|$", page, re.MULTILINE))
    assert set(shown) == set(NEEDS)
    for route, need in NEEDS.items():
        if need.open:
            assert shown[route] == "nothing", route
        else:
            words = set(re.findall(r"`(\w+)", shown[route]))
            assert words == {str(permission) for permission in (*need.every, *need.some)}, route
            assert ("`:*" in shown[route] or ":*`" in shown[route]) == need.all_names, route


def test_an_error_says_what_is_missing_and_never_the_secret(guarded: Guarded) -> None:
    answer = guarded.node.ask("GET", "/streams/mine")
    assert (answer.status, answer.error) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    answer = guarded.by("publish")("GET", "/streams/mine")
    assert (answer.status, answer.error) == (403, "no_permission")
    assert "read:mine" in answer.json["message"]
    wrong = guarded.secrets["read"][:-2] + "xx"
    answer = guarded.node.ask.by(wrong)("GET", "/streams/mine")
    assert (answer.status, answer.error) == (401, "unauthorized")
    assert wrong not in answer.body.decode()


@pytest.mark.parametrize(
    "sent", ["", "Bearer", "Basic aHI6", "bearer", "Bearer  ", "hr_x", "Token hr_x", "Bearer \xff"]
)
def test_headers_that_are_no_token_are_refused(guarded: Guarded, sent: str) -> None:
    assert guarded.node.ask("GET", "/streams", headers={"Authorization": sent}).error == "unauthorized"


def test_what_is_nowhere_and_what_one_may_not_see_look_alike(guarded: Guarded) -> None:
    by = guarded.by("read")
    here, nowhere = by("GET", "/streams/other"), by("GET", "/streams/none")
    assert (here.status, nowhere.status) == (403, 403)
    assert here.json["message"].replace("other", "none") == nowhere.json["message"]
    assert guarded.node.ask("GET", "/nowhere").status == 401
    assert by("GET", "/nowhere").status == 404
    assert by("PATCH", "/streams/mine").status == 405


def test_lists_show_what_the_token_may_see(guarded: Guarded) -> None:
    everything = guarded.by("everything")
    everything.done("PUT", "/streams/other", FIELDS)
    everything.done("PUT", "/journals/other")
    for kind in ("streams", "journals"):
        assert everything.done("GET", f"/{kind}")[kind] == ["mine", "other"]
        assert guarded.by("create").done("GET", f"/{kind}")[kind] == ["mine"]
        assert guarded.by("another-name").done("GET", f"/{kind}")[kind] == ["other"]


def test_only_create_makes_and_changes_things(guarded: Guarded) -> None:
    everything = guarded.by("everything")
    reader, creator = guarded.by("read-everything"), guarded.by("create")
    assert reader("PUT", "/streams/new", FIELDS).error == "no_permission"
    assert reader("PUT", "/journals/new").error == "no_permission"
    assert everything.done("GET", "/streams")["streams"].count("new") == 0
    assert everything.done("GET", "/journals")["journals"].count("new") == 0
    assert reader.done("PUT", "/streams/mine", FIELDS)["created"] is False
    assert reader("PUT", "/streams/mine", MORE_FIELDS).error == "no_permission"
    assert len(everything.done("GET", "/streams/mine/info")["fields"]) == 1
    assert creator.done("PUT", "/streams/mine", MORE_FIELDS)["created"] is False
    assert len(everything.done("GET", "/streams/mine/info")["fields"]) == 2
    assert reader.done("PUT", "/streams/mine", MORE_FIELDS)["created"] is False


# --- tokens that come and go while a node runs


def check_cut_off(follower: Following) -> None:
    """It does not take what it got for the whole."""
    with pytest.raises((OSError, http.client.HTTPException)):
        follower.response.read()


def test_a_node_takes_tokens_up_and_lets_revoked_ones_go_with_their_followers(place: Path) -> None:
    with served(place / "store") as node:
        node.ask.done("PUT", "/streams/s", FIELDS)
        open_reader = node.ask.following("/streams/s?follow=true")
        file = TokenFile(place / "store")
        kept, revoked = file.create("kept", ["admin:*"]), file.create("revoked", ["admin:*"])
        until(lambda: node.ask("GET", "/streams").status == 401)
        check_cut_off(open_reader)
        until(lambda: node.ask.by(revoked.secret)("GET", "/streams").status == 200)
        follower = node.ask.by(revoked.secret).following("/streams/s?follow=true")
        staying = node.ask.by(kept.secret).following("/streams/s?follow=true")
        file.revoke("revoked")
        until(lambda: node.ask.by(revoked.secret)("GET", "/streams").status == 401)
        check_cut_off(follower)
        node.ask.by(kept.secret).done("POST", "/streams/s", [{"n": 5}])
        assert (staying.next() or {})["n"] == 5
        staying.close()


def test_a_connection_that_has_gone_over_to_fj_ends_with_its_token(place: Path) -> None:
    with served(place / "store") as node:
        node.ask.done("PUT", "/journals/pages")
        file = TokenFile(place / "store")
        secret = file.create("worker", ["publish:pages", "read:pages"]).secret
        until(lambda: node.ask.by(secret)("GET", "/journals").status == 200)
        with socket.create_connection(("127.0.0.1", node.ask.port), timeout=30) as wire:
            head = (
                "GET /journals/pages/fj HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: fj\r\n"
            )
            wire.sendall(f"{head}Authorization: Bearer {secret}\r\n\r\n".encode())
            assert wire.recv(4096).startswith(b"HTTP/1.1 101 ")
            file.revoke("worker")
            with suppress(ConnectionError):
                assert wire.recv(4096) == b""
        until(lambda: node.server.door.connections == 0)


def test_a_token_that_expires_is_cut_off(place: Path) -> None:
    with served(place / "store") as node:
        node.ask.done("PUT", "/streams/s", FIELDS)
        soon = TokenFile(place / "store").create("soon", ["admin:*"], "2s")
        until(lambda: node.ask.by(soon.secret)("GET", "/streams").status == 200)
        until(lambda: node.ask("GET", "/streams").status == 401)
        follower = node.ask.by(soon.secret).following("/streams/s?follow=true")
        until(lambda: node.ask.by(soon.secret)("GET", "/streams").status == 401)
        assert "expired" in node.ask.by(soon.secret)("GET", "/streams").json["message"]
        check_cut_off(follower)


def test_without_the_last_token_or_with_a_damaged_file_nobody_gets_in(place: Path) -> None:
    with hr.open(place / "store"):
        file = TokenFile(place / "store")
        secret = file.create("only", ["admin:*"]).secret
    with served(place / "store") as node:
        assert node.ask.by(secret)("GET", "/streams").status == 200
        file.revoke("only")
        until(lambda: node.ask.by(secret)("GET", "/streams").status == 401)
        (place / "store" / TOKENS_FILE).write_text("{")
        until(lambda: node.ask.by(secret)("GET", "/streams").status == 500)
        assert node.ask("GET", "/livez").status == 200
        other = place / "store" / "other"
        other.write_text('{"format": 1, "tokens": []}')
        other.rename(place / "store" / TOKENS_FILE)
        until(lambda: node.ask.by(secret)("GET", "/streams").status == 401)


# --- without tokens


@pytest.mark.parametrize(
    ("headers", "fine"),
    [
        ({"Host": "localhost:7400"}, True),
        ({"Host": "127.0.0.1"}, True),
        ({"Host": "[::1]:7400"}, True),
        ({"Host": "127.0.0.1", "Origin": "http://localhost:3000"}, True),
        ({"Host": "evil.example"}, False),
        ({"Host": "localhost.evil.example:7400"}, False),
        ({"Host": "10.0.0.1"}, False),
        ({"Host": "[::1"}, False),
        ({"Origin": "https://evil.example"}, False),
        ({"Origin": "null"}, False),
    ],
    ids=str,
)
def test_a_page_in_a_browser_gets_nowhere(place: Path, headers: dict[str, str], fine: bool) -> None:
    with served(place / "store") as node:
        answer = node.ask("GET", "/streams", headers=headers)
        assert answer.status == (200 if fine else 403), answer
        assert fine or answer.error == "no_permission"
