"""What TailProduce must give, in the plainest Python: all that happens, sorted, one thing after another.

An entry happens at its key, a tick at a multiple of `every`, before the entries of that key. At a
tick every state that is not as new is asked, in the order of the partition keys as MessagePack writes them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headrace.stream.entry import Entry

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def reference(
    producer: type,
    inputs: Mapping[str, Sequence[Any]],
    *,
    key: Callable[[Any], Any] = lambda value: value.at,
    partition: Callable[[Any], Any] = lambda value: None,
    every: Any = None,
    head: Any,
    start: Any = None,
    emit_from: Any = None,
) -> list[Any]:
    """The outputs for all entries with `start` <= key < `head`."""
    happens = []
    for ordinal, (stream, values) in enumerate(inputs.items()):
        for index, value in enumerate(values):
            if key(value) < head and (start is None or key(value) >= start):
                happens.append((key(value), ordinal, index, stream, value))
    ticks = _multiples(every, min(happens)[0], head) if every is not None and happens else ()
    happens += [(tick, -1, 0, "", None) for tick in ticks]
    happens.sort(key=lambda each: each[:3])

    new = getattr(producer, "State", dict)
    states: dict[bytes, Any] = {}
    made, outputs = producer(), []
    for at, ordinal, index, stream, value in happens:
        if ordinal >= 0:
            state = states.setdefault(msgspec.msgpack.encode(partition(value)), new())
            answers = [made.on_entry(stream, Entry(index, at, value), state)]
        else:
            answers = [made.on_head(at, state) for _, state in sorted(states.items()) if state != new()]
        if emit_from is None or at >= emit_from:
            outputs += [output for answer in answers for output in _several(answer)]
        else:
            [list(_several(answer)) for answer in answers]
    return outputs


def _several(answer: Any) -> list[Any]:
    if answer is None:
        return []
    return [answer] if not isinstance(answer, list | tuple | Iterator) else list(answer)


def _multiples(every: Any, first: Any, head: Any) -> Iterator[Any]:
    """The multiples of `every` behind `first` and before `head`."""
    zero = EPOCH if isinstance(first, dt.datetime) else 0
    number = (first - zero) // every - 2
    while (tick := zero + number * every) < head:
        if tick > first:
            yield tick
        number += 1
