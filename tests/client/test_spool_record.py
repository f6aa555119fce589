"""Records of a spool: found again whatever was torn, and never mistaken."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.spool_record import HEADER, MAGIC, Gap, Record, claimed, encode_record, scan

HOUR = 472_222
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "spool.md"
GOLDEN = "68 72 73 31 77 00 00 00 07 00 00 00 c7 c5 6d 5a a3 09 ef db 72 65 71 75 65 73 74"
requests = st.lists(st.one_of(st.binary(max_size=50), st.just(MAGIC * 20)), max_size=6)


def written(bodies: list[bytes]) -> bytes:
    return b"".join(encode_record(body, HOUR) for body in bodies)


def all_of(data: bytes) -> tuple[list[bytes], list[Gap], int]:
    """Everything that is in the data, step by step as the forwarder reads it."""
    found: list[bytes] = []
    gaps: list[Gap] = []
    at = 0
    while True:
        step = scan(data[at:], HOUR, at, most=2)
        found += [record.request for record in step.records]
        gaps += [step.gap] if step.gap else []
        if step.end == at:
            return found, gaps, at
        at = step.end


def test_these_are_the_bytes_of_a_record_for_ever() -> None:
    """The page has them too."""
    raw = encode_record(b"request", 472_222)
    assert raw.hex(" ") == GOLDEN
    assert GOLDEN in PAGE.read_text()
    assert scan(raw, 472_222).records == [Record(0, 27, True, b"request")]
    assert scan(raw.replace(b"w", b"e", 1), 472_222).records == [Record(0, 27, False, b"request")]


@given(requests)
def test_what_is_written_is_found(bodies: list[bytes]) -> None:
    data = written(bodies)
    assert all_of(data) == (bodies, [], len(data))


@given(requests, st.data())
def test_a_file_that_ends_anywhere_has_all_the_whole_records(
    bodies: list[bytes], data: st.DataObject
) -> None:
    raw = written(bodies)
    cut = data.draw(st.integers(0, len(raw)))
    found, gaps, end = all_of(raw[:cut])
    assert found == bodies[: len(found)]
    assert not gaps
    assert end <= cut < end + HEADER.size + 81 or cut == len(raw)


@given(requests, st.binary(max_size=60), requests.filter(bool))
def test_a_torn_record_is_passed_over_when_another_one_follows(
    before: list[bytes], torn: bytes, after: list[bytes]
) -> None:
    raw = written(before)
    part = encode_record(torn, HOUR)[: HEADER.size + len(torn) // 2] if torn else b"?"
    part = part if part != encode_record(torn, HOUR) else part[:-1]
    found, gaps, end = all_of(raw + part + written(after))
    assert found == before + after
    assert gaps == [Gap(len(raw), len(part))]
    assert end == len(raw) + len(part) + len(written(after))


def test_a_torn_record_that_the_next_one_seems_to_complete_costs_it_nothing() -> None:
    part = encode_record(b"request that ends with h", HOUR)[:-1]
    found, gaps, _ = all_of(part + written([b"another", b"and one more"]))
    assert found == [b"another", b"and one more"]
    assert gaps == [Gap(0, len(part))]


@given(requests.filter(bool), st.data())
def test_a_damaged_byte_costs_one_record(bodies: list[bytes], data: st.DataObject) -> None:
    raw = bytearray(written(bodies))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    found, _, _ = all_of(bytes(raw))
    assert len(found) >= len(bodies) - 1
    assert [body for body in found if body not in bodies] == []


def test_a_record_of_another_hour_is_none() -> None:
    """Bytes of an old file, copied into a new one, must not be sent again."""
    assert scan(encode_record(b"x", HOUR), HOUR + 1).records == []


def test_a_long_record_is_waited_for_and_not_looked_into() -> None:
    """It may hold a whole record as its data: that is none of ours."""
    inner = encode_record(b"inner", HOUR)
    outer = encode_record(inner * 10, HOUR)
    step = scan(outer[:100], HOUR, at_end=False)
    assert (step.records, step.gap, step.end) == ([], None, 0)
    assert claimed(outer[:100]) == len(outer)
    assert claimed(outer[:10]) == claimed(b"x" * 50) == 0
