"""The meta of a log: who it is and how it behaves, in `meta.json` and again in every segment.

    {"format": 1, "id": "…", "created_us": …, "schema": "<base64 of the Arrow schema>",
     "order_by": "at" | null, "strict": false, "settings": {…}, "extra": {…}, "checksum": "<hex>"}

The checksum is xxh3_64 of the JSON without it, keys sorted. A flipped bit here could turn "keep for
ever" into "keep for a day", so a meta that does not match its checksum is not believed: the log then
refuses to open for writing until `repair` has restored it from a segment's start frame.

`extra` belongs to the layer above (a stream keeps its declared type there).
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import xxhash

from headrace.kernel.errors import Damaged, NewerFormat
from headrace.log.disk import Disk
from headrace.log.settings import Settings

FORMAT = 1
META_FILE = "meta.json"
COPY_OF = "copy_of"
"""In `extra` of a log that is a copy: where it comes from. Only its follower may write it then."""


@dataclass(frozen=True, slots=True)
class Meta:
    id: str
    created_us: int
    schema: pa.Schema
    order_by: str | None = None
    strict: bool = False
    settings: Settings = field(default_factory=Settings)
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def new(cls, schema: pa.Schema, created_us: int) -> Meta:
        return cls(uuid.uuid4().hex, created_us, schema)

    @property
    def salt(self) -> int:
        """What seeds the header checksums of this log and of its copies, and of no other."""
        return salt_of(self.id)

    def encode(self) -> bytes:
        fields = {
            "format": FORMAT,
            "id": self.id,
            "created_us": self.created_us,
            "schema": base64.b64encode(self.schema.serialize().to_pybytes()).decode(),
            "order_by": self.order_by,
            "strict": self.strict,
            "settings": msgspec.to_builtins(self.settings),
            "extra": self.extra,
        }
        return _json(fields | {"checksum": _checksum(fields)})

    def replace(self, **changes: Any) -> Meta:
        return replace(self, **changes)


def salt_of(log_id: str) -> int:
    return int(log_id[:16], 16)


def decode_meta(raw: bytes, where: str) -> Meta:
    """The meta in `raw`, or Damaged / NewerFormat naming `where` it stood."""
    try:
        fields = msgspec.json.decode(raw, type=dict[str, Any])
        expected = fields.pop("checksum", None)
        if expected != _checksum(fields):  # this rule stays the same in every format
            raise Damaged(f"{where} does not match its checksum: run `headrace log repair`")
        if fields["format"] > FORMAT:
            raise NewerFormat(
                f"{where} has format {fields['format']}; this headrace reads up to {FORMAT}: upgrade headrace"
            )
        return Meta(
            id=fields["id"],
            created_us=fields["created_us"],
            schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields["schema"]))),
            order_by=fields["order_by"],
            strict=fields["strict"],
            settings=msgspec.convert(fields["settings"], Settings),
            extra=fields["extra"],
        )
    except (msgspec.MsgspecError, KeyError, ValueError, TypeError, AttributeError) as error:
        raise Damaged(f"{where} cannot be read ({error}): run `headrace log repair`") from error


def load_meta(disk: Disk, directory: Path) -> Meta:
    path = directory / META_FILE
    return decode_meta(disk.read_whole(path), str(path))


def save_meta(disk: Disk, directory: Path, meta: Meta) -> None:
    disk.replace_whole(directory / META_FILE, meta.encode())


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1)


def _checksum(fields: dict[str, Any]) -> str:
    return f"{xxhash.xxh3_64_intdigest(msgspec.json.encode(fields, order='sorted')):016x}"
