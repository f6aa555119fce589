"""An Arrow stream that is cut anywhere comes out as it went in."""

from __future__ import annotations

import io

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.wire.arrow_pieces import ArrowPieces
from headrace.wire.arrow_size import message_bytes
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


def test_messages_that_come_one_by_one_are_read_one_by_one() -> None:
    data, made = _stream([[(1, "one")], [], [(2, "two"), (3, "three")]])
    pieces, at, found = ArrowPieces(), 0, []
    while at < len(data):
        size = message_bytes(data, at)
        assert size is not None
        found.append(pieces.feed(data[at : at + size]))
        at += size
    assert [len(each) for each in found] == [0, 1, 1, 1, 0]  # the schema, the batches, the end
    assert [batch for each in found for batch, _ in each] == made
    assert [notes for each in found for _, notes in each] == [{b"index": b"%d" % n} for n in range(3)]
    assert pieces.ended


def test_a_lone_message_that_is_no_batch_is_refused_or_left_out() -> None:
    data, _ = _stream([[(1, "one")]])
    size = message_bytes(data, 0)
    assert size is not None
    pieces = ArrowPieces()
    pieces.feed(data[:size])
    with pytest.raises(ProtocolError):
        pieces.feed(data[:size])  # the schema again
