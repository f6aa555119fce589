"""Start frames: what every segment says first.

    {"meta": {…the log's meta.json…}, "carried": {"head_key": …, "base_index": …, "commits": […]}}

A segment thus names its log, its own schema and the state before it: it can be read, and its log's meta
restored, without any other file.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from headrace.kernel.errors import Damaged
from headrace.log.frame import START_SALT, Header, Kind, checksum, encode_frame
from headrace.log.meta import Meta, decode_meta
from headrace.log.state import LogState
from headrace.log.view import View


@dataclass(frozen=True, slots=True)
class Start:
    header: Header
    meta: Meta
    state: LogState


class _Body(msgspec.Struct):
    meta: msgspec.Raw
    carried: dict[str, object]


def encode_start(meta: Meta, state: LogState, now_us: int) -> bytes:
    body = msgspec.json.encode(_Body(msgspec.Raw(meta.encode()), state.carried()))
    header = Header(
        Kind.START,
        state.next_index,
        first_key=state.head_key,
        last_key=state.head_key,
        time_us=now_us,
        epoch=state.epoch,
    )
    return encode_frame(header, body, START_SALT)


def read_start(view: View, where: str) -> Start:
    """The start of a segment, or Damaged."""
    header = view.header(0)
    if header is None or header.kind != Kind.START:
        raise Damaged(f"{where} does not begin with a valid start frame")
    body = view.body(0, header)
    if body is None or checksum(body) != header.body_sum:
        raise Damaged(f"{where} has a damaged start frame")
    return decode_start(header, body.to_pybytes(), where)


def decode_start(header: Header, body: bytes, where: str) -> Start:
    """The start that a frame whose checksum was right says."""
    try:
        decoded = msgspec.json.decode(body.rstrip(b"\0"), type=_Body)
        meta = decode_meta(bytes(decoded.meta), where)
        state = LogState.from_carried(decoded.carried, header.base_index, header.epoch)
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise Damaged(f"{where} cannot be read ({error})") from error
    return Start(header, meta, state)
