"""Tests of streams get a store that is behind a node."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stream import samples

from .faces import opened

HERE = Path(__file__).parent


CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))
VARIANTS = 1
"""So many parameters of a test are tried for each face, outside of the campaign."""

BLOCKING_ONLY = {
    "test_listening_is_slicing_a_list",
    "test_a_place_that_is_none_is_refused",
    "test_a_closed_stream_is_not_listened_to",
    "test_head_reaches_listeners_of_every_kind",
    "test_a_full_disk_is_told_and_nothing_is_lost_once_there_is_room",
    "test_the_entry_whose_publishing_failed_is_not_there_and_can_be_published_again",
    "test_a_publisher_that_was_taken_over_does_not_use_up_ids",
    "test_a_lost_or_damaged_index_is_made_again_from_the_log",
    "test_indexes_are_right_while_the_background_writes",
}
"""Besides what is about listeners and callbacks: the client for asyncio has none. Nor does it have a stream
that can be closed, and with unique ids its `publish` waits for the node."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "face" in metafunc.fixturenames:
        name = metafunc.function.__name__
        blocking = name in BLOCKING_ONLY or "_listener" in name or "callback" in name
        metafunc.parametrize("face", ["connect"] if blocking else ["connect", "aio"], scope="function")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A few variants of each test; the campaign has them all."""
    tried: Counter[tuple[str, ...]] = Counter()
    kept = []
    for item in items:
        call = getattr(item, "callspec", None)
        if not CAMPAIGN and call is not None and "face" in call.params and HERE in item.path.parents:
            which = (str(item.path), item.function.__name__, call.params["face"])  # type: ignore[attr-defined]
            tried[which] += 1
            if tried[which] > VARIANTS:
                continue
        kept.append(item)
    items[:] = kept


@pytest.fixture
def store(face: str, place: Path) -> Iterator[Any]:
    with opened(face, place / "data") as made:
        yield made


@pytest.fixture(autouse=True)
def _through_a_node(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Properties make their own stores, for each example."""
    if "face" in request.fixturenames:
        chosen = request.getfixturevalue("face")
        monkeypatch.setattr(samples, "opened", lambda path: opened(chosen, Path(path)))


@pytest.fixture(autouse=True)
def _quiet(quiet_log: None) -> None: ...
