"""Damage: what is wrong, where, and exactly which entries are gone because of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from headrace.kernel.errors import Damaged

DamageKind = Literal["header", "body", "footer", "start", "missing", "cut", "mark"]


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged place.

    `first_lost` up to but excluding `stop_lost` are the indexes that cannot be read because of it; an
    equal pair means that no entry is lost (a footer can be rebuilt). `stop_lost` None means "to the
    end, and the log does not know how many there were".
    """

    kind: DamageKind
    file: str
    offset: int
    bytes: int
    first_lost: int
    stop_lost: int | None
    what: str

    @property
    def entries_lost(self) -> int | None:
        return None if self.stop_lost is None else self.stop_lost - self.first_lost

    def __str__(self) -> str:
        lost = (
            f"entries from {self.first_lost} on are lost"
            if self.stop_lost is None
            else f"entries {self.first_lost} to {self.stop_lost - 1} are lost"
            if self.stop_lost > self.first_lost
            else "no entry is lost"
        )
        return f"{self.file} at byte {self.offset}: {self.what}; {lost}"


class DamagedEntries(Damaged):
    """Reading came to a damaged place. Reading on after it is possible: see `on_damage`."""

    code = "damaged_entries"

    def __init__(self, directory: object, damage: Damage) -> None:
        super().__init__(
            f"{directory}: {damage}: see `headrace log verify`, read on with on_damage, or repair it"
        )
        self.directory = directory
        self.damage = damage

    def __reduce__(self) -> tuple[type, tuple[object, Damage]]:
        return type(self), (self.directory, self.damage)


@dataclass(frozen=True, slots=True)
class Report:
    """What a check of a whole log found."""

    segments: int
    batches: int
    entries: int
    bytes: int
    first_index: int
    next_index: int
    damages: tuple[Damage, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.damages

    @property
    def lost(self) -> tuple[tuple[int, int | None], ...]:
        """The lost index ranges, in order, touching ones joined."""
        joined: list[tuple[int, int | None]] = []
        for damage in sorted(self.damages, key=lambda damage: damage.first_lost):
            if damage.stop_lost == damage.first_lost:
                continue
            if joined and (joined[-1][1] is None or joined[-1][1] >= damage.first_lost):
                stop = joined[-1][1]
                ends = None if stop is None or damage.stop_lost is None else max(stop, damage.stop_lost)
                joined[-1] = (joined[-1][0], ends)
            else:
                joined.append((damage.first_lost, damage.stop_lost))
        return tuple(joined)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What opening a log for writing had to put right."""

    cut_bytes: int = 0
    cut_from_index: int | None = None
    kept_copy: str | None = None
    damages: tuple[Damage, ...] = field(default=())

    @property
    def clean(self) -> bool:
        return not self.cut_bytes and not self.damages
