"""What a review found about groups that a power cut left in pieces."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.log import Containers, Log, Settings
from headrace.log.frame import HEADER_BYTES

from .entries import SCHEMA, batch_of
from .judge import look
from .scenes import append, as_dict, entries, frame_offsets, segment

RING = Settings(containers=Containers(bytes=1 << 16, initial=2))


@pytest.mark.parametrize("settings", [Settings(), RING], ids=["file", "ring"])
@pytest.mark.parametrize("members", [2, 3])
def test_pieces_of_a_group_without_its_commit_prove_no_damage(
    place: Path, settings: Settings, members: int
) -> None:
    """The first batch and the commit did not reach the disk, the others did: nobody was promised anything."""
    path = place / "log"
    log = Log.open(path, SCHEMA, settings)
    made = append(log, 2)
    log.sync()
    mark = (path / "mark").read_bytes()
    group = [batch_of(entries(2 + 2 * number, 2, 2)) for number in range(members)]
    log.append_group(group, writer="w", sequence=1)
    file = segment(path, ".active")
    frames = frame_offsets(log, file)
    raw = bytearray(file.read_bytes())
    log.close()
    for offset, _ in (frames[-1 - members], frames[-1]):
        raw[offset : offset + HEADER_BYTES] = bytes(HEADER_BYTES)
    file.write_bytes(raw)
    (path / "mark").write_bytes(mark)
    seen, report = look(path)
    assert report.ok
    assert seen.entries == as_dict(made)
    with Log.open(path) as log:
        assert log.recovery.damages == ()
        assert log.next_index == 2
        made += append(log, 3, 3)
    seen, report = look(path)
    assert report.ok
    assert seen.entries == as_dict(made)
