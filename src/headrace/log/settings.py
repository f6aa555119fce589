"""Settings: the policies of one log, stored with it.

durability   when `sync()` returns: "fsync" (on the disk; the default), "interval" (written; a
             background thread syncs every `sync_interval_ms`), "os" (written; the kernel decides)
finalize     when the active segment is closed and named: bytes, entries or age, whichever is first
retention    which whole segments may go: older than, beyond so many bytes or entries, or consumed
             by every named position
containers   preallocated files of one size that are used again and again: a ring
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from headrace.kernel.errors import BadSettings
from headrace.kernel.limits import (
    CONTAINER_BYTES_MAX,
    CONTAINER_BYTES_MIN,
    SECTOR_BYTES,
    SYNC_INTERVAL_MS_MAX,
)

Durability = Literal["fsync", "interval", "os"]
Compression = Literal["none", "lz4", "zstd"]

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Finalize:
    """The active segment is finalized by the first of these to be reached."""

    bytes: int = 128 * MIB
    entries: int = 100_000_000
    age_s: float = 3600.0


SCAN = Finalize()
"""Segments as scans like them: few and large."""

SHERLOCK = Finalize(bytes=10_000_000, entries=100_000_000, age_s=24 * 3600.0)
"""The literal values of the Sherlock design."""


@dataclass(frozen=True, slots=True)
class Retention:
    """What may be removed, by whole segments; None means never."""

    age_s: float | None = None
    bytes: int | None = None
    entries: int | None = None
    consumed: bool = False

    @property
    def keeps_all(self) -> bool:
        return self.age_s is None and self.bytes is None and self.entries is None and not self.consumed


@dataclass(frozen=True, slots=True)
class Containers:
    """Preallocated files: `bytes` each, fixed for the log's life; `initial` made at once; `limit` at most."""

    bytes: int = 1 * MIB
    initial: int = 2
    limit: int | None = None

    @property
    def portion_bytes(self) -> int:
        """What gathers is appended in such portions: they surely fit, and leave little room unused."""
        return self.bytes // 4


@dataclass(frozen=True, slots=True)
class Settings:
    durability: Durability = "fsync"
    sync_interval_ms: int = 50
    compression: Compression = "none"
    finalize: Finalize = field(default_factory=Finalize)
    retention: Retention = field(default_factory=Retention)
    containers: Containers | None = None
    write_buffers: int = 1
    """Appended batches held back before they are written together; `sync()` writes them in any case."""

    def checked(self) -> Settings:
        """These settings with containers rounded, or BadSettings with the first thing that is wrong."""
        if self.durability not in ("fsync", "interval", "os"):
            raise BadSettings(f"durability is 'fsync', 'interval' or 'os', not {self.durability!r}")
        if self.compression not in ("none", "lz4", "zstd"):
            raise BadSettings(f"compression is 'none', 'lz4' or 'zstd', not {self.compression!r}")
        finalize = self.finalize
        for name, value in (
            ("sync_interval_ms", self.sync_interval_ms),
            ("write_buffers", self.write_buffers),
            ("finalize.bytes", finalize.bytes),
            ("finalize.entries", finalize.entries),
            ("finalize.age_s", finalize.age_s),
        ):
            if not (value > 0 and math.isfinite(value)):
                raise BadSettings(f"{name} must be a positive number, not {value!r}")
        if self.sync_interval_ms > SYNC_INTERVAL_MS_MAX:
            raise BadSettings(
                f"sync_interval_ms is at most {SYNC_INTERVAL_MS_MAX}, a day, not {self.sync_interval_ms!r}"
            )
        retention = self.retention
        for name, limit in (
            ("retention.age_s", retention.age_s),
            ("retention.bytes", retention.bytes),
            ("retention.entries", retention.entries),
        ):
            if limit is not None and not (limit >= 0 and math.isfinite(limit)):
                raise BadSettings(f"{name} must be a number from 0 on, not {limit!r}")
        return replace(self, containers=self.containers and _rounded(self.containers))


def _rounded(containers: Containers) -> Containers:
    size = max(containers.bytes, CONTAINER_BYTES_MIN)
    size = -(-size // SECTOR_BYTES) * SECTOR_BYTES
    if size > CONTAINER_BYTES_MAX:
        raise BadSettings(f"a container has at most {CONTAINER_BYTES_MAX} bytes, not {size}")
    initial = max(containers.initial, 2)
    if containers.limit is not None and containers.limit < initial:
        raise BadSettings(f"at least {initial} containers are needed; the limit is {containers.limit}")
    return replace(containers, bytes=size, initial=initial)
