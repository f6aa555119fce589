"""Many jobs in the value of one request."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.kernel.errors import TooLarge
from headrace.wire.errors import ProtocolError
from headrace.wire.fj_many import pack_jobs, pack_keys, unpack_jobs, unpack_keys

jobs = st.lists(st.tuples(st.binary(max_size=300), st.integers(0, 255), st.binary(max_size=300)), max_size=20)


def test_the_bytes_are_those_of_the_page() -> None:
    assert pack_jobs([(b"ab", 2, b"xyz")]).hex(" ") == "00 02 02 00 00 00 03 61 62 78 79 7a"
    assert pack_keys([b"ab", b""]).hex(" ") == "00 02 61 62 00 00"


@given(jobs)
def test_what_is_packed_is_unpacked(several: list[tuple[bytes, int, bytes]]) -> None:
    assert unpack_jobs(pack_jobs(several)) == several
    keys = [resource for resource, _kind, _value in several]
    assert unpack_keys(pack_keys(keys)) == keys


@given(jobs.filter(bool), st.data())
def test_a_list_that_is_cut_short_is_refused(
    several: list[tuple[bytes, int, bytes]], data: st.DataObject
) -> None:
    whole = pack_jobs(several)
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    with contextlib.suppress(ProtocolError):
        assert unpack_jobs(cut) == several[: len(unpack_jobs(cut))]
    with pytest.raises(ProtocolError):
        unpack_keys(b"\0\5ab")


def test_a_resource_beyond_the_limit_is_refused() -> None:
    for pack in (lambda: pack_keys([bytes(65536)]), lambda: pack_jobs([(bytes(65536), 1, b"")])):
        with pytest.raises(TooLarge):
            pack()
