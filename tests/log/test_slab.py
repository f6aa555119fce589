"""Queuefka's classic slabs: both lengths, damage, and the way there and back."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace
from headrace.kernel.errors import NotALog, NotFound
from headrace.log.slab import LengthField, SlabDamage, read_slabs, slab_names, write_slabs

BOTH = pytest.mark.parametrize("length", ["4+n", "n"])


def classic(payload: bytes, length: LengthField = "4+n") -> bytes:
    """One record as it stands in a slab, made by hand."""
    size = len(payload) + (4 if length == "4+n" else 0)
    return struct.pack("<II", size, xxhash.xxh32(payload, seed=0).intdigest()) + payload


def topic(directory: Path, *slabs: bytes) -> Path:
    directory.mkdir(exist_ok=True)
    base = 0
    for content in slabs:
        (directory / f"{base:020d}.slab").write_bytes(content)
        base += len(content)
    return directory


def read(directory: Path) -> tuple[list[bytes], list[SlabDamage]]:
    damages: list[SlabDamage] = []
    return list(read_slabs(directory, damages.append)), damages


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.binary(max_size=60), max_size=30),
    st.sampled_from(["4+n", "n"]),
    st.integers(1, 200),
)
def test_what_is_exported_is_imported_the_same(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], length: LengthField, slab_bytes: int
) -> None:
    directory = tmp_path_factory.mktemp("slabs") / "topic"
    end = write_slabs(directory, records, slab_bytes=slab_bytes, length=length)
    assert end == sum(8 + len(record) for record in records)
    assert read(directory) == (records, [])
    names = slab_names(directory)
    at = 0
    for name in names:
        assert name == f"{at:020d}.slab"
        at += (directory / name).stat().st_size
    assert at == end


@BOTH
def test_a_slab_made_by_hand_is_read(tmp_path: Path, length: LengthField) -> None:
    payloads = [b"hello", b"", b"w" * 1000, b"\x00\x04\x00\x00"]
    content = b"".join(classic(payload, length) for payload in payloads)
    assert read(topic(tmp_path / "topic", content)) == (payloads, [])


@BOTH
def test_exported_bytes_are_what_they_were_for_queuefka(tmp_path: Path, length: LengthField) -> None:
    write_slabs(tmp_path / "topic", [b"hello", b""], length=length)
    content = (tmp_path / "topic" / f"{0:020d}.slab").read_bytes()
    assert content == classic(b"hello", length) + classic(b"", length)
    assert classic(b"", "4+n")[4:] == bytes.fromhex("055dcc02")  # xxhash32 of nothing


@BOTH
def test_an_empty_first_record_does_not_mislead(tmp_path: Path, length: LengthField) -> None:
    content = classic(b"", length) + classic(b"after", length)
    assert read(topic(tmp_path / "topic", content)) == ([b"", b"after"], [])


def test_each_slab_has_its_own_length(tmp_path: Path) -> None:
    directory = topic(tmp_path / "topic", classic(b"one", "4+n"), classic(b"two", "n"), b"")
    assert read(directory) == ([b"one", b"two"], [])


@BOTH
def test_a_damaged_payload_is_told_and_passed_over(tmp_path: Path, length: LengthField) -> None:
    first, second, third = (classic(payload, length) for payload in (b"one", b"two", b"three"))
    content = bytearray(first + second + third)
    content[len(first) + 8] ^= 1
    got, damages = read(topic(tmp_path / "topic", bytes(content)))
    assert got == [b"one", b"three"]
    assert [(damage.offset, damage.bytes) for damage in damages] == [(len(first), len(second))]
    assert "checksum" in str(damages[0])


@BOTH
def test_a_damaged_length_ends_its_slab_and_only_that(tmp_path: Path, length: LengthField) -> None:
    first, second = classic(b"one", length), classic(b"two", length)
    content = bytearray(first + second)
    content[len(first) + 3] = 0x7F
    got, damages = read(topic(tmp_path / "topic", bytes(content), classic(b"next", length)))
    assert got == [b"one", b"next"]
    assert [(damage.offset, damage.bytes) for damage in damages] == [(len(first), len(second))]


@BOTH
def test_a_slab_cut_off_anywhere_gives_what_is_whole_and_tells_the_rest(
    tmp_path: Path, length: LengthField
) -> None:
    payloads = [b"one", b"two", b"three"]
    parts = [classic(payload, length) for payload in payloads]
    content = b"".join(parts)
    ends = [sum(map(len, parts[: at + 1])) for at in range(len(parts))]
    for size in range(ends[0], len(content)):
        got, damages = read(topic(tmp_path / "topic", content[:size]))
        whole = sum(end <= size for end in ends)
        assert got == payloads[:whole]
        assert bool(damages) == (size not in ends)


def test_a_damaged_first_record_does_not_hide_the_others(tmp_path: Path) -> None:
    """Which length the slab uses is then told by the records after it."""
    for number, length in enumerate(("4+n", "n")):
        content = bytearray(classic(b"one", length) + classic(b"two", length) + classic(b"three", length))
        content[8] ^= 1
        got, damages = read(topic(tmp_path / str(number), bytes(content)))
        assert got == [b"two", b"three"], length
        assert [damage.offset for damage in damages] == [0]


def test_what_is_no_topic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read(tmp_path / "nothing")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "1.slab").touch()
    with pytest.raises(NotALog):
        read(tmp_path / "other")
    with pytest.raises(NotALog, match="new directory"):
        write_slabs(tmp_path / "other", [b"x"])
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["1.slab"]


def test_a_new_slab_begins_after_the_write_that_passes_the_size(tmp_path: Path) -> None:
    write_slabs(tmp_path / "topic", [b"x" * 92] * 5, slab_bytes=150)
    assert [(tmp_path / "topic" / name).stat().st_size for name in slab_names(tmp_path / "topic")] == [
        200,
        200,
        100,
    ]


def test_a_slab_that_is_exactly_full_is_full(tmp_path: Path) -> None:
    write_slabs(tmp_path / "topic", [b"x" * 92] * 4, slab_bytes=200)
    assert slab_names(tmp_path / "topic") == [f"{0:020d}.slab", f"{200:020d}.slab"]


def test_a_classic_topic_becomes_a_queue_and_a_queue_a_classic_topic(tmp_path: Path) -> None:
    records = [b"%d" % number * number for number in range(50)]
    write_slabs(tmp_path / "old", records, slab_bytes=500, length="n")
    with headrace.writer(tmp_path / "queue") as out:
        out.write_many(read(tmp_path / "old")[0])
    with headrace.reader(tmp_path / "queue") as back:
        write_slabs(tmp_path / "again", back, slab_bytes=500, length="n")
    assert slab_names(tmp_path / "old") == slab_names(tmp_path / "again")
    for name in slab_names(tmp_path / "old"):
        assert (tmp_path / "old" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
