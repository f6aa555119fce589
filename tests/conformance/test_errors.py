"""What is lost on the disk is told alike, wherever it is read from; and so is every mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.log import DamagedEntries, Finalize, Log
from headrace.log.damage import Damage
from stream.samples import Named, Number, Order, order, publish_all
from stream.test_crash import filled, segments

from .faces import FACES, opened


def test_all_faces_tell_the_same_damage(place: Path) -> None:
    path = place / "data"
    with hr.open(path) as store:
        filled(store, "none")
        harmed = segments(store)[1]
    content = bytearray(harmed.read_bytes())
    content[len(content) // 2] ^= 0xFF
    harmed.write_bytes(content)
    seen = []
    for face in FACES:
        with opened(face, path) as store:
            stream = store.stream("s", Order, order_by="at")
            told: list[Damage] = []
            heard = [(entry.index, entry.value) for entry in stream.listen(on_damage=told.append)]
            with pytest.raises(DamagedEntries) as raised:
                list(stream.listen())
            seen.append((told, raised.value.damage, heard))
    assert seen[0] == seen[1] == seen[2]
    (damage,) = seen[0][0]
    assert {index for index, _ in seen[0][2]} | set(range(damage.first_lost, damage.stop_lost or 0)) == set(
        range(200)
    )


def test_all_faces_verify_alike(place: Path) -> None:
    path = place / "data"
    with hr.open(path) as store:
        filled(store, "none")
        harmed = segments(store)[1]
    reports: list[list[Any]] = [[], []]
    for number in (0, 1):
        for face in FACES:
            told: list[tuple[int, int]] = []
            with opened(face, path) as store:
                stream = store.stream("s", Order, order_by="at")
                report = stream.verify(lambda done, total, told=told: told.append((done, total)))
                assert stream.verify() == report
            reports[number].append((report, told))
        content = bytearray(harmed.read_bytes())
        content[len(content) // 2] ^= 0xFF
        harmed.write_bytes(content)
    for each in reports:
        assert each[0] == each[1] == each[2]
    (whole, told), (damaged, _) = reports[0][0], reports[1][0]
    assert whole.ok
    assert whole.entries == 200
    assert told[-1][0] == told[-1][1] > 0
    assert len(damaged.damages) == 1


def test_a_listener_over_a_node_may_ask_it_about_the_damage(place: Path) -> None:
    """What it is told with runs in its own thread, not in the one that talks to the node."""
    with hr.open(place / "data") as store:
        filled(store, "none")
        segments(store)[2].unlink()
    with opened("connect", place / "data") as store:
        stream = store.stream("s", Order, order_by="at")
        asked: list[int] = []
        heard = list(stream.listen(on_damage=lambda damage: asked.append(stream.next_index)))
        assert asked == [200]
        assert [entry.value for entry in heard] == [order(entry.index) for entry in heard]


def test_all_faces_tell_that_entries_were_trimmed(place: Path) -> None:
    settings = hr.Settings(finalize=Finalize(entries=10))
    with hr.open(place / "data") as store:
        stream = store.stream("s", Number, settings=settings)
        with stream.publisher() as publisher:
            for base in range(0, 50, 10):
                publisher.publish_batch(pa.table({"n": range(base, base + 10)}))
    with Log.open(place / "data" / "streams" / "s") as log:
        log.trim(20)
    for face in FACES:
        with opened(face, place / "data") as store:
            stream = store.stream("s", Number)
            with pytest.raises(hr.HeadraceError) as raised:
                list(stream.listen(5))
            assert raised.value.code == "trimmed"
            assert [entry.index for entry in stream.listen()] == list(range(20, 50))
            assert stream.info().first_index == 20


MISTAKES: dict[str, Callable[[Any], Any]] = {
    "bad name": lambda store: store.stream("../x", Number),
    "no such stream": lambda store: store.stream("nothing"),
    "nothing to drop": lambda store: store.drop("nothing"),
    "other type": lambda store: store.stream("s", Order),
    "other key": lambda store: store.stream("s", Named, order_by="id"),
    "there already": lambda store: store.create("s", hr.StreamConfig(Named)),
    "other settings": lambda store: store.ensure("s", hr.StreamConfig(Named, "n", strict=True)),
    "bad settings": lambda store: store.stream("t", Named, unique_by="nothing"),
    "bad entry": lambda store: publish_all(named(store), [Named("a", "x")]),  # type: ignore[arg-type]
    "key order": lambda store: publish_all(named(store), [Named("a", 10), Named("b", 9)]),
    "batch out of order": lambda store: batch(store, {"id": ["p", "q"], "n": [20, 19]}),
    "batch of another schema": lambda store: batch(store, {"id": [1], "n": ["x"]}),
    "head goes back": lambda store: head(store, 1),
    "bad place": lambda store: list(named(store).listen("middle")),
    "bad key": lambda store: list(named(store).listen(hr.at_key("x"))),
    "no such column": lambda store: list(named(store).listen_batches(columns=["x"])),
}


def named(store: Any) -> Any:
    return store.stream("s", Named, order_by="n")


def batch(store: Any, columns: dict[str, Any]) -> Any:
    with named(store).publisher() as publisher:
        return publisher.publish_batch(pa.table(columns))


def head(store: Any, key: int) -> None:
    with named(store).publisher() as publisher:
        publisher.head(key)


def test_all_faces_tell_the_same_mistake_by_the_same_error(place: Path) -> None:
    said: dict[str, list[tuple[str, str]]] = {}
    for face in FACES:
        with opened(face, place / face) as store:
            publish_all(named(store), [Named("first", 5)])
            for what, mistake in MISTAKES.items():
                with pytest.raises(hr.HeadraceError) as raised:
                    mistake(store)
                said.setdefault(what, []).append((type(raised.value).__name__, raised.value.code))
    assert {what: answers for what, answers in said.items() if len(set(answers)) > 1} == {}
