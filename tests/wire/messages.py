"""Any request and any reply, as hypothesis makes them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import strategies as st

from headrace.wire.fj import MADE_IN_REPLIES, MADE_IN_REQUESTS, QUERY, RANGE, Pair, Reply, Request

u16, u64 = st.integers(0, 0xFFFF), st.integers(0, 2**64 - 1)
keys = st.one_of(st.binary(max_size=20), st.binary(min_size=250, max_size=260))
values = st.one_of(st.binary(max_size=20), st.binary(min_size=250, max_size=260), st.just(bytes(65535)))
types = st.integers(0, 255)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    flags = draw(u16) & ~MADE_IN_REQUESTS
    ranged = flags & QUERY == RANGE
    kind = draw(st.none() | types)
    return Request(
        draw(u16),
        draw(u16),
        flags,
        draw(u64),
        draw(st.none() | u64),
        draw(u16) if ranged else None,
        draw(keys),
        draw(keys) if ranged else None,
        kind,
        None if kind is None else draw(values),
    )


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    pair = st.builds(Pair, keys, types, values) if draw(st.booleans()) else keys.map(Pair)
    return Reply(
        draw(u16),
        draw(u16) & ~MADE_IN_REPLIES,
        draw(u64),
        draw(st.none() | u64),
        draw(keys),
        draw(st.none() | st.lists(pair, max_size=4)),
        draw(st.none() | keys),
    )


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data cut at these places, whatever order they are in."""
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(places)]
