"""Compacting: what makes a new stream of some entries. With Spark around it: tests/spark/test_jobs.py."""

from __future__ import annotations

import pyarrow as pa

import headrace as hr
from headrace.log.meta import COPY_OF
from headrace.stream.compacting import compacting_folder, make_stream
from headrace.stream.staging import StagingArea

from .samples import Number, publish_all, values


def test_what_is_made_of_a_copy_is_a_stream_of_its_own(store: hr.Store) -> None:
    stream = store.stream("s", Number)
    publish_all(stream, [Number(1)])
    meta = stream.log.meta
    copied = meta.replace(extra=meta.extra | {COPY_OF: {"url": "http://there:7400", "name": "s"}})
    records = pa.record_batch({"n": [1]}, schema=meta.schema)
    with compacting_folder(StagingArea.of(store.path, "s")) as folder:
        assert make_stream(store.path / "streams" / "made", copied, folder, [records], 0) == 1
    publish_all(store.stream("made", Number), [Number(2)])
    assert values(store.stream("made", Number)) == [Number(1), Number(2)]
