"""Damage to the files of a log at rest: a cut, a flipped bit, a file that is gone."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import Damaged, HeadraceError
from headrace.log import Log, Settings, repair
from headrace.log.frame import decode_header
from headrace.log.segment_name import parse_name

from .conftest import MEMORY
from .judge import (
    check_groups,
    check_losses_told,
    check_only_appended,
    check_repair,
    check_writer,
    copied,
    look,
)
from .workload import (
    CAMPAIGN,
    SHAPES,
    STEPS,
    Append,
    Group,
    Model,
    Roll,
    Shape,
    Step,
    Sync,
    Trim,
    Writer,
    examples,
)
from .workload import Head as MoveHead

SEEDS = st.integers(0, 2**32 - 1)


@contextmanager
def written(shape: Shape, steps: list[Step], *, closed: bool) -> Iterator[tuple[Path, Path, Model]]:
    """A log written by these steps, all of it safe; a place beside it; and what it must hold."""
    root = Path(tempfile.mkdtemp(prefix="headrace-damage-", dir=MEMORY if Path(MEMORY).is_dir() else None))
    try:
        writer = Writer(root / "log", shape)
        for step in steps:
            writer.do(step)
        writer.do(Append((5, 50)))
        writer.do(Sync())
        if closed:
            writer.log.close()
            yield root / "log", root, writer.model
        else:  # as a kill would leave it
            copied(root / "log", root / "left")
            writer.log.close()
            yield root / "left", root, writer.model
    finally:
        shutil.rmtree(root, ignore_errors=True)


def files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file() and file.parent.name != "kept")


def check_all(path: Path, root: Path, model: Model) -> None:
    required = model.required
    seen, report = look(path)
    check_only_appended(seen, model)
    check_losses_told(seen, seen.damages, required, "the reader")
    check_losses_told(seen, report.damages, required, "verify")
    check_groups(seen, model, seen.damages)
    writer_path = copied(path, root / "writer")
    after, log = check_writer(writer_path, model, required, floor=model.durable)
    log.close()
    assert min(after.entries) >= model.base, "trimmed entries came back"
    check_repair(copied(path, root / "repaired"), seen, required, model.base)
    check_repair(writer_path, after, required, model.base)


@examples(60)
@given(SHAPES, STEPS, SEEDS, SEEDS, st.booleans(), st.booleans())
def test_a_file_cut_at_any_byte_loses_only_what_was_behind_the_cut_and_says_so(
    shape, steps, which, where, aligned, closed
):
    with written(shape, steps, closed=closed) as (path, root, model):
        files = [file for file in files_of(path) if file.name != "meta.json"]
        file = files[which % len(files)]
        size = where % (_interesting(file.read_bytes()) + 1)
        with open(file, "r+b") as raw:
            raw.truncate(size - size % 64 if aligned else size)
        check_all(path, root, model)


@examples(120)
@given(SHAPES, STEPS, SEEDS, SEEDS, st.integers(0, 7), st.booleans())
def test_a_flipped_bit_anywhere_is_found_and_costs_no_more_than_its_own_frame(
    shape, steps, which, where, bit, closed
):
    with written(shape, steps, closed=closed) as (path, root, model):
        files = [f for f in files_of(path) if f.name != "meta.json" and f.stat().st_size]
        flip(files[which % len(files)], where, bit)
        check_all(path, root, model)


def small_log(path: Path, compression: str) -> tuple[Model, dict[Path, list[int]]]:
    """A log with every kind of frame, batches of two entries; for each segment where its frames begin."""
    writer = Writer(path, Shape(Settings(compression=compression), "key"))
    steps: list[Step] = [Append((5, 9)), Group(((3, 3), (4, 4))), MoveHead(2), Append((60, 60)), Roll()]
    steps += [Append((5, 9)), Trim(0.3), Group(((3, 3), (40, 4))), MoveHead(2), Append((1, 1)), Sync()]
    for step in steps:
        writer.do(step)
    writer.log.close()
    frames: dict[Path, list[int]] = {}
    for file in sorted(path.iterdir()):
        if file.suffix in (".seg", ".active"):
            raw, at, frames[file] = file.read_bytes(), 0, []
            while (header := decode_header(raw[at : at + 64], writer.log.meta.salt)) is not None:
                frames[file].append(at)
                at += header.frame_bytes
            assert at == len(raw)
    return writer.model, frames


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_flipped_bit_in_any_byte_is_found_by_verify_and_costs_the_entries_of_one_frame(place, compression):
    model, frames = small_log(place / "log", compression)
    for file, offsets in frames.items():
        whole = file.read_bytes()
        in_headers = {offset + at for offset in offsets for at in range(64)}
        for at in sorted(in_headers | set(range(0, len(whole), 1 if CAMPAIGN else 19))):
            raw = bytearray(whole)
            raw[at] ^= 1 << (at + at // 8) % 8
            file.write_bytes(raw)
            seen, report = look(place / "log")
            where = f"bit flipped at {at} of {file.name}"
            assert not report.ok, f"{where}: not found"
            check_only_appended(seen, model)
            check_losses_told(seen, seen.damages, model.required, f"{where}: the reader")
            check_losses_told(seen, report.damages, model.required, f"{where}: verify")
            lost = sorted(set(model.required) - set(seen.entries))
            assert len(lost) <= 2, f"{where}: lost {lost}"
        file.write_bytes(whole)
    assert look(place / "log")[1].ok


def test_a_cut_at_or_beside_any_frame_is_found_and_costs_only_what_is_behind_it(place):
    model, frames = small_log(place / "log", "none")
    for file, offsets in frames.items():
        whole = file.read_bytes()
        for size in sorted({max(offset + by, 0) for offset in offsets for by in (-1, 0, 1, 63, 64, 65)}):
            if size >= len(whole):
                continue
            file.write_bytes(whole[:size])
            check_all(place / "log", place, model)
            assert not look(place / "log")[1].ok
        file.write_bytes(whole)


@examples(40)
@given(SHAPES, STEPS, SEEDS, st.booleans())
def test_a_segment_that_is_gone_is_reported_with_every_index_it_held(shape, steps, which, closed):
    with written(shape, steps, closed=closed) as (path, root, model):
        files = [f for f in files_of(path) if f.name in ("mark", "lock") or parse_name(f.name)]
        files[which % len(files)].unlink()
        check_all(path, root, model)


@examples(60)
@given(SHAPES, STEPS, SEEDS, st.integers(0, 7))
def test_a_flipped_bit_in_meta_json_is_refused_until_repair_restores_it(shape, steps, where, bit):
    with written(shape, steps, closed=True) as (path, _root, model):
        whole = (path / "meta.json").read_bytes()
        flip(path / "meta.json", where, bit)
        with pytest.raises(Damaged):
            Log.open(path)
        with pytest.raises(Damaged):
            Log.open(path, read_only=True)
        assert repair(path).restored_meta
        assert (path / "meta.json").read_bytes() == whole
        seen, report = look(path)
        assert report.ok
        assert seen.entries == model.required


@examples(40)
@given(SHAPES, STEPS, SEEDS)
def test_a_cut_meta_json_is_refused_until_repair_restores_it(shape, steps, where):
    with written(shape, steps, closed=True) as (path, _root, model):
        whole = (path / "meta.json").read_bytes()
        (path / "meta.json").write_bytes(whole[: where % len(whole)])
        with pytest.raises(Damaged):
            Log.open(path)
        assert repair(path).restored_meta
        seen, _ = look(path)
        assert seen.entries == model.required


@examples(60)
@given(SHAPES, STEPS, st.lists(st.tuples(SEEDS, SEEDS, st.integers(0, 8)), min_size=2, max_size=6))
def test_many_harms_at_once_never_make_a_wrong_entry(shape, steps, harms):
    with written(shape, steps, closed=False) as (path, root, model):
        for which, where, bit in harms:
            files = [f for f in files_of(path) if f.stat().st_size]
            file = files[which % len(files)]
            if bit < 8:
                flip(file, where, bit)
            else:
                with open(file, "r+b") as raw:
                    raw.truncate(where % _interesting(file.read_bytes()))
        try:
            seen, _ = look(path)
        except HeadraceError:
            seen = None
        if seen is not None:
            check_only_appended(seen, model)
            with suppress(HeadraceError):
                check_writer(copied(path, root / "writer"), model, {}, floor=0)[1].close()
        try:
            repair(path)
        except HeadraceError:
            return
        again, report = look(path)
        assert report.ok, report.damages
        assert not again.damages
        check_only_appended(again, model)
        if seen is not None:
            assert {(i, e) for i, e in seen.entries.items() if i >= model.base} <= set(again.entries.items())


def flip(file: Path, where: int, bit: int) -> None:
    raw = bytearray(file.read_bytes())
    raw[where % _interesting(raw)] ^= 1 << bit
    file.write_bytes(raw)


def _interesting(raw: bytes | bytearray) -> int:
    """How far harm is done: a little into the zeros behind what is written, of which there may be many."""
    return min(len(raw), len(raw.rstrip(b"\0")) + 128)
