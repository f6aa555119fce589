"""Copies on disks that fill up, and power cuts while frames land: what was lost comes again, and once."""

from __future__ import annotations

import contextlib
import errno
import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernel.errors import DiskFull, HeadraceError
from headrace.log import landing
from headrace.log.copy import LogCopy
from log.copies import ORIGIN, commits, deliver, is_beginning, live, past, sent, source

from .disks import FailingDisk, PowerCut, RecordingDisk

CAMPAIGN = bool(os.environ.get("HEADRACE_CAMPAIGN"))


@pytest.fixture(autouse=True)
def _small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landing, "_PORTION_BYTES", 1)


@settings(max_examples=1000 if CAMPAIGN else 25, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from(PowerCut.KINDS))
def test_after_a_power_cut_at_any_moment_the_copy_ends_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, kind: str
) -> None:
    chance, path = Random(seed), tmp_path_factory.mktemp("copies")
    with source(path / "source") as log:
        live(log, chance, 15)
        (path / "before").mkdir()
        disk = RecordingDisk(path / "before")
        copy = LogCopy.open(path / "before" / "copy", ORIGIN, disk=disk)
        deliver(copy, [b"".join(sent(log, None, chance.randint(1, 4)))])
        when = chance.randint(0, len(disk.journal))
        copy.close()
        (path / "after").mkdir()
        disk.after_power_cut(path / "after", when, PowerCut(kind, seed))
        again = LogCopy.open(path / "after" / "copy", ORIGIN)
        if again.claim is not None:
            assert is_beginning(past(path / "after" / "copy"), past(path / "source"))
        assert deliver(again, [b"".join(sent(log, again.claim))]) is None
        again.close()
    assert past(path / "after" / "copy") == past(path / "source")
    assert commits(path / "after" / "copy") == commits(path / "source")


@settings(max_examples=500 if CAMPAIGN else 25, deadline=None)
@given(st.integers(0, 1 << 32), st.sampled_from([errno.ENOSPC, errno.EIO]), st.integers(0, 60))
def test_a_disk_that_is_full_or_fails_costs_time_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, seed: int, code: int, fail_at: int
) -> None:
    chance, path = Random(seed), tmp_path_factory.mktemp("copies")
    disk = FailingDisk(fail_at, code, part=chance.random())
    with source(path / "source") as log:
        live(log, chance, 15)
        for _ in range(3):
            with contextlib.suppress(HeadraceError):
                copy = LogCopy.open(path / "copy", ORIGIN, disk=disk)
                with contextlib.closing(copy):
                    error = deliver(copy, [b"".join(sent(log, copy.claim, 1))])
                    if isinstance(error, DiskFull) and copy.claim is not None:  # it can go on as it is
                        disk.heal()
                        assert deliver(copy, [b"".join(sent(log, copy.claim))]) is None
            disk.heal()
    assert past(path / "copy") == past(path / "source")
