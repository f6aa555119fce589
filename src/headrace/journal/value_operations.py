"""What can be done with values: each operation looks at the tables, refuses or emits events, and answers.

Nothing here waits or touches the disk, except to read back a value that is not in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headrace.journal.checks import RESERVED, new_size
from headrace.journal.errors import BadRequest, KeyTaken, Locked, MemoryFull, NoSuchKey
from headrace.journal.events import Event, Kind
from headrace.journal.ledger import Ledger
from headrace.journal.residents import VOLATILE_ROW_BYTES, Residents
from headrace.journal.rows import ValueRow
from headrace.journal.settings import JournalSettings
from headrace.journal.value import Type, added, flipped
from headrace.journal.values import ValueTable

Change = Callable[[bytes, int, bool], None]


class NewValue(NamedTuple):
    key: bytes
    type: int
    value: bytes
    stamp: int | None
    """None: now, and later than what is there, whatever the clock says."""
    expires: int | None = None
    ttl: int | None = None
    persist: bool = True
    overwrite: bool = True


class ValueOperations:
    """`changed` is told of each key that changes, with its new type, and whether an event says so."""

    def __init__(
        self,
        table: ValueTable,
        residents: Residents,
        settings: JournalSettings,
        ledger: Ledger,
        read: Callable[[ValueRow], bytes],
        changed: Change,
    ) -> None:
        self._table = table
        self._residents = residents
        self._settings = settings
        self._emit = ledger.emit
        self._read = read
        self._changed = changed

    def tick(self, now: int) -> None:
        """Values whose time is over."""
        for row in self._table.expire(now):
            for key in row.keys:
                self._changed(key, 0, False)

    def find(self, now: int, key: bytes) -> ValueRow | None:
        self.tick(now)
        row: ValueRow | None = self._table.by_key.get(key)
        return row

    def size_of(self, key: bytes) -> int:
        """Bytes of the value under a key, for who announces that it will be written again."""
        row = self._table.by_key.get(key)
        return 0 if row is None else self._table.size_of(row)

    def existing(self, now: int, key: bytes) -> ValueRow:
        row = self.find(now, key)
        if row is None:
            raise NoSuchKey(f"there is no value under {_said(key)}")
        return row

    def set(self, now: int, new: NewValue, owner: object = None) -> bool:
        """Whether it was set: False if a later write, or deletion, of that key is known already."""
        row = self.find(now, new.key)
        if row is not None and not new.overwrite:
            raise KeyTaken(f"there is a value under {_said(new.key)} already")
        self._check_lock(now, row, new.key, owner)
        known = self._table.deleted.get(new.key)
        if new.stamp is None:
            new = new._replace(stamp=max(now, row.stamp if row else 0, known.stamp if known else 0))
        assert new.stamp is not None
        if (row is not None and new.stamp < row.stamp) or (known is not None and new.stamp < known.stamp):
            return False
        if not new.persist:
            self._check_volatile(row, len(new.value))
        if row is not None and row.volatile == new.persist:
            self._convert(now, row, new)
        else:
            self._write(now, row, new)
        return True

    def first_time(self, now: int, writer: str, sequence: int) -> bool:
        """Whether that writer comes with a larger sequence than ever; then it is remembered."""
        last = self.last_sequence(now, writer)
        if last is not None and last >= sequence:
            return False
        key, value = _once_key(writer), sequence.to_bytes(8, "little", signed=True)
        self._write(now, self.find(now, key), NewValue(key, Type.INTEGER, value, now))
        return True

    def last_sequence(self, now: int, writer: str) -> int | None:
        """The largest sequence that a writer came with; None if it never came."""
        row = self.find(now, _once_key(writer))
        return None if row is None else int.from_bytes(self._read(row), "little", signed=True)

    def get(self, now: int, key: bytes) -> tuple[ValueRow, bytes] | None:
        row = self.find(now, key)
        if row is None:
            return None
        row.accessed = now
        self._residents.touched(row)
        return row, self._read(row)

    def work_on(self, now: int, key: bytes, until: int) -> None:
        """Mark the value as worked on until then."""
        row = self.existing(now, key)
        self._emit(Event(Kind.WORK, now, key=key, until=until), row.volatile)

    def touch(self, now: int, key: bytes, expires: int | None = None) -> None:
        """Move its expiry: to that time, or by its own time to live from now on; never back."""
        row = self.existing(now, key)
        wanted = expires if expires is not None else None if row.ttl is None else now + row.ttl
        if wanted is not None and (expires is not None or row.expires is None or wanted > row.expires):
            self._emit(Event(Kind.TOUCH, now, key=key, expires=wanted), row.volatile)

    def delete(
        self, now: int, key: bytes, stamp: int | None, *, erase: bool = False, owner: object = None
    ) -> bool:
        """Delete the value with all its keys. False if it was written later than `stamp` says. None: it is
        deleted now, whatever the clock said when it was written.

        A key that is not there remembers the deletion all the same; then NoSuchKey.
        """
        row = self.find(now, key)
        self._check_lock(now, row, key, owner)
        if stamp is None:
            stamp = max(now, row.stamp) if row is not None else now
        if row is not None and stamp < row.stamp:
            return False
        for each in list(row.keys) if row is not None else [key]:
            known = self._table.deleted.get(each)
            if erase:
                self._emit(Event(Kind.ERASE, now, key=each))
            elif known is None or known.stamp < stamp:
                self._emit(Event(Kind.DELETE, now, key=each, stamp=stamp))
            self._changed(each, 0, True)
        if row is None:
            raise NoSuchKey(f"there is no value under {_said(key)}")
        return True

    # Of what follows, `stamp` is when whoever asks for it says that it was; None: now.

    def add(
        self,
        now: int,
        key: bytes,
        number: tuple[int, bytes],
        owner: object = None,
        stamp: int | None = None,
    ) -> tuple[int, bytes]:
        """Add to a number: its type and new bytes."""
        row = self._to_change(now, key, owner)
        return self._rewrite(now, row, key, added(row.type, self._read(row), *number), stamp)

    def flip(self, now: int, key: bytes, owner: object = None, stamp: int | None = None) -> tuple[int, bytes]:
        row = self._to_change(now, key, owner)
        return self._rewrite(now, row, key, flipped(row.type, self._read(row)), stamp)

    def resize(
        self, now: int, key: bytes, size: int, owner: object = None, stamp: int | None = None
    ) -> tuple[int, bytes]:
        row = self._to_change(now, key, owner)
        new_size(size, self._settings.value_bytes)
        return self._rewrite(now, row, key, self._read(row)[:size].ljust(size, b"\0"), stamp)

    def lock(self, now: int, key: bytes, owner: object, until: int) -> None:
        """Nobody else changes the value until then. Locks are kept in memory only."""
        if owner is None:
            raise BadRequest("a lock needs an owner: anything that is not None")
        row = self._to_change(now, key, owner)
        row.lock_owner, row.lock_until = owner, until

    def unlock(self, now: int, key: bytes, owner: object) -> None:
        row = self._to_change(now, key, owner)
        row.lock_owner, row.lock_until = None, 0

    def rename(
        self, now: int, key: bytes, other: bytes, owner: object = None, stamp: int | None = None
    ) -> None:
        """The value is under `other` from now on instead of `key`; its further keys stay.

        With a stamp, `key` remembers it as if it was deleted then: older writes may come late.
        """
        row = self._to_change(now, key, owner)
        if key == other:
            return
        self._free(now, other)
        self._write(now, None, _again(row, other, self._read(row)), created=row.created)
        self._restore(now, row, other, key)
        if stamp is None:
            self._emit(Event(Kind.ERASE, now, key=key), row.volatile)
        else:
            self._emit(Event(Kind.DELETE, now, key=key, stamp=max(stamp, row.stamp)))
        self._changed(key, 0, stamp is not None or not row.volatile)

    def link(self, now: int, key: bytes, other: bytes, owner: object = None) -> None:
        """One more key for a value."""
        row = self._to_change(now, key, owner)
        self._free(now, other)
        self._emit(Event(Kind.LINK, now, key=key, other=other), row.volatile)
        self._changed(other, row.type, not row.volatile)

    # --- inside

    def _write(self, now: int, row: ValueRow | None, new: NewValue, *, created: int | None = None) -> None:
        if created is None:
            created = row.created if row is not None else now
        event = Event(
            Kind.SET,
            now,
            key=new.key,
            expires=new.expires,
            stamp=new.stamp,
            type=new.type,
            value=new.value,
            ttl=new.ttl,
            created=created,
        )
        self._emit(event, not new.persist)
        if row is not None and (len(row.keys) > 1 or row.lease > now):
            self._restore(now, row, new.key)  # or a sweep that is past the first saying would forget it
        for key in row.keys if row is not None else (new.key,):
            self._changed(key, new.type, new.persist)

    def _convert(self, now: int, row: ValueRow, new: NewValue) -> None:
        """A value that was in memory only is to be persisted, or the other way round, with all its keys."""
        if new.persist:
            self._write(now, row, new)
        else:  # the log must not bring the old one back
            self._emit(Event(Kind.ERASE, now, key=new.key))
            others = [key for key in row.keys if key != new.key]
            self._write(now, None, new, created=row.created)
            self._restore(now, row, new.key)
            for key in others:
                self._changed(key, new.type, True)

    def _restore(self, now: int, old: ValueRow, key: bytes, without: bytes | None = None) -> None:
        """What `old` was besides its value, the value under `key` is: its other keys, its lease, its lock."""
        row = self._table.by_key.get(key)
        if row is None:
            return  # its life was over as it was set
        for other in list(old.keys):
            if other not in (key, without):
                self._emit(Event(Kind.LINK, now, key=key, other=other), row.volatile)
        if old.lease > now:
            self._emit(Event(Kind.WORK, now, key=key, until=old.lease), row.volatile)
        row.lock_owner, row.lock_until = old.lock_owner, old.lock_until

    def _rewrite(
        self, now: int, row: ValueRow, key: bytes, value: bytes, stamp: int | None
    ) -> tuple[int, bytes]:
        if row.volatile:
            self._check_volatile(row, len(value))
        latest = max(now if stamp is None else stamp, row.stamp)
        self._write(now, row, _again(row, key, value)._replace(stamp=latest))
        return row.type, value

    def _to_change(self, now: int, key: bytes, owner: object) -> ValueRow:
        row = self.existing(now, key)
        self._check_lock(now, row, key, owner)
        return row

    def _free(self, now: int, key: bytes) -> None:
        if self.find(now, key) is not None:
            raise KeyTaken(f"there is a value under {_said(key)} already")

    def _check_lock(self, now: int, row: ValueRow | None, key: bytes, owner: object) -> None:
        if row is not None and is_locked(row, now) and (owner is None or row.lock_owner != owner):
            raise Locked(f"{_said(key)} is locked by somebody else: try again later")

    def _check_volatile(self, row: ValueRow | None, size: int) -> None:
        freed = row.size + VOLATILE_ROW_BYTES if row is not None and row.volatile else 0
        wanted = self._residents.volatile_bytes - freed + size + VOLATILE_ROW_BYTES
        if wanted > self._settings.volatile_bytes:
            raise MemoryFull(
                f"jobs and values in memory only have reached {self._settings.volatile_bytes} bytes: "
                "delete some, persist some, or allow more"
            )


def is_locked(row: ValueRow, now: int) -> bool:
    return row.lock_owner is not None and row.lock_until > now


def _again(row: ValueRow, key: bytes, value: bytes) -> NewValue:
    return NewValue(key, row.type, value, row.stamp, row.expires, row.ttl, not row.volatile)


def _said(key: bytes) -> str:
    return repr(key.decode(errors="replace"))


def _once_key(writer: str) -> bytes:
    return RESERVED + b"once:" + writer.encode()
