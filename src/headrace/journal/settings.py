"""Settings of a journal, stored with it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from headrace.journal.errors import BadRequest
from headrace.kernel.backoff import Backoff
from headrace.kernel.durations import microseconds
from headrace.kernel.limits import BATCH_BYTES_MAX
from headrace.log.settings import Containers, Durability

VALUE_BYTES_MAX = BATCH_BYTES_MAX - (2 << 20)
"""A value with its keys and its domain fits one frame of the log."""
DAY_US = 24 * 3600 * 1_000_000
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class JournalSettings:
    durability: Durability = "fsync"
    """When an operation returns: "fsync" (on the disk; the default), "interval" (written; a background thread
    syncs every `sync_interval_ms`), "os" (written; the kernel decides)."""
    sync_interval_ms: int = 50
    lease: str | float = "24h"
    """How long a job is leased when `next` does not say."""
    max_attempts: int | None = None
    """A job that was taken so often and not done is put aside as dead; None: it comes back for ever."""
    retry: Backoff = field(default_factory=Backoff)
    fair: bool = False
    """Whether `next` without a domain serves domains in turn, instead of by priority over all."""
    keep_highest_priority: bool = False
    """Whether putting a pending job again can only raise its priority, instead of setting it."""
    history: str | float | None = None
    """How long events stay in the log after they have become history, for analysis; None: not at all.
    "forever" keeps all."""
    memory_bytes: int = 256 * MIB
    """Values beyond this leave memory, those not used for longest first, and are read back from disk."""
    volatile_bytes: int = 64 * MIB
    """Values that are in memory only are refused beyond this."""
    value_bytes: int = 64 * MIB
    """The largest value; where there are containers, half of one at most."""
    keep_deleted: str | float = "24h"
    """How long a deleted key remembers when, to refuse writes that are older."""
    containers: Containers | None = None
    """Preallocated files that the log uses again and again; with a limit, a journal that is full says so."""

    def checked(self) -> JournalSettings:
        """These settings, or BadRequest with the first thing that is wrong."""
        try:
            msgspec.convert(msgspec.to_builtins(self), JournalSettings)
        except (msgspec.ValidationError, TypeError) as error:
            raise BadRequest(f"settings of a journal: {error}") from error
        if self.containers is not None and self.containers.bytes <= 0:
            raise BadRequest(f"a container has some bytes, not {self.containers.bytes}")
        retry = self.retry
        if not (0 <= retry.first_s <= retry.longest_s < 1e9 and 1 <= retry.factor < 1e6):
            raise BadRequest(f"retry is a pause from 0 on that grows up to a longest one, not {retry}")
        if self.durability not in ("fsync", "interval", "os"):
            raise BadRequest(f"durability is 'fsync', 'interval' or 'os', not {self.durability!r}")
        if self.max_attempts is not None and self.max_attempts < 1:
            raise BadRequest(f"max_attempts counts from 1, not {self.max_attempts}")
        for name in ("sync_interval_ms", "memory_bytes", "volatile_bytes", "value_bytes"):
            if not getattr(self, name) > 0:
                raise BadRequest(f"{name} must be a positive number, not {getattr(self, name)!r}")
        if self.value_bytes > VALUE_BYTES_MAX:
            raise BadRequest(f"value_bytes is {VALUE_BYTES_MAX} at most, not {self.value_bytes}")
        if microseconds(self.lease) <= 0:
            raise BadRequest(f"a lease must last some time, not {self.lease!r}")
        microseconds(self.keep_deleted)
        if self.history not in (None, "forever"):
            microseconds(self.history)
        return self
