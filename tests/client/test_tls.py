"""Everything over TLS: both clients, copies and FJ; and certificates that are not to be trusted."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.cli.running import headrace

import headrace as hr
from conformance.faces import node
from headrace.client import aio
from headrace.client.errors import CannotConnect
from headrace.client.fj import connect
from headrace.client.node_line import Patience
from headrace.kernel.backoff import Backoff
from headrace.server.tls import server_context
from headrace.server.tokens import TokenFile
from server.certificates import self_signed
from server.http_node import Daemon
from stream.samples import Number

from .replicas import replica

HASTY = Patience(away_s=0.2, pause=Backoff(first_s=0.01, factor=1.0, longest_s=0.01))


@dataclass(frozen=True, slots=True)
class Safe:
    """A node with TLS and a token."""

    url: str
    fj_port: int
    ca: Path
    token: str


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    place = tmp_path_factory.mktemp("safe")
    cert, key = self_signed(place)
    hr.open(place / "store").close()
    token = TokenFile(place / "store").create("me", ["admin:*"]).secret
    words = ("--tls-cert", cert, "--tls-key", key, "--journal", "pages", "--fj-port", "0")
    daemon = Daemon(place / "store", *map(str, words))
    yield Safe(f"https://localhost:{daemon.port}", daemon.facts["fj_port"], cert, token)
    daemon.kill()


def test_the_blocking_client_has_streams_journals_and_fj(safe: Safe) -> None:
    with hr.connect(safe.url, safe.token, ca=safe.ca) as store:
        stream = store.stream("blocking", Number)
        with stream.publisher() as publisher:
            for n in range(100):
                publisher.publish(Number(n))
            publisher.flush()
            following = stream.listen(follow=True)
            assert [next(following).value.n for _ in range(100)] == list(range(100))
        jobs = store.journal("blocking")
        jobs.put("r", value=b"\0" * 100_000)
        with jobs.next() as job:
            assert job.value == b"\0" * 100_000
        with store.fj("blocking") as fj:
            fj.put("s")
            assert [fj.next(delete=True).resource, bool(fj.next())] == ["s", False]


def test_the_client_for_asyncio_has_them_too(safe: Safe) -> None:
    async def work() -> list[int]:
        async with aio.connect(safe.url, safe.token, ca=safe.ca) as store:
            stream = await store.stream("awaited", Number)
            async with await stream.publisher() as publisher:
                for n in range(100):
                    await publisher.publish(Number(n))
            async with await store.fj("awaited") as fj:
                await asyncio.gather(*(fj.put(f"r{number}") for number in range(50)))
            assert (await (await store.journal("awaited")).stats()).pending == 50
            return [entry.value.n async for entry in stream.listen(until=100, follow=True)]

    assert asyncio.run(work()) == list(range(100))


def test_a_copy_is_kept_over_tls(safe: Safe, place: Path) -> None:
    with hr.connect(safe.url, safe.token, ca=safe.ca) as store:
        with store.stream("source", Number).publisher() as publisher:
            publisher.publish(Number(0))
        with replica(place / "copy", safe.url, "source", ca=safe.ca, token=safe.token) as running:
            running.reaches(1)
            with store.stream("source", Number).publisher() as publisher:
                publisher.publish(Number(1))
            running.reaches(2)
    words = ("source", "--ca", safe.ca, "--token", safe.token, "--once", "--store", place / "copy", "--json")
    assert headrace("stream", "follow", safe.url, *words).json["next_index"] == 2


def test_fjs_own_port_stays_on_the_machine_and_needs_none(safe: Safe) -> None:
    with connect("127.0.0.1", safe.fj_port) as fj:
        fj.put("from here")
        assert fj.next(delete=True).resource == "from here"


@pytest.fixture(scope="module", params=["another", "expired"])
def untrusted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    """A node whose certificate is not the one that is trusted; or is, and has expired."""
    place = tmp_path_factory.mktemp(request.param)
    cert, key = self_signed(place, days=-1 if request.param == "expired" else 2)
    trusted = cert if request.param == "expired" else self_signed(place, "other")[0]
    with node(place / "store", server_context(cert, key)) as url:
        yield Safe(url, 0, trusted, "")


def test_a_certificate_that_is_not_to_be_trusted_is_told_in_one_line(untrusted: Safe, place: Path) -> None:
    async def awaited() -> None:
        async with aio.connect(untrusted.url, ca=untrusted.ca, patience=HASTY) as store:
            await store.streams()

    async def fj() -> None:
        async with aio.connect(untrusted.url, ca=untrusted.ca, patience=HASTY) as store:
            await store.fj("pages")

    messages = []
    for work in (
        lambda: hr.connect(untrusted.url, ca=untrusted.ca),
        lambda: asyncio.run(awaited()),
        lambda: asyncio.run(fj()),
    ):
        with pytest.raises(CannotConnect) as raised:
            work()
        messages.append(str(raised.value))
    with replica(place / "copy", untrusted.url, once=True, ca=untrusted.ca) as running:
        messages.append(str(running.ended()))
    following = ("stream", "follow", untrusted.url, "s", "--once", "--store", place / "other")
    outcome = headrace(*following, "--ca", untrusted.ca)
    assert outcome.code == 1
    messages += outcome.err.splitlines()[-1:]
    for message in messages:
        assert "the certificate of https://127.0.0.1:" in message
        assert "\n" not in message


def test_http_where_tls_is_spoken_and_tls_where_it_is_not(safe: Safe, place: Path) -> None:
    with pytest.raises(hr.HeadraceError) as raised:
        hr.connect(safe.url.replace("https:", "http:"), patience=HASTY)
    assert "\n" not in str(raised.value)
    with node(place / "store") as url, pytest.raises(CannotConnect, match="TLS"):
        hr.connect(url.replace("http:", "https:"), patience=HASTY)
