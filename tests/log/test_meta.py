"""The meta of a log: it comes back as it was, or is not believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.kernel.errors import Damaged, HeadraceError, NewerFormat
from headrace.log import Containers, Finalize, Retention, Settings
from headrace.log.disk import Disk
from headrace.log.meta import FORMAT, META_FILE, Meta, decode_meta, load_meta, save_meta

from .arrow_values import typed

FIXED = Meta("00112233445566778899aabbccddeeff", 1_700_000_000_000_000, pa.schema([("at", pa.int64())]))

positive = st.integers(1, 1 << 40)
any_settings = st.builds(
    Settings,
    durability=st.sampled_from(["fsync", "interval", "os"]),
    sync_interval_ms=positive,
    compression=st.sampled_from(["none", "lz4", "zstd"]),
    finalize=st.builds(Finalize, positive, positive, st.floats(0.001, 1e12)),
    retention=st.builds(
        Retention, st.none() | st.floats(0, 1e12), st.none() | positive, st.none() | positive, st.booleans()
    ),
    containers=st.none() | st.builds(Containers, positive, st.integers(2, 9), st.none() | positive),
    write_buffers=positive,
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@given(
    any_settings,
    typed(),
    st.dictionaries(st.text(max_size=5), json_values, max_size=3),
    st.none() | st.text(max_size=5),
    st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_a_meta_comes_back_as_it_was(
    wanted: Settings,
    column: tuple[pa.DataType, Any],
    extra: dict[str, Any],
    order_by: str | None,
    strict: bool,
) -> None:
    meta = Meta.new(pa.schema([pa.field("c", column[0])], {"k": "v"}), 5).replace(
        settings=wanted, extra=extra, order_by=order_by, strict=strict
    )
    back = decode_meta(meta.encode(), "here")
    assert back == meta
    assert back.schema.equals(meta.schema, check_metadata=True)


def test_any_flipped_bit_is_damage() -> None:
    raw = FIXED.encode()
    for bit in range(len(raw) * 8):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Damaged, match="here"):
            decode_meta(bytes(flipped), "here")


@pytest.mark.parametrize(
    "raw", [b"", b"{}", b"[]", b"null", b'{"format": 1}', b"\xff" * 80, b'{"format":"1"}']
)
def test_what_is_no_meta_is_damage(raw: bytes) -> None:
    with pytest.raises(Damaged):
        decode_meta(raw, "here")


def newer(meta: Meta) -> bytes:
    """A meta as a later headrace would write it: another format, sealed in the same way."""
    from headrace.log.meta import _checksum, _json

    fields = json.loads(meta.encode())
    del fields["checksum"]
    fields["format"] = FORMAT + 1
    fields["more"] = "of what we do not know"
    return _json(fields | {"checksum": _checksum(fields)})


def test_a_newer_format_is_refused_with_advice() -> None:
    with pytest.raises(NewerFormat, match="upgrade"):
        decode_meta(newer(FIXED), "here")


def test_ids_and_salts_differ_between_logs() -> None:
    metas = [Meta.new(FIXED.schema, 0) for _ in range(50)]
    assert len({meta.id for meta in metas}) == len({meta.salt for meta in metas}) == 50


def test_saving_replaces_the_whole_file(tmp_path: Path) -> None:
    disk = Disk()
    save_meta(disk, tmp_path, FIXED.replace(extra={"long": "x" * 500}))
    save_meta(disk, tmp_path, FIXED)
    assert load_meta(disk, tmp_path) == FIXED
    assert [path.name for path in tmp_path.iterdir()] == [META_FILE]


def test_a_missing_meta_is_a_headrace_error(tmp_path: Path) -> None:
    with pytest.raises(HeadraceError, match=r"meta\.json"):
        load_meta(Disk(), tmp_path)
