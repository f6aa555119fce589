"""What a review found about looking at a log that moves, each as the smallest scenario that shows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.log import Containers, Log, Settings
from headrace.log.disk import Disk, File

from .entries import SCHEMA
from .scenes import append


class MeanwhileDisk(Disk):
    """A reader's disk. Once something happens: when the names were `listed`, or before a file is opened."""

    def __init__(self, happens: Callable[[], None], when: str) -> None:
        self._happens = happens
        self._when = when
        self.armed = False

    def names(self, directory: Path) -> list[str]:
        names = super().names(directory)
        if self._when == "listed":
            self._now()
        return names

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        if path.name.endswith(self._when):
            self._now()
        return super().open(path, write=write, create=create)

    def _now(self) -> None:
        if self.armed:
            self.armed = False
            self._happens()


def moving(place: Path, settings: Settings | None = None) -> tuple[Log, Callable[[], None]]:
    """A log of three segments, and what its writer does meanwhile: it rolls, appends and trims."""
    log = Log.open(place / "log", SCHEMA, settings, order_by="key")
    for _ in range(3):
        append(log, 5)
        log.roll()
    append(log, 5)
    log.sync()

    def happens() -> None:
        log.roll()
        append(log, 5)
        log.sync()
        log.trim(10)

    return log, happens


LOOKS = {
    "verify": (lambda log: log.verify().damages, [()]),
    "info": (lambda log: log.info().next_index, [20, 25]),
    "seek_key": (lambda log: log.seek_key(11), [11]),
    "seek_key to what is trimmed": (lambda log: log.seek_key(1), [1, 10]),
}
"""What one can ask, and what may be answered: as it is before or after."""


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 << 10)], ids=["files", "containers"])
@pytest.mark.parametrize(("look", "answers"), LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("when", ["listed", ".seg", ".active", "mark"])
def test_what_a_writer_does_meanwhile_is_neither_damage_nor_an_error(place, containers, look, answers, when):
    log, happens = moving(place, Settings(containers=containers))
    disk = MeanwhileDisk(happens, when)
    with Log.open(place / "log", read_only=True, disk=disk) as reader:
        disk.armed = True
        assert look(reader) in answers
    log.close()


def test_a_container_that_is_used_again_while_it_is_verified_is_no_damage(place):
    log = Log.open(place / "log", SCHEMA, Settings(containers=Containers(bytes=512 << 10)))
    for _ in range(3):
        append(log, 5)
        log.roll()

    class Recycling(File):
        armed = False

        def read(self, size: int, offset: int) -> bytes:
            if Recycling.armed and self.path.name.endswith(".seg") and offset > 0:
                Recycling.armed = False
                log.trim(15)
                for generation in range(2, 5):
                    append(log, 5, generation, 3000)
                    log.roll()
            return super().read(size, offset)

    disk = Disk()
    disk.file_class = Recycling
    with Log.open(place / "log", read_only=True, disk=disk) as reader:
        Recycling.armed = True
        assert reader.verify().damages == ()
        assert not Recycling.armed
    log.close()


@pytest.mark.parametrize("containers", [None, Containers(bytes=512 << 10)], ids=["files", "containers"])
def test_what_is_appended_while_the_end_is_verified_is_no_damage(place, containers):
    log = Log.open(place / "log", SCHEMA, Settings(containers=containers))
    append(log, 5)
    end = log._appender.active.offset

    class Appending(File):
        armed = False

        def read(self, size: int, offset: int) -> bytes:
            data = super().read(size, offset)
            if Appending.armed and offset == end:
                Appending.armed = False
                append(log, 5)
                append(log, 5)
            return data

    disk = Disk()
    disk.file_class = Appending
    with Log.open(place / "log", read_only=True, disk=disk) as reader:
        Appending.armed = True
        assert reader.verify().damages == ()
        assert not Appending.armed
    log.close()
