"""A field's type: how its values are checked, stored and given back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa


class BadValue(Exception):
    """A value that its field cannot hold; becomes BadEntry with the field's name."""


@dataclass(frozen=True, slots=True)
class FieldType:
    arrow: pa.DataType
    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any] | None = None
    quick: type | None = None
    nullable: bool = False
    choices: frozenset[Any] | None = None
    """What may be stored, if that is a fixed set."""
    choices_inside: bool = False
    """Whether such a set is somewhere inside, in a list or a record, say."""
    requires: dict[str, list[str]] = field(default_factory=dict)
    """What the classes of a union require, if there is one inside: see `required`."""

    @property
    def sized(self) -> bool:
        """Whether values differ in size, so that it must be counted."""
        return self.quick in (str, bytes)

    def optional(self) -> FieldType:
        convert, back = self.to_plain, self.from_plain
        return replace(
            self,
            to_plain=lambda value: None if value is None else convert(value),
            from_plain=back and (lambda value: None if value is None else back(value)),
            nullable=True,
        )

    @property
    def has_choices(self) -> bool:
        return self.choices is not None or self.choices_inside

    def required(self, what: str) -> FieldType:
        """The same, refusing None and NaN: `what` cannot be without a value."""
        convert = self.to_plain

        def to_plain(value: Any) -> Any:
            if value is None or value != value:
                raise BadValue(f"{what} cannot be {value!r}")
            return convert(value)

        return replace(self, to_plain=to_plain, nullable=False)


def shown(value: Any) -> str:
    """A value in an error message: its class and, if it is short, itself."""
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:40] + '…'}"
