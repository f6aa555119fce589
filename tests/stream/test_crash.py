"""What the log promises holds for streams: kills lose nothing acknowledged, damage shows no wrong entry."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from random import Random
from typing import Any

import pytest

import headrace as hr
from headrace.log import DamagedEntries, Finalize
from headrace.log.damage import Damage
from waiting import until

from .samples import Order, life, order, publish_all, values


def test_kills_in_the_middle_of_publishing_lose_nothing_acknowledged(store: hr.Store) -> None:
    """A process is killed again and again; a listener follows all the time and hears every entry once."""
    stream = store.stream("s", Order, order_by="at", settings=hr.Settings(finalize=Finalize(entries=64)))
    heard: list[Any] = []
    listener = stream.listener(heard.append)
    durable = checked = 0
    for number in range(20):
        said = life(2 + number * 7 % 23, "publish", store.path, "s", stream.next_index)
        durable = max([durable, *(int(words[0]) for words in said if words[0].isdigit())])
        assert stream.next_index >= durable
        count = stream.next_index
        assert values(stream, checked, until=count) == [order(n) for n in range(checked, count)]
        checked = max(0, count - 100)  # a kill may only touch the end
    assert durable > 100
    with stream.publisher() as publisher:  # it may find entries that nobody was told of before a kill
        publisher.publish(order(publisher.next_index))
    assert stream.verify().ok
    until(lambda: len(heard) == stream.next_index or listener.state == "ended", "hearing all of it")
    assert listener.error is None
    listener.stop()
    assert [(entry.index, entry.value) for entry in heard] == [
        (n, order(n)) for n in range(stream.next_index)
    ]


def segments(store: hr.Store) -> list[Path]:
    return sorted(
        path for path in (store.path / "streams" / "s").iterdir() if path.suffix in (".seg", ".active")
    )


def filled(store: hr.Store, compression: Any) -> hr.Stream:
    settings = hr.Settings(finalize=Finalize(entries=40), compression=compression)
    stream = store.stream("s", Order, order_by="at", settings=settings)
    with stream.publisher() as publisher:
        for base in range(0, 200, 8):
            for n in range(base, base + 8):
                publisher.publish(order(n))
            publisher.flush()
    return stream


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("how", ["flip", "cut", "zeros", "gone"])
def test_damage_is_told_and_never_shows_a_wrong_entry(store: hr.Store, how: str, compression: Any) -> None:
    stream = filled(store, compression)
    chance = Random(f"{how} {compression}")
    whole = [order(n) for n in range(200)]
    found = 0
    for _ in range(25):
        path = chance.choice([each for each in segments(store) if each.stat().st_size])
        before = path.read_bytes()
        _harm(path, before, how, chance)
        told: list[Damage] = []
        try:
            heard = [(entry.index, entry.value) for entry in stream.listen()]
            assert heard == list(enumerate(whole))[: len(heard)]
            told_by_error = False
        except DamagedEntries:
            told_by_error = True
        entries = [(entry.index, entry.key, entry.value) for entry in stream.listen(on_damage=told.append)]
        for index, key, value in entries:
            assert (key, value) == (whole[index].at, whole[index])
        indexes = [index for index, _, _ in entries]
        assert indexes == sorted(set(indexes))
        missing = set(range(200)) - set(indexes)
        lost = {n for damage in told for n in range(damage.first_lost, damage.stop_lost or 200)}
        assert missing <= lost
        assert told_by_error == bool(told)
        found += told_by_error
        path.write_bytes(before)
    assert found >= 5
    assert values(stream) == whole


def _harm(path: Path, before: bytes, how: str, chance: Random) -> None:
    at = chance.randrange(len(before))
    if how == "flip":
        path.write_bytes(before[:at] + bytes([before[at] ^ 1 << chance.randrange(8)]) + before[at + 1 :])
    elif how == "cut":
        path.write_bytes(before[:at])
    elif how == "zeros":
        path.write_bytes(before[:at] + bytes(min(300, len(before) - at)) + before[at + 300 :])
    else:
        path.unlink()


def test_a_listener_is_told_of_damage_by_its_error_or_reads_on(store: hr.Store) -> None:
    stream = filled(store, "none")
    path = segments(store)[1]
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    strict = stream.listener(lambda entry: None, until=200)
    told: list[Damage] = []
    heard: list[int] = []
    patient = stream.listener(lambda entry: heard.append(entry.index), until=200, on_damage=told.append)
    assert strict.join(60)
    assert patient.join(60)
    assert isinstance(strict.error, DamagedEntries)
    assert patient.error is None
    assert len(told) == 1
    assert sorted({*heard, *range(told[0].first_lost, told[0].stop_lost or 0)}) == list(range(200))
    report = stream.verify()
    assert report.lost == ((told[0].first_lost, told[0].stop_lost),)


def test_publishing_goes_on_after_a_torn_tail_was_cut(store: hr.Store) -> None:
    stream = filled(store, "none")
    publish_all(stream, [dataclasses.replace(order(200), user="x" * 500)])
    (active,) = (store.path / "streams" / "s").glob("*.active")
    mark = store.path / "streams" / "s" / "mark"
    active.write_bytes(active.read_bytes()[:-100])
    mark.unlink(missing_ok=True)  # as after a power cut, which took both
    with stream.publisher() as publisher:
        assert publisher.publish(order(200)) == 200
    assert values(store.stream("s", Order, order_by="at"))[-1] == order(200)
