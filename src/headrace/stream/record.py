"""Records: dataclasses and msgspec Structs as rows of fields, alone or as variants of a union.

A union is stored as all its variants' fields side by side, with the name of the variant in `_type`: a field
that several variants have is one column (and must have one type in all of them); in rows of a variant
without it, it is null.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import msgspec
import pyarrow as pa

from headrace.kernel.errors import SchemaMismatch
from headrace.stream.errors import UnknownVariant
from headrace.stream.field import BadValue, FieldType
from headrace.stream.objects import Build, builder
from headrace.stream.types import field_type

TAG = "_type"


@dataclass(frozen=True, slots=True)
class Variant:
    """One class whose objects can be entries, or values of a field."""

    cls: type
    fields: dict[str, FieldType]

    @property
    def tag(self) -> str:
        return self.cls.__name__

    def builder(self) -> Build:
        """What makes its objects of columns, one list for each field in order."""
        return builder(self.cls, tuple(self.fields))

    def to_plain(self, value: Any) -> dict[str, Any]:
        plain = {}
        for name, kind in self.fields.items():
            try:
                plain[name] = kind.to_plain(getattr(value, name))
            except BadValue as error:
                raise BadValue(f"{name}: {error}") from error
        return plain


def is_record(kind: Any) -> bool:
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct))


def variant_of(cls: type) -> Variant:
    """The fields of a dataclass or Struct, by their annotations."""
    try:
        hints = get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise SchemaMismatch(f"{cls.__name__}: {error}; define the type where it can be seen") from error
    names = (
        cls.__struct_fields__
        if issubclass(cls, msgspec.Struct)
        else [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    )
    for name in names:
        if name.startswith("_"):
            raise SchemaMismatch(f"{cls.__name__}.{name}: names that begin with '_' are headrace's own")
    if not names:
        raise SchemaMismatch(f"{cls.__name__} has no fields: there is nothing to store")
    try:
        fields = {name: field_type(hints[name], f"{cls.__name__}.{name}") for name in names}
    except RecursionError:
        raise SchemaMismatch(f"{cls.__name__} contains itself: columns have a fixed depth") from None
    return Variant(cls, fields)


def check_tags(variants: Sequence[Variant]) -> None:
    """Classes of a union are told apart by their names."""
    tags = [variant.tag for variant in variants]
    if len(set(tags)) < len(tags):
        raise SchemaMismatch(f"two classes of a union have one name: {', '.join(tags)}")


def merged_fields(variants: Sequence[Variant]) -> dict[str, FieldType]:
    """The columns of a union: all fields of all variants, nullable unless there is just one variant."""
    merged: dict[str, FieldType] = {}
    owners: dict[str, str] = {}
    for variant in variants:
        for name, kind in variant.fields.items():
            if name in merged and merged[name].arrow != kind.arrow:
                raise SchemaMismatch(
                    f"{name!r} is {merged[name].arrow} in {owners[name]} but {kind.arrow} in {variant.tag}: "
                    "fields of one name must have one type in all variants"
                )
            merged.setdefault(name, kind if len(variants) == 1 or kind.nullable else kind.optional())
            owners.setdefault(name, variant.tag)
    return merged


def record_type(classes: Sequence[type], where: str) -> FieldType:
    """A dataclass, a Struct or a union of them as the type of a field: a struct."""
    variants = {cls: variant_of(cls) for cls in classes}
    check_tags(list(variants.values()))
    builders = {variant.tag: (variant, variant.builder()) for variant in variants.values()}
    fields = merged_fields(list(variants.values()))
    arrow_fields = [pa.field(name, kind.arrow, kind.nullable) for name, kind in fields.items()]
    tagged = len(classes) > 1
    if tagged:
        arrow_fields.insert(0, pa.field(TAG, pa.string(), nullable=False))

    def to_plain(value: Any) -> Any:
        variant = variants.get(type(value))
        if variant is None:
            names = " or ".join(cls.__name__ for cls in classes)
            raise BadValue(f"expected {names}, got {type(value).__name__}")
        return {**variant.to_plain(value), TAG: variant.tag} if tagged else variant.to_plain(value)

    def from_plain(plain: Any) -> Any:
        tag = plain[TAG] if tagged else classes[0].__name__
        if tag not in builders:
            raise UnknownVariant(f"{where}: the stream has a {tag}, which this program does not know")
        variant, build = builders[tag]
        values = []
        for name, kind in variant.fields.items():
            value = plain.get(name)
            values.append(value if kind.from_plain is None or value is None else kind.from_plain(value))
        return build([[value] for value in values])[0]

    inside = tagged or any(kind.has_choices for kind in fields.values())
    requires: dict[str, list[str]] = {}
    for variant in variants.values():
        requires |= required_inside(variant)
        if tagged:
            requires[variant.tag] = required_names(variant)
    return FieldType(pa.struct(arrow_fields), to_plain, from_plain, choices_inside=inside, requires=requires)


def required_names(variant: Variant) -> list[str]:
    """The fields that its objects always have."""
    return sorted(name for name, kind in variant.fields.items() if not kind.nullable)


def required_inside(variant: Variant) -> dict[str, list[str]]:
    """What classes of unions in its fields require, by the path of the field and the class."""
    return {
        f"{name}.{path}": names
        for name, kind in variant.fields.items()
        for path, names in kind.requires.items()
    }
