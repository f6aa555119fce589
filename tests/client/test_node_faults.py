"""A node behind a bad network, or killed again and again: exact accounts of what is published and heard."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from conformance.faces import node
from headrace.client import aio
from headrace.client.node_line import Patience
from headrace.kernel.backoff import Backoff
from headrace.kernel.errors import Broken, Fenced
from headrace.stream import PublisherTaken
from proxy import Cutting, Delaying, Harm, Proxy, Swallowing
from server.http_node import Daemon
from stream.samples import Number, in_thread
from waiting import until

CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))
ROUNDS = 50 if CAMPAIGN else 1
ENTRIES = 20_000 if CAMPAIGN else 1_500
SOON = Patience(pause=Backoff(first_s=0.005, factor=1.5, longest_s=0.1))
HARMS = {"cuts": lambda: Cutting(Random(1), 3_000), "delays": lambda: Delaying(Random(2), 0.002)}


def numbers(path: Path) -> list[int]:
    with hr.open(path) as store:
        return [entry.value.n for entry in store.stream("s", Number).listen()]


@pytest.mark.parametrize("harm", HARMS)
def test_what_one_publisher_was_told_is_there_once_and_in_order(place: Path, harm: str) -> None:
    with node(place / "data") as url, Proxy.to(url) as proxy, hr.connect(proxy.url, patience=SOON) as store:
        stream = store.stream("s", Number)
        proxy.harm = HARMS[harm]()
        proxy.cut_all()
        with stream.publisher() as publisher:
            for n in range(ENTRIES):
                assert publisher.publish(Number(n)) == n
                if n % 50 == 49:
                    publisher.flush()
            made = publisher.publish_batch(pa.table({"n": [ENTRIES, ENTRIES + 1]}))
            assert (made.base_index, made.next_index) == (ENTRIES, ENTRIES + 2)
        assert proxy.cuts or harm != "cuts"
    assert numbers(place / "data") == list(range(ENTRIES + 2))


def test_several_publishers_share_a_stream_over_cuts_and_each_keeps_its_order(place: Path) -> None:
    def publish(base: int) -> None:
        with (
            hr.connect(proxy.url, patience=SOON) as store,
            store.stream("s", Number).publisher(shared=True) as publisher,
        ):
            for n in range(ENTRIES // 3):
                publisher.publish(Number(base + n))
                if n % 40 == 0:
                    publisher.flush()

    with node(place / "data") as url, Proxy.to(url) as proxy:
        with hr.connect(url) as store:
            store.stream("s", Number)
        proxy.harm = Cutting(Random(3), 4_000)
        publishing = [in_thread(lambda base=base: publish(base)) for base in (0, 10**6, 2 * 10**6)]
        for each in publishing:
            each.result()
    there = numbers(place / "data")
    for base in (0, 10**6, 2 * 10**6):
        mine = [n - base for n in there if base <= n < base + 10**6]
        assert mine == list(range(ENTRIES // 3))


def test_listeners_of_every_kind_hear_each_entry_once_over_any_number_of_cuts(place: Path) -> None:
    async def awaited(url: str) -> list[int]:
        async with aio.connect(url, patience=SOON) as store:
            stream = await store.stream("s", Number)
            return [entry.value.n async for entry in stream.listen(until=ENTRIES, follow=True)]

    with node(place / "data") as url, Proxy.to(url) as proxy, hr.connect(proxy.url, patience=SOON) as store:
        stream = store.stream("s", Number)
        proxy.harm = Cutting(Random(4), 20_000)
        proxy.cut_all()
        called: list[int] = []
        listener = stream.listener(lambda entry: called.append(entry.value.n), until=ENTRIES)
        heard = in_thread(lambda: [each.value.n for each in stream.listen(until=ENTRIES, follow=True)])
        later = in_thread(lambda: asyncio.run(awaited(proxy.url)))
        with hr.connect(url) as straight, straight.stream("s", Number).publisher() as publisher:
            for n in range(ENTRIES):
                publisher.publish(Number(n))
                if n % 20 == 0:
                    publisher.flush()
        assert heard.result() == list(range(ENTRIES))
        assert later.result() == list(range(ENTRIES))
        assert listener.join(60)
        assert called == list(range(ENTRIES))
        assert listener.error is None
        assert proxy.cuts


def test_kills_of_the_node_under_load_lose_and_double_nothing(place: Path) -> None:
    daemon, over = Daemon(place / "data"), threading.Event()
    sent = [0, 0]
    url = f"http://127.0.0.1:{daemon.port}"

    def publish(name: str, base: int, shared: bool) -> None:
        with (
            hr.connect(url, patience=SOON) as store,
            store.stream(name, Number).publisher(shared=shared) as publisher,
        ):
            while not over.is_set():
                for n in range(sent[base], sent[base] + 20):
                    publisher.publish(Number(n))
                publisher.flush()
                sent[base] += 20

    with hr.connect(url, patience=SOON) as store:
        streams = [store.stream(name, Number) for name in ("alone", "shared")]
        called: list[list[int]] = [[], []]
        listeners = [
            stream.listener(lambda entry, mine=mine: mine.append(entry.value.n))
            for stream, mine in zip(streams, called, strict=True)
        ]
        work = [in_thread(lambda: publish("alone", 0, False)), in_thread(lambda: publish("shared", 1, True))]
        for _ in range(ROUNDS):
            before = list(sent)
            until(lambda before=before: all(a > b + 40 for a, b in zip(sent, before, strict=True)))
            daemon.kill()
            daemon.start()
        over.set()
        for each in work:
            each.result()
        until(lambda: [len(mine) for mine in called] == sent, "everything heard")
        assert called == [list(range(count)) for count in sent]
        assert [listener.error for listener in listeners] == [None, None]
        for stream, count in zip(streams, sent, strict=True):
            assert [entry.value.n for entry in stream.listen()] == list(range(count))
    daemon.kill()


def test_what_is_in_doubt_is_told_apart_from_what_comes_next(place: Path) -> None:
    """An answer does not come, the caller gives up on that batch and comes with another one."""
    hasty = Patience(answer_s=2.0, away_s=0.1)
    with node(place / "data") as url, Proxy.to(url) as proxy, hr.connect(proxy.url, patience=hasty) as store:
        with hr.connect(url) as straight:
            straight.stream("s", Number)
        publisher = store.stream("s", Number).publisher()
        publisher.publish_batch(pa.table({"n": [0]}))  # over a line that is there then
        proxy.harm = Swallowing()
        with pytest.raises(hr.HeadraceError):
            publisher.publish_batch(pa.table({"n": [1, 2]}))
        proxy.harm = Harm()
        proxy.cut_all()
        with pytest.raises(Broken, match="after all"):
            publisher.publish_batch(pa.table({"n": [3, 4, 5]}))
        made = publisher.publish_batch(pa.table({"n": [1, 2]}))  # the very same is answered, not doubled
        assert (made.base_index, made.next_index) == (1, 3)
        assert publisher.publish(Number(3)) == 3
        publisher.close()
    assert numbers(place / "data") == [0, 1, 2, 3]


def test_a_publisher_whose_node_is_gone_for_good_ends_with_an_error(place: Path) -> None:
    with node(place / "data") as url:
        store = hr.connect(url, patience=Patience(away_s=0.2))
        publisher = store.stream("s", Number).publisher()
        publisher.publish(Number(1))
        publisher.flush()
    publisher.publish(Number(2))
    with pytest.raises(hr.HeadraceError):
        publisher.close()
    in_thread(store.close).result()


def test_a_lease_ends_with_silence_and_whoever_was_late_is_fenced(place: Path) -> None:
    with node(place / "data", lease_s=0.3) as url, hr.connect(url) as one, hr.connect(url) as two:
        kept = one.stream("s", Number).publisher()
        kept.publish(Number(0))
        kept.flush()
        with pytest.raises(PublisherTaken):
            two.stream("s", Number).publisher()
        kept._log._carrier._renewing.cancel()  # type: ignore[attr-defined]  # as if its program hung
        until(lambda: taken(two), "the end of the lease")
        with pytest.raises(Fenced):
            kept.publish_batch(pa.table({"n": [1]}))
        kept.close()  # nothing of it is left to be told
        assert [entry.value.n for entry in two.stream("s", Number).listen()] == [0, 7]


def taken(store: Any) -> bool:
    try:
        with store.stream("s", Number).publisher() as publisher:
            publisher.publish(Number(7))
    except PublisherTaken:
        return False
    return True


PROGRAM = """
import os, sys, headrace as hr
from dataclasses import dataclass
@dataclass
class Number:
    n: int
store = hr.connect(sys.argv[1])
stream = store.stream("s", Number)
publisher = stream.publisher()
publisher.publish(Number(1)); publisher.flush()
following = stream.listen(follow=True)
next(following)
if os.fork() == 0:
    try:
        stream.next_index
    except hr.Closed:
        with hr.connect(sys.argv[1]) as mine:
            assert mine.stream("s", Number).next_index == 1
            print("child", flush=True)
        os._exit(0)
    os._exit(1)
assert os.wait()[1] == 0
print("done", flush=True)
"""


def test_a_program_that_ends_in_the_middle_ends_silently_and_a_forked_one_connects_anew(place: Path) -> None:
    with node(place / "data") as url:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, url], capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["child", "done"], "")


SHARED = """
import os, sys, headrace as hr
from dataclasses import dataclass
@dataclass
class Number:
    n: int
store = hr.connect(sys.argv[1])
stream = store.stream("s", Number)
publisher = stream.publisher()
publisher.publish(Number(1)); publisher.flush()
following = stream.listen(follow=True)
next(following)
publisher.publish(Number(2)); publisher.flush()  # it is on its way to the follower, or there
if os.fork() == 0:
    os._exit(list(following) != [])
assert os.wait()[1] == 0
assert next(following).value == Number(2)
publisher.publish(Number(3)); publisher.flush()
assert next(following).value == Number(3)
store.close()
print("done", flush=True)
"""


def test_a_forked_child_takes_nothing_from_the_lines_of_its_parent(place: Path) -> None:
    with node(place / "data") as url:
        done = subprocess.run(
            [sys.executable, "-c", SHARED, url], capture_output=True, text=True, timeout=50, check=False
        )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["done"], "")
