"""The values of a journal: tables that events fold into. Nothing here decides, everything here is replayable.

A value has one key or several. Keys are bytes and sorted, for range reads. A deleted key remembers when, for
a while. Values expire by themselves, without an event: everybody can tell by their time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from sortedcontainers import SortedDict

from headrace.journal.events import Event, Kind
from headrace.journal.lane import worth_a_look
from headrace.journal.residents import Residents
from headrace.journal.rows import ValueRow

FIRST_KEY = b"\1"
"""Before it are the journal's own keys."""


class Deleted(NamedTuple):
    stamp: int
    at: int
    place: int


class ValueTable:
    def __init__(self, residents: Residents) -> None:
        self.by_key: SortedDict[bytes, ValueRow] = SortedDict()
        self.deleted: dict[bytes, Deleted] = {}
        self._deletions: deque[tuple[int, bytes]] = deque()
        self._expiring: list[tuple[int, int, ValueRow]] = []
        self._count = 0
        self._residents = residents
        self._by_kind: dict[int, Callable[[Event, int], None]] = {
            Kind.SET: self._set,
            Kind.LINK: self._link,
            Kind.DELETE: self._delete,
            Kind.ERASE: self._erase,
            Kind.TOUCH: self._touch,
            Kind.WORK: self._work,
        }
        self.apply = dict.fromkeys(self._by_kind, self._fold)

    def __len__(self) -> int:
        return len(self.by_key) + len(self.deleted)

    @property
    def count(self) -> int:
        """How many keys there are, without the journal's own."""
        return len(self.by_key) - int(self.by_key.bisect_left(FIRST_KEY))

    def rows(self) -> Iterator[tuple[bytes, ValueRow]]:
        yield from self.by_key.items()

    def size_of(self, row: ValueRow) -> int:
        """Bytes of a value, wherever it is."""
        return self._residents.size_of(row)

    def expire(self, now: int) -> list[ValueRow]:
        """Remove the values whose time is over."""
        gone = []
        while self._expiring and self._expiring[0][0] <= now:
            entry = heappop(self._expiring)
            if self._still(entry):
                gone.append(entry[2])
                self._remove(entry[2])
        return gone

    def forget_deleted(self, before: int) -> None:
        """Keys that were deleted before that time need not remember it any more."""
        while self._deletions and self._deletions[0][0] < before:
            at, key = self._deletions.popleft()
            known = self.deleted.get(key)
            if known is not None and known.at == at:
                del self.deleted[key]

    # --- what each event does

    def _fold(self, event: Event, place: int) -> None:
        """Values expire without an event: in a replay, what was over when this happened must go first."""
        if self._expiring and self._expiring[0][0] <= event.at:
            self.expire(event.at)
        self._by_kind[event.kind](event, place)

    def _set(self, event: Event, place: int) -> None:
        assert event.key is not None
        row = self.by_key.get(event.key)
        if row is None:
            row = self.by_key[event.key] = ValueRow(event.key)
        volatile = place < 0
        if row.volatile != volatile:
            self._residents.forget(row)  # it is counted elsewhere from now on
            row.volatile = volatile
        row.type = event.type or 0
        row.expires, row.ttl = event.expires, event.ttl
        row.created = event.created or event.at
        row.modified = event.at
        row.accessed = max(row.accessed, event.at)
        row.stamp = event.stamp or 0
        row.place = place
        self._residents.changed(row, event.value or b"")
        self.deleted.pop(event.key, None)
        self._watch_expiry(row)

    def _link(self, event: Event, place: int) -> None:
        row = self.by_key.get(event.key or b"")
        if row is None or event.other is None:
            return
        earlier = self.by_key.get(event.other)
        if earlier is row:
            return
        if earlier is not None:
            earlier.keys.remove(event.other)
            if not earlier.keys:
                self._residents.forget(earlier)
        self.by_key[event.other] = row
        row.keys.append(event.other)
        self.deleted.pop(event.other, None)

    def _delete(self, event: Event, place: int) -> None:
        assert event.key is not None
        row = self.by_key.get(event.key)
        if row is not None:
            self._remove(row)
        self.deleted[event.key] = Deleted(event.stamp or 0, event.at, place)
        self._deletions.append((event.at, event.key))

    def _erase(self, event: Event, place: int) -> None:
        row = self.by_key.get(event.key or b"")
        if row is not None:
            self._remove(row)
        self.deleted.pop(event.key or b"", None)

    def _touch(self, event: Event, place: int) -> None:
        row = self.by_key.get(event.key or b"")
        if row is not None:
            row.expires = event.expires
            self._watch_expiry(row)

    def _work(self, event: Event, place: int) -> None:
        row = self.by_key.get(event.key or b"")
        if row is not None:
            row.lease = event.until or 0

    # --- inside

    def _remove(self, row: ValueRow) -> None:
        for key in row.keys:
            if self.by_key.get(key) is row:
                del self.by_key[key]
        self._residents.forget(row)

    def _watch_expiry(self, row: ValueRow) -> None:
        if row.expires is not None:
            self._count += 1
            heappush(self._expiring, (row.expires, self._count, row))
            if worth_a_look(self._expiring):
                self._expiring = [entry for entry in self._expiring if self._still(entry)]
                heapify(self._expiring)

    def _still(self, entry: tuple[int, int, ValueRow]) -> bool:
        time, _count, row = entry
        return row.expires == time and bool(row.keys) and self.by_key.get(row.keys[0]) is row
