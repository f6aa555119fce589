"""What the classes of unions require.

The columns of a union are nullable, so the schema does not say which class must have which field. A stream's
meta keeps it, by the class's name, behind the path of the field that the union is in:

    {"Paid": ["amount", "order"], "Refunded": ["order"], "by.Card": ["number"]}

A stream of one class keeps that one's name in the same place: it is what its entries are should the stream
become a union. A field that was optional once stays so: entries may be without it.
"""

from __future__ import annotations

from typing import Any

from headrace.kernel.errors import SchemaMismatch
from headrace.log.meta import Meta
from headrace.stream.declaration import Declaration
from headrace.stream.record import TAG, required_inside, required_names

Required = dict[str, list[str]]


def declared_required(declaration: Declaration) -> Required:
    """What each class requires, by the declared type."""
    required: Required = {}
    for variant in declaration.variants:
        required[variant.tag] = required_names(variant)
        required |= required_inside(variant)
    return required


def grown_extra(meta: Meta, declaration: Declaration, stream: str) -> dict[str, Any]:
    """The stream's stored words with the classes that are new; or SchemaMismatch if an old one needs more."""
    required = _stored_required(meta)
    if declaration.polymorphic and TAG not in meta.schema.names:
        held = class_until_now(meta, declaration, stream)
        required = {name: names for name, names in required.items() if "." in name}
        required[held] = [field.name for field in meta.schema if not field.nullable]
    for name, wanted in declared_required(declaration).items():
        known = required.get(name, wanted)
        new = sorted(set(wanted) - set(known))
        if new and (declaration.polymorphic or "." in name):  # of one class alone, the schema says it
            raise SchemaMismatch(
                f"stream {stream!r}: {name}.{new[0]} must be optional: entries that are there may not have it"
            )
        required[name] = sorted(set(wanted) & set(known))
    return {**meta.extra, "stream": {**meta.extra.get("stream", {}), "required": required}}


def class_until_now(meta: Meta, declaration: Declaration, stream: str) -> str:
    """The class that a stream held before it becomes a union; or SchemaMismatch if it is not one of them."""
    held = [name for name in _stored_required(meta) if "." not in name]
    found = [variant.tag for variant in declaration.variants if variant.tag in held]
    if len(found) != 1:
        declared = " | ".join(variant.tag for variant in declaration.variants)
        raise SchemaMismatch(
            f"stream {stream!r} holds {' or '.join(held) or 'rows without a class'}: it can become a union "
            f"that has just this class, which {declared} has not"
        )
    return found[0]


def _stored_required(meta: Meta) -> Required:
    return dict(meta.extra.get("stream", {}).get("required", {}))
