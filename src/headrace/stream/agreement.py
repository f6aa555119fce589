"""Agreement: what a stream is made with, and whether a declaration fits a stream that is there.

A program that has the store's directory and one that asks a node agree in the same way: both look at the
stream's meta. `Terms` are what a node is asked to make a stream with.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pyarrow as pa

from headrace.kernel.errors import BadSettings, SchemaMismatch
from headrace.log.meta import Meta
from headrace.log.settings import Settings
from headrace.stream.declaration import Declaration, declare
from headrace.stream.evolve import check_evolution
from headrace.stream.required import Required, declared_required, grown_extra
from headrace.stream.unique import check_id_field


@dataclass(frozen=True, slots=True)
class StreamConfig:
    """All that a stream is created with."""

    type: Any
    order_by: str | Callable[[Any], Any] | None = None
    strict: bool = False
    unique_by: str | None = None
    unique_window: int | None = None
    settings: Settings | None = None


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stream keeps in its log's meta, besides what a log keeps."""

    raw: bool = False
    required: Required = {}
    unique_by: str | None = None
    unique_window: int | None = None


class Terms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a stream is made with, or grows to, as it can be sent."""

    schema: str
    """The Arrow schema, serialized, in base64."""
    words: Words
    order_by: str | None = None
    strict: bool = False
    settings: Settings | None = None

    @classmethod
    def of(cls, declaration: Declaration, config: StreamConfig) -> Terms:
        """The terms of a new stream; BadSettings if they cannot be."""
        if config.unique_by is not None:
            check_id_field(declaration, config.unique_by)
        words = Words(declaration.raw, declared_required(declaration), config.unique_by, config.unique_window)
        settings = config.settings and config.settings.checked()
        return cls(encode_schema(declaration.schema), words, declaration.order_by, config.strict, settings)

    @classmethod
    def grown(cls, meta: Meta, declaration: Declaration, name: str) -> Terms | None:
        """What the stream becomes with this declaration; None if it stays as it is."""
        schema, extra = check_evolution(meta, declaration, name), grown_extra(meta, declaration, name)
        if schema.equals(meta.schema) and extra == meta.extra:
            return None
        words = msgspec.convert(extra["stream"], Words)
        return cls(encode_schema(schema), words, meta.order_by, meta.strict)

    def declaration(self) -> Declaration:
        """What the terms declare, checked; classes are not known here, only their columns."""
        declaration = declare(decode_schema(self.schema), self.order_by, stored=True)
        if self.words.unique_by is not None:
            check_id_field(declaration, self.words.unique_by)
        if self.words.unique_window is not None and self.words.unique_window < 1:
            raise BadSettings(f"unique_window counts entries, at least 1, not {self.words.unique_window}")
        return declaration

    def extra(self) -> dict[str, Any]:
        return {"stream": msgspec.to_builtins(self.words)}


def encode_schema(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def decode_schema(text: str) -> pa.Schema:
    try:
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text, validate=True)))
    except (pa.ArrowException, OSError, binascii.Error, ValueError) as error:
        raise SchemaMismatch(f"this is no Arrow schema in base64: {error}") from error


def stored_declaration(meta: Meta) -> Declaration:
    """What a stream is by what is stored of it: its entries are bytes or dicts."""
    if meta.extra.get("stream", {}).get("raw") and meta.order_by is None:
        return declare(bytes)
    declaration = declare(meta.schema, meta.order_by, stored=True)
    return replace(declaration, schema=meta.schema)


def check_config(name: str, meta: Meta, declaration: Declaration, config: StreamConfig) -> None:
    """Refuse a declaration that the stream cannot be read and written with."""
    check_evolution(meta, declaration, name)
    grown_extra(meta, declaration, name)
    if declaration.order_by != meta.order_by:
        stored_key, wanted_key = meta.order_by or "index", declaration.order_by or "index"
        raise SchemaMismatch(f"stream {name!r} is ordered by {stored_key}, not by {wanted_key}")
    stored = meta.extra.get("stream", {})
    if config.unique_by != stored.get("unique_by"):
        raise SchemaMismatch(
            f"stream {name!r}: unique_by is {stored.get('unique_by')!r}, not {config.unique_by!r}"
        )
    if config.unique_window != stored.get("unique_window"):
        raise SchemaMismatch(
            f"stream {name!r}: unique_window is {stored.get('unique_window')}, not {config.unique_window}"
        )


def check_exactly(name: str, meta: Meta, declaration: Declaration, config: StreamConfig) -> None:
    """Refuse a stream that has any other configuration than this one."""
    check_config(name, meta, declaration, config)
    if meta.strict != config.strict:
        raise BadSettings(f"stream {name!r}: strict is {meta.strict}, expected {config.strict}")
    if config.settings is not None and meta.settings != config.settings.checked():
        raise BadSettings(f"stream {name!r} has other settings: {_difference(meta, config.settings)}")


def _difference(meta: Meta, wanted: Settings) -> str:
    stored, expected = msgspec.to_builtins(meta.settings), msgspec.to_builtins(wanted.checked())
    return ", ".join(
        f"{key} is {stored[key]}, expected {expected[key]}" for key in stored if stored[key] != expected[key]
    )
