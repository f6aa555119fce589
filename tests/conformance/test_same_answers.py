"""The same random steps done to a directory and to a node: every answer is the same."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

import headrace as hr
from headrace.log import Finalize
from stream.samples import Named

from .faces import opened

CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))
KEYS = st.integers(0, 6)
PLACES = st.one_of(st.integers(0, 14), KEYS.map(hr.at_key), st.just(hr.START), st.just(hr.END))
UNTIL = st.none() | PLACES.filter(lambda place: place != hr.START)


class SameAnswers(RuleBasedStateMachine):
    """Keys grow slowly, so that some steps are refused; both must refuse them alike."""

    @initialize(by_key=st.booleans(), unique=st.booleans(), strict=st.booleans())
    def open(self, by_key: bool, unique: bool, strict: bool) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="headrace-same-", dir="/dev/shm"))
        self.stack = ExitStack()
        self.stores = [
            self.stack.enter_context(opened(face, self.place / face)) for face in ("open", "connect")
        ]
        self.options: dict[str, Any] = {
            "order_by": "n" if by_key else None,
            "unique_by": "id" if unique else None,
            "strict": strict and by_key,
            "settings": hr.Settings(finalize=Finalize(entries=4)),
        }
        self.streams = [store.stream("s", Named, **self.options) for store in self.stores]
        self.publishers: list[list[Any]] = [[], []]
        self.key = 0

    def both(self, work: Callable[[int], Any]) -> Any:
        answers = []
        for side in (0, 1):
            try:
                answers.append(("answer", work(side)))
            except hr.HeadraceError as error:
                answers.append((type(error).__name__, error.code))
        assert answers[0] == answers[1]
        return answers[0]

    def published(self, work: Callable[[Any], Any]) -> Any:
        """With the newest publisher, if there is one."""
        if self.publishers[0]:
            return self.both(lambda side: work(self.publishers[side][-1]))
        return None

    @rule(take_over=st.booleans())
    def open_publisher(self, take_over: bool) -> None:
        opening = self.both(lambda side: self._opened(side, take_over))
        assert opening[0] == "answer" or not take_over

    def _opened(self, side: int, take_over: bool) -> None:
        self.publishers[side].append(self.streams[side].publisher(take_over=take_over))

    @rule()
    def close_publisher(self) -> None:
        if self.publishers[0]:
            self.both(lambda side: self.publishers[side].pop().close())

    @rule(id=st.sampled_from("abcdef"), step=st.integers(-1, 2))
    def publish(self, id: str, step: int) -> None:  # noqa: A002
        entry = Named(id, max(0, self.key + step))
        answer = self.published(lambda publisher: publisher.publish(entry))
        if answer is not None and answer[0] == "answer":
            self.key = max(self.key, entry.n)

    @rule(
        ids=st.lists(st.sampled_from("abcdefghij"), max_size=5),
        steps=st.lists(st.integers(-1, 2), max_size=5),
    )
    def publish_batch(self, ids: list[str], steps: list[int]) -> None:
        count = min(len(ids), len(steps))
        keys = [max(0, self.key + sum(steps[: at + 1])) for at in range(count)]
        table = pa.table({"id": pa.array(ids[:count], pa.string()), "n": pa.array(keys, pa.int64())})
        answer = self.published(lambda publisher: publisher.publish_batch(table))
        if answer is not None and answer[0] == "answer" and keys:
            self.key = max(self.key, *keys)

    @rule(key=KEYS)
    def head(self, key: int) -> None:
        self.published(lambda publisher: publisher.head(key))

    @rule()
    def flush(self) -> None:
        self.published(lambda publisher: (publisher.flush(), publisher.next_index, publisher.durable_index))

    @rule(start=PLACES, until=UNTIL, count=st.none() | st.integers(0, 5))
    def listen(self, start: Any, until: Any, count: int | None) -> None:
        self.flush()
        self.both(lambda side: list(self.streams[side].listen(start, until=until, count=count)))

    @rule(start=PLACES, until=UNTIL)
    def listen_with_heads(self, start: Any, until: Any) -> None:
        self.flush()
        self.both(lambda side: list(self.streams[side].listen_with_heads(start, until=until)))

    @rule(start=PLACES)
    def listen_batches(self, start: Any) -> None:
        self.flush()
        self.both(lambda side: self._rows(side, start))

    def _rows(self, side: int, start: Any) -> list[Any]:
        batches = self.streams[side].listen_batches(start, columns=["n"])
        return [(batch.base_index, batch.records.to_pydict()) for batch in batches]

    @rule()
    def look(self) -> None:
        self.flush()
        self.both(lambda side: (self.streams[side].head, self.streams[side].next_index))
        self.both(lambda side: self.stores[side].streams())

    @rule()
    def drop(self) -> None:
        answer = self.both(lambda side: self.stores[side].drop("s"))
        if answer[0] == "answer":
            self.streams = [store.stream("s", Named, **self.options) for store in self.stores]
            self.key = 0

    def teardown(self) -> None:
        if hasattr(self, "stack"):
            for side in (0, 1):
                for publisher in reversed(self.publishers[side]):
                    with suppress(hr.HeadraceError):  # taken over
                        publisher.close()
            self.stack.close()
            shutil.rmtree(self.place, ignore_errors=True)


TestSameAnswers = SameAnswers.TestCase
TestSameAnswers.settings = settings(
    max_examples=300 if CAMPAIGN else 12,
    stateful_step_count=30 if CAMPAIGN else 15,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
