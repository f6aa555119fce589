"""An Arrow stream that is cut anywhere comes out as it went in."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.arrow_pieces import ArrowPieces
from headrace.wire.errors import ProtocolError

_SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
_batches = st.lists(
    st.lists(st.tuples(st.integers(0, 1 << 40), st.text(max_size=300)), max_size=20), max_size=6
)


def _stream(rows: list[list[tuple[int, str]]]) -> tuple[bytes, list[pa.RecordBatch]]:
    sink = io.BytesIO()
    made = [
        pa.RecordBatch.from_pydict({"number": [a for a, _ in part], "text": [b for _, b in part]}, _SCHEMA)
        for part in rows
    ]
    with pa.ipc.new_stream(sink, _SCHEMA) as writer:
        for at, batch in enumerate(made):
            writer.write_batch(batch, custom_metadata={"index": str(at)})
    return sink.getvalue(), made


@settings(max_examples=40)
@given(_batches, st.lists(st.integers(1, 2000), min_size=1, max_size=8))
def test_a_stream_in_pieces_of_any_size_gives_its_batches_with_their_notes(
    rows: list[list[tuple[int, str]]], sizes: list[int]
) -> None:
    data, made = _stream(rows)
    pieces, found, at, turn = ArrowPieces(), [], 0, 0
    while at < len(data):
        size = sizes[turn % len(sizes)]
        found += pieces.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    assert [batch for batch, _ in found] == made
    assert [notes for _, notes in found] == [{b"index": b"%d" % at} for at in range(len(made))]
    assert pieces.schema == _SCHEMA
    assert pieces.ended


@settings(max_examples=40)
@given(_batches, st.data())
def test_a_batch_is_given_as_soon_as_its_last_byte_has_come(
    rows: list[list[tuple[int, str]]], data: st.DataObject
) -> None:
    stream, made = _stream([*rows, [(1, "last")]])
    whole = len(stream) - 8  # without the end of the stream
    cut = data.draw(st.integers(0, whole - 1))
    pieces = ArrowPieces()
    first = pieces.feed(stream[:cut])
    assert len(first) < len(made)
    assert len(first) + len(pieces.feed(stream[cut:whole])) == len(made)
    assert not pieces.ended


def test_what_is_no_arrow_is_refused() -> None:
    data, _ = _stream([[(1, "one")]])
    with pytest.raises(ProtocolError):
        ArrowPieces().feed(b"\x00" * 64)
    with pytest.raises(ProtocolError):
        ArrowPieces().feed(data[:-100] + b"\xff" * 100)


def test_a_message_of_a_negative_length_is_refused() -> None:
    data, _ = _stream([[(1, "x" * 5000)]])
    schema_bytes = 8 + int.from_bytes(data[4:8], "little")
    body = pa.ipc.read_message(data[schema_bytes:]).body.size.to_bytes(8, "little")
    assert data.count(body) == 1
    with pytest.raises(ProtocolError, match="-64 bytes"):
        ArrowPieces().feed(data.replace(body, (-64).to_bytes(8, "little", signed=True)))
