"""A reader written from docs/formats/log.md alone: if the page is right, it reads what headrace writes."""

from __future__ import annotations

import base64
import json
import re
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import xxhash

from headrace.log import Finalize, Log, Settings

BATCH, HEAD, COMMIT, BASE, GAP, START, FOOTER, TRAILER = range(8)
SCHEMA = pa.schema([pa.field("at", pa.int64(), nullable=False), ("text", pa.string())])
NAME = re.compile(r"(\d{20})-(\d{20})\.k([0-9a-f]{16})-([0-9a-f]{16})\.seg|(\d{20})\.(\d{10})\.active")


class Segment:
    """One segment, frame by frame; `schema` is its own."""

    def __init__(self, path: Path, salt: int) -> None:
        self.raw, self.salt = path.read_bytes(), salt
        self.first_index = int(path.name[:20])
        self.schema = pa.schema([])

    def frames(self) -> list[tuple[dict[str, int], bytes]]:
        found, offset, expected, epoch = [], 0, self.first_index, 0
        while (header := self.header(offset)) is not None:
            body = self.raw[offset + 64 : offset + 64 + header["body_bytes"]]
            assert header["base"] == expected
            assert header["epoch"] >= epoch
            assert (header["kind"] == START) == (offset == 0)
            assert self.whole(header, body)
            if header["kind"] == START:
                meta = json.loads(body.rstrip(b"\0"))["meta"]
                self.schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(meta["schema"])))
            found.append((header, body))
            if header["kind"] == FOOTER:
                break
            expected = {BATCH: expected + header["entries"], GAP: header["last"]}.get(
                header["kind"], expected
            )
            offset, epoch = offset + 64 + len(body), header["epoch"]
        return found

    def header(self, offset: int) -> dict[str, int] | None:
        raw = self.raw[offset : offset + 64]
        if len(raw) < 64 or raw[:4] != b"hrf1":
            return None
        names = (
            "sum",
            "body_sum",
            "base",
            "time",
            "entries",
            "body_bytes",
            "first",
            "last",
            "epoch",
            "flags",
        )
        header = dict(zip(names, struct.unpack("<4xIQQqIIQQII", raw), strict=True))
        header["kind"] = header["flags"] & 15
        seed = 0 if header["kind"] == START else self.salt
        return header if xxhash.xxh3_64_intdigest(raw[8:], seed) & 0xFFFFFFFF == header["sum"] else None

    def whole(self, header: dict[str, int], body: bytes) -> bool:
        if not header["flags"] & 1 << 9:
            return xxhash.xxh3_64_intdigest(body) == header["body_sum"]
        table = body[: self.table_bytes()]
        sums = all(xxhash.xxh3_64_intdigest(part) == expected for part, expected in self.columns(body))
        return sums and xxhash.xxh3_64_intdigest(table) == header["body_sum"]

    def table_bytes(self) -> int:
        return -(-16 * len(self.schema) // 64) * 64

    def columns(self, body: bytes) -> list[tuple[bytes, int]]:
        parts, at = [], self.table_bytes()
        for number in range(len(self.schema)):
            size, expected = struct.unpack_from("<QQ", body, 16 * number)
            parts.append((body[at : at + size], expected))
            at += size
        assert at == len(body)
        return parts

    def rows(self, header: dict[str, int], body: bytes) -> list[dict[str, Any]]:
        tag = xxhash.xxh3_64_intdigest(self.schema.remove_metadata().serialize()) & 0xFFFF
        assert header["flags"] >> 16 == tag
        if not header["flags"] & 1 << 9:
            records = pa.ipc.read_record_batch(pa.py_buffer(body), self.schema)
        else:
            fields = [pa.schema([field]) for field in self.schema]
            parts = [part for part, _ in self.columns(body)]
            arrays = [
                pa.ipc.read_record_batch(pa.py_buffer(part), field).column(0)
                for part, field in zip(parts, fields, strict=True)
            ]
            records = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return records.to_pylist()


class PlainLog:
    """All that the page tells of a log at rest."""

    def __init__(self, path: Path) -> None:
        meta = json.loads((path / "meta.json").read_bytes())
        stored = meta.pop("checksum")
        text = json.dumps(meta, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
        assert f"{xxhash.xxh3_64_intdigest(text):016x}" == stored
        salt = int(meta["id"][:16], 16)
        self.rows: dict[int, dict[str, Any]] = {}
        self.kinds: list[int] = []
        self.heads: list[int] = []
        self.commits: list[dict[str, Any]] = []
        self.base = 0
        for name in sorted(file.name for file in path.iterdir() if NAME.fullmatch(file.name)):
            segment = Segment(path / name, salt)
            for header, body in segment.frames():
                self._take(segment, header, body)
            if name.endswith(".seg"):
                self._check_ending(segment)

    def _take(self, segment: Segment, header: dict[str, int], body: bytes) -> None:
        self.kinds.append(header["kind"])
        match header["kind"]:
            case 0:
                rows = segment.rows(header, body)
                self.rows |= dict(enumerate(rows, header["base"]))
                assert [header["first"], header["last"]] == [rows[0]["at"] + 2**63, rows[-1]["at"] + 2**63]
            case 1:
                self.heads.append(header["last"] - 2**63)
            case 2:
                self.commits.append(json.loads(body.rstrip(b"\0")))
            case 3:
                self.base = max(self.base, header["first"])

    def _check_ending(self, segment: Segment) -> None:
        trailer = segment.header(len(segment.raw) - 64)
        assert trailer is not None
        assert trailer["kind"] == TRAILER
        footer = segment.header(trailer["first"])
        assert footer is not None
        start = trailer["first"] + 64
        table = pa.ipc.open_stream(segment.raw[start : start + footer["body_bytes"]]).read_all().to_pylist()
        batches = [header for header, _ in segment.frames() if header["kind"] == BATCH]
        assert [row["base_index"] for row in table] == [header["base"] for header in batches]
        assert [row["count"] for row in table] == [header["entries"] for header in batches]
        for row in table:
            at = segment.header(row["offset"])
            assert at is not None
            assert at["kind"] == BATCH


def batch(first: int, count: int, text: str = "é") -> pa.RecordBatch:
    rows = range(first, first + count)
    return pa.RecordBatch.from_pydict({"at": list(rows), "text": [f"{text}{n}" for n in rows]}, schema=SCHEMA)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_reader_written_from_the_page_reads_every_entry(tmp_path: Path, compression: Any) -> None:
    path = tmp_path / "log"
    settings = Settings(compression=compression, finalize=Finalize(entries=2000))
    with Log.open(path, SCHEMA, settings, order_by="at", extra={"name": "größe"}) as log:
        log.append(batch(-5, 5))
        log.append(batch(0, 5000, "x" * 50))  # by columns
        log.append_group([batch(5000, 10), batch(5010, 10)], writer="w", sequence=1, note="both")
        log.head(6000)
        log.trim(3)
        log.append(batch(6000, 1))
        expected = {
            index: row
            for found in log.read(3)
            for index, row in enumerate(found.records.to_pylist(), found.base_index)
        }
        next_index, durable = log.next_index, log.durable_index
        mark = (path / "mark").read_bytes()
    read = PlainLog(path)
    assert {index: row for index, row in read.rows.items() if index >= read.base} == expected
    assert {BATCH, HEAD, COMMIT, BASE, START, FOOTER} <= set(read.kinds)
    assert read.base == 3
    assert read.heads[-1] == 6000
    assert (read.commits[0]["writer"], read.commits[0]["note"]) == ("w", "both")
    magic, seal, base, after, synced = struct.unpack_from("<4sIQQQ", mark)
    assert (magic, base, after, synced) == (b"hrm1", 3, next_index, durable)
    assert seal == xxhash.xxh3_64_intdigest(mark[8:]) & 0xFFFFFFFF
