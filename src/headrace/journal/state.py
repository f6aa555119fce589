"""The state of a journal: what its events fold to. Replay is its only constructor."""

from __future__ import annotations

from headrace.journal.events import Event
from headrace.journal.jobs import JobTable
from headrace.journal.residents import Residents
from headrace.journal.settings import JournalSettings
from headrace.journal.values import ValueTable


class State:
    def __init__(self, settings: JournalSettings, opened_at: int = 0) -> None:
        self.residents = Residents(settings.memory_bytes)
        self.jobs = JobTable(self.residents)
        self.jobs.opened_at = opened_at
        self.values = ValueTable(self.residents)
        self.by_kind = {**self.jobs.apply, **self.values.apply}
        """How to fold in an event of each kind."""

    def apply(self, event: Event, place: int) -> None:
        """Fold in one event. `place` is its index in the log; negative for what is not logged."""
        self.by_kind[event.kind](event, place)

    @property
    def live(self) -> int:
        """Jobs, values and remembered deletions: how many events would say all."""
        return len(self.jobs) + len(self.values)
