"""The settings of a journal and those of its log: the log's meta has both."""

from __future__ import annotations

import msgspec

from headrace.journal.settings import VALUE_BYTES_MAX, JournalSettings
from headrace.kernel.errors import Damaged
from headrace.log.log import Log
from headrace.log.settings import Finalize, Settings


def settings_of(log: Log) -> JournalSettings:
    try:
        return msgspec.convert(log.meta.extra["journal"], JournalSettings)
    except (KeyError, msgspec.ValidationError) as error:
        raise Damaged(f"{log.path} is not the log of a journal, or a newer one ({error})") from error


def value_bytes_of(log: Log) -> int:
    """As the settings say, but never more than what a frame, or half a container, holds."""
    containers = log.meta.settings.containers
    most = VALUE_BYTES_MAX if containers is None else containers.bytes // 2
    return min(settings_of(log).value_bytes, most)


def log_settings(settings: JournalSettings) -> Settings:
    return Settings(
        durability="os" if settings.durability == "os" else "fsync",
        finalize=Finalize(bytes=16 << 20, age_s=3600.0),
        containers=settings.containers,
    )
