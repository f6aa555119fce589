"""Format version 1, kept for ever: files written by the first headrace are read exactly, and written again.

The logs in `v1/` were made once by `make_v1.py`. If a test here fails, the code is wrong, not the file.
"""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.log import Batch, Head, Log
from headrace.log.disk import Disk
from headrace.log.frame import Header, Kind, checksum, decode_header, encode_frame, encode_header, marks
from headrace.log.mark import Extent, Mark, read_extent
from headrace.log.meta import load_meta, save_meta
from headrace.log.positions import PositionFile, read_positions
from headrace.log.state import Commit, decode_commit, encode_commit

from .make_v1 import ID, START_US, TYPED, make, raw, typed

GOLDEN = Path(__file__).parent / "v1"
SALT = 0x0011223344556677


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    """A copy of the golden logs that may be written to."""
    copy = tmp_path / "v1"
    shutil.copytree(GOLDEN, copy)
    for packed in copy.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    return copy


def rows(log: Log) -> list[dict[str, object]]:
    return pa.Table.from_batches([batch.records for batch in log.read()]).to_pylist()


# --- single pieces, byte for byte

HEADERS = {
    "head": (
        Header(Kind.HEAD, 7, 0, 10, 10, START_US, 3, 0, checksum(b"")),
        "687266317a4439dac294d3380580062d070000000000000000401e18240a0600"
        "00000000000000000a000000000000000a000000000000000300000001000000",
    ),
    "batch": (
        Header(
            Kind.BATCH,
            5,
            3,
            100,
            140,
            START_US,
            1,
            128,
            0x1122334455667788,
            marks(grouped=True, by_columns=True, schema_tag=0xBEEF),
        ),
        "6872663159f117a58877665544332211050000000000000000401e18240a0600"
        "030000008000000064000000000000008c00000000000000010000000003efbe",
    ),
    "gap": (
        Header(Kind.GAP, 5, 0, 5, 9, 1, 2, 0, checksum(b"")),
        "68726631fb93f41ec294d3380580062d05000000000000000100000000000000"
        "0000000000000000050000000000000009000000000000000200000004000000",
    ),
}

COMMIT_BODY = (
    b'{"writer":"driver","sequence":7,"base_index":3,"next_index":6,"note":"a note","repeated":false}'
)
COMMIT_FRAME = (
    "6872663189ca40f9b0be531e5eeb392206000000000000000200000000000000"
    "0000000080000000010000000000000001000000000000000100000002000000" + COMMIT_BODY.ljust(128, b"\0").hex()
)

MARK = (
    "68726d312b085f18000000000000000004000000000000000400000000000000"
    "0100000001000000000000000000000000000000000000000000000000000000"
)
POSITION = (
    "687270315e3a0ad8020000000000000003000000000000000000000000000000"
    "6872703198893935010000000000000001000000000000000000000000000000"
)


@pytest.mark.parametrize("name", HEADERS)
def test_a_header_is_these_bytes(name: str) -> None:
    header, golden_hex = HEADERS[name]
    assert encode_header(header, SALT).hex() == golden_hex
    assert decode_header(bytes.fromhex(golden_hex), SALT) == header


def test_kinds_have_their_numbers() -> None:
    assert [(kind.name, kind.value) for kind in Kind] == [
        ("BATCH", 0),
        ("HEAD", 1),
        ("COMMIT", 2),
        ("BASE", 3),
        ("GAP", 4),
        ("START", 5),
        ("FOOTER", 6),
        ("TRAILER", 7),
    ]


def test_a_commit_is_these_bytes() -> None:
    commit = Commit("driver", 7, 3, 6, "a note")
    header = Header(Kind.COMMIT, 6, first_key=1, last_key=1, time_us=2, epoch=1)
    assert encode_frame(header, encode_commit(commit), SALT).hex() == COMMIT_FRAME
    assert decode_commit(bytes.fromhex(COMMIT_FRAME)[64:]) == commit


def test_a_mark_is_these_bytes(tmp_path: Path) -> None:
    extent = Extent(0, 4, 4, 1, clean=True)
    mark = Mark.open(Disk(), tmp_path, write=True)
    mark.write(extent)
    mark.close()
    assert (tmp_path / "mark").read_bytes().hex() == MARK
    assert read_extent(Disk(), tmp_path) == extent


def test_a_position_is_these_bytes(tmp_path: Path) -> None:
    position = PositionFile.open(Disk(), tmp_path, "us")
    position.save(1)
    position.save(3)
    position.close()
    assert (tmp_path / "positions" / "us").read_bytes().hex() == POSITION
    assert read_positions(Disk(), tmp_path) == {"us": 3}


# --- whole logs


def test_a_typed_log_is_read_exactly(golden: Path) -> None:
    with Log.open(golden / "typed", read_only=True) as log:
        assert log.schema.equals(TYPED, check_metadata=True)
        assert log.meta.id == ID.hex
        assert log.meta.created_us == START_US
        assert log.meta.order_by == "at"
        assert log.meta.extra == {"type": "golden"}
        assert (log.first_index, log.next_index, log.durable_index) == (2, 8, 8)
        indexes = [2, 3, 4, 5, 10, 11]
        start = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
        assert rows(log) == [
            {
                "at": start + timedelta(microseconds=at),
                "what": None if at % 4 == 3 else f"what {at}",
                "tags": [[], ["a"], ["a", None]][at % 3],
            }
            for at in indexes
        ]
        shape = [
            (item.base_index, item.next_index, item.time_us - START_US, item.epoch)
            if isinstance(item, Batch)
            else (item.key, item.next_index)
            for item in log.read_all()
        ]
        head = START_US + 10 + (1 << 63)
        assert shape == [
            (2, 3, 0, 1),
            (3, 4, 1_000_000, 1),
            (4, 6, 1_000_000, 1),
            (head, 6),
            (6, 8, 2_000_000, 1),
        ]
        assert log.seek_key(start + timedelta(microseconds=5)) == 5
        assert log.verify().ok


def test_a_typed_log_is_written_on(golden: Path) -> None:
    with Log.open(golden / "typed") as log:
        assert log.recovery.clean
        last = log.last_commit("driver")
        assert last == Commit("driver", 7, 3, 6, "a note")
        assert log.append_group([typed(3, 4)], writer="driver", sequence=7).repeated
        assert log.append(typed(20, 21)) == 8
        assert len(rows(log)) == 7
        assert log.verify().ok


def test_a_byte_queue_is_read_exactly_and_written_on(golden: Path) -> None:
    with Log.open(golden / "raw") as log:
        assert log.recovery.clean
        assert [row["data"] for row in rows(log)] == [b"hello", b"", "wörld".encode(), b"last"]
        assert log.info().positions == {"us": 3}
        assert log.append(raw(b"more")) == 4
        assert log.verify().ok


def test_a_ring_is_read_exactly_and_written_on(golden: Path) -> None:
    with Log.open(golden / "ring") as log:
        assert log.recovery.clean
        assert (log.first_index, log.next_index) == (1, 3)
        assert [row["data"] for row in rows(log)] == [b"second", b"third"]
        assert log.append(raw(b"fourth")) == 3
        log.roll()
        assert [row["data"] for row in rows(log)] == [b"second", b"third", b"fourth"]
        assert log.verify().ok


@pytest.mark.parametrize("name", ["typed", "raw", "ring"])
def test_a_meta_is_written_as_it_was(golden: Path, name: str) -> None:
    before = (golden / name / "meta.json").read_bytes()
    save_meta(Disk(), golden / name, load_meta(Disk(), golden / name))
    assert (golden / name / "meta.json").read_bytes() == before


def headers(path: Path) -> list[Header]:
    """The valid headers of a segment, without what Arrow decides: sizes and sums of bodies."""
    content = path.read_bytes()
    found = [decode_header(content[at : at + 64], SALT) for at in range(0, len(content), 64)]
    return [
        header._replace(body_bytes=0, body_sum=0, first_key=0)
        if header.kind == Kind.TRAILER
        else header._replace(body_bytes=0, body_sum=0)
        for header in found
        if header is not None
    ]


@pytest.mark.parametrize("name", ["typed", "raw"])
def test_today_the_same_log_is_written_with_the_same_names_and_headers(
    golden: Path, tmp_path: Path, name: str
) -> None:
    made = make(tmp_path / "today", name)
    segments = [path.name for path in sorted((golden / name).glob("0*"))]
    assert [path.name for path in sorted(made.glob("0*"))] == segments
    for segment in segments:
        assert headers(made / segment) == headers(golden / name / segment)
        assert len(headers(made / segment)) >= 2
    mark = read_extent(Disk(), made)
    assert mark is not None
    # HEAD came into spare bytes of the mark later: the first headrace left them zero.
    assert replace(mark, head_key=0, durable_head=0) == read_extent(Disk(), golden / name)


def test_heads_come_back_as_heads(golden: Path) -> None:
    with Log.open(golden / "typed", read_only=True) as log:
        assert sum(isinstance(item, Head) for item in log.read_all()) == 1
