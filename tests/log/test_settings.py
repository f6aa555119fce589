"""Settings: what is wrong is named, containers are rounded."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import BadSettings
from headrace.kernel.limits import CONTAINER_BYTES_MAX, CONTAINER_BYTES_MIN, SECTOR_BYTES
from headrace.log import SHERLOCK, Containers, Finalize, Retention, Settings


def test_the_defaults_are_durable_and_pass() -> None:
    assert Settings().checked() == Settings()
    assert Settings().durability == "fsync"
    assert Settings().retention.keeps_all


def test_the_sherlock_preset_has_the_values_of_its_design() -> None:
    assert (SHERLOCK.entries, SHERLOCK.bytes, SHERLOCK.age_s) == (100_000_000, 10_000_000, 86_400)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        (Settings(durability="maybe"), "durability"),  # type: ignore[arg-type]
        (Settings(compression="gzip"), "compression"),  # type: ignore[arg-type]
        (Settings(sync_interval_ms=0), "sync_interval_ms"),
        (Settings(sync_interval_ms=10**30), "sync_interval_ms"),
        (Settings(write_buffers=0), "write_buffers"),
        (Settings(finalize=Finalize(bytes=0)), "finalize.bytes"),
        (Settings(finalize=Finalize(entries=-1)), "finalize.entries"),
        (Settings(finalize=Finalize(age_s=0)), "finalize.age_s"),
        (Settings(finalize=Finalize(age_s=math.nan)), "finalize.age_s"),
        (Settings(retention=Retention(age_s=-1)), "retention.age_s"),
        (Settings(retention=Retention(bytes=-1)), "retention.bytes"),
        (Settings(retention=Retention(entries=-1)), "retention.entries"),
        (Settings(containers=Containers(limit=1)), "containers"),
        (Settings(containers=Containers(initial=5, limit=4)), "containers"),
        (Settings(containers=Containers(bytes=CONTAINER_BYTES_MAX + 1)), "container"),
    ],
)
def test_each_wrong_setting_is_named(wrong: Settings, name: str) -> None:
    with pytest.raises(BadSettings, match=name):
        wrong.checked()


@given(st.integers(-5, CONTAINER_BYTES_MAX), st.integers(-3, 9))
def test_containers_are_rounded_up_to_whole_sectors_and_the_least_size(size: int, initial: int) -> None:
    checked = Settings(containers=Containers(size, initial)).checked()
    made = checked.containers
    assert made is not None
    assert made.bytes >= max(size, CONTAINER_BYTES_MIN)
    assert made.bytes % SECTOR_BYTES == 0
    assert made.bytes - max(size, CONTAINER_BYTES_MIN) < SECTOR_BYTES
    assert made.initial == max(initial, 2)
    assert checked.checked() == checked
    assert replace(checked, containers=None) == Settings()
