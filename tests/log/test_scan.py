"""Scanning: over any damage to the next good frame, and never a frame of somebody else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from headrace.log import Log
from headrace.log.body import BodyDecoder
from headrace.log.damage import Damage
from headrace.log.disk import Disk
from headrace.log.frame import Kind
from headrace.log.scan import Scanner, find_frame
from headrace.log.view import View

from .samples import ORDERS, RAW, active_file, orders, raw, values


def scan(path: Path, salt: int, schema: pa.Schema = ORDERS) -> tuple[list[tuple[int, int]], list[Damage]]:
    """(offset, index) of every good batch, and the damages between them."""
    view = View(Disk().open(path), salt=salt, finalized=False, copying=True)
    frames, damages = [], []
    for found in Scanner(view, path.name, 0, BodyDecoder(schema)):
        if isinstance(found, Damage):
            damages.append(found)
        elif found.header.kind == Kind.BATCH:
            frames.append((found.offset, found.header.base_index))
    return frames, damages


def test_a_damage_at_any_place_costs_exactly_the_batches_it_touches(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        for at in range(4):
            log.append(orders(at, at + 1))
        salt = log.meta.salt
    path = active_file(tmp_path / "log")
    whole = path.read_bytes()
    batches, damages = scan(path, salt)
    assert [index for _, index in batches] == [0, 1, 2, 3]
    assert damages == []
    starts = [offset for offset, _ in batches] + [len(whole)]
    for at in range(starts[0], starts[3], 16):  # in all but the last, which could be a torn tail
        damaged = bytearray(whole)
        damaged[at] ^= 0x80
        path.write_bytes(damaged)
        hit = next(index for index in range(4) if starts[index] <= at < starts[index + 1])
        got, told = scan(path, salt)
        assert [index for _, index in got] == [index for index in range(4) if index != hit]
        assert [(damage.first_lost, damage.stop_lost) for damage in told] == [(hit, hit + 1)]
        assert told[0].kind == ("header" if at < starts[hit] + 64 else "body")


def test_a_copy_of_a_segment_inside_an_entry_is_not_taken_for_frames(tmp_path: Path) -> None:
    with Log.open(tmp_path / "inner", RAW) as log:
        for at in range(3):
            log.append(raw(b"inner %d" % at))
    inner = active_file(tmp_path / "inner").read_bytes()
    with Log.open(tmp_path / "outer", RAW) as log:
        log.append(raw(b"first"))
        log.append(raw(*(bytes(shift) + inner for shift in range(0, 64, 8))))
        log.append(raw(b"last"))
        salt = log.meta.salt
    path = active_file(tmp_path / "outer")
    content = bytearray(path.read_bytes())
    second = scan(path, salt, RAW)[0][1][0]
    content[second + 5] ^= 1
    path.write_bytes(content)
    frames, (damage,) = scan(path, salt, RAW)
    assert [index for _, index in frames] == [0, 9]
    assert (damage.first_lost, damage.stop_lost) == (1, 9)
    with Log.open(tmp_path / "outer", read_only=True) as log:
        assert values(log, on_damage=lambda _: None) == [b"first", b"last"]


def test_a_header_is_found_across_the_edges_of_what_is_read_at_once(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", RAW) as log:
        log.append(raw(b"x" * ((1 << 20) + 500)))
        log.append(raw(b"after"))
        salt = log.meta.salt
    path = active_file(tmp_path / "log")
    first, second = (offset for offset, _ in scan(path, salt, RAW)[0])
    view = View(Disk().open(path), salt=salt, finalized=False, copying=True)
    for start in (first + 64, first + 128, second - 64, second):
        found = find_frame(view, start, lambda header, offset: True)
        assert found is not None
        assert found[0] == second
    assert find_frame(view, second + 64, lambda header, offset: True) is None


def test_a_frame_copied_to_another_place_is_refused(tmp_path: Path) -> None:
    with Log.open(tmp_path / "log", ORDERS) as log:
        for at in range(3):
            log.append(orders(at, at + 1))
        salt = log.meta.salt
    path = active_file(tmp_path / "log")
    content = path.read_bytes()
    offsets = [offset for offset, _ in scan(path, salt)[0]]
    again = content + content[offsets[0] : offsets[1]]
    path.write_bytes(again)
    frames, _ = scan(path, salt)
    assert [index for _, index in frames] == [0, 1, 2]
