"""Objects: dataclasses, Structs and dicts made of columns again.

Making an object of a dataclass calls neither `__init__` nor `__post_init__`, as copying does not: it sets the
fields to what they were. A Struct's `__post_init__` is called: msgspec has no way around it.

The function that does it is written for each class, as `publish` is (see `taking`). For a frozen
`Order(at: datetime, user: str)` it is:

    def build(columns):
        made = []
        for v0, v1 in zip(*columns, strict=True):
            entry = twin()
            entry.at = v0
            entry.user = v1
            entry.__class__ = cls
            made.append(entry)
        return made

`twin` is a class of the same layout in which fields can be set; one whose own fields can be set needs none.
What has no twin has `object.__setattr__` called for each field, which takes three times as long.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

Columns = Sequence[list[Any]]
Build = Callable[[Columns], list[Any]]
PIECE_ROWS = 256
"""So many objects are made at a time. With 700 more alive than before Python looks for garbage, of which
there is none among them; that would take as long as all the rest, and longer in a large program."""


def pieces(columns: Columns) -> Iterator[Columns]:
    """The columns, a few hundred rows at a time."""
    rows = len(columns[0]) if columns else 0
    if rows <= PIECE_ROWS:
        yield columns
        return
    for at in range(0, rows, PIECE_ROWS):
        yield [column[at : at + PIECE_ROWS] for column in columns]


@lru_cache(maxsize=256)
def dict_builder(names: tuple[str, ...]) -> Build:
    """What makes dicts of columns, one list for each name in order."""
    items = ", ".join(f"{name!r}: v{at}" for at, name in enumerate(names))
    return _compiled(names, f"{{{items}}}", [])


def builder(cls: type, names: tuple[str, ...]) -> Build:
    """What makes objects of columns, one list for each field in order."""
    if issubclass(cls, msgspec.Struct):
        if _takes_positions(cls):
            return lambda columns: list(map(cls, *columns))
        arguments = ", ".join(f"{name}=v{at}" for at, name in enumerate(names))
        return _compiled(names, f"cls({arguments})", [], cls=cls)
    assign = [f"entry.{name} = v{at}" for at, name in enumerate(names)]
    if cls.__setattr__ is object.__setattr__:
        return _compiled(names, "blank(cls)", assign, cls=cls, blank=object.__new__)
    if (twin := _twin(cls, names)) is not None:
        return _compiled(names, "twin()", [*assign, "entry.__class__ = cls"], cls=cls, twin=twin)
    set_each = [f"set_field(entry, {name!r}, v{at})" for at, name in enumerate(names)]
    return _compiled(
        names, "blank(cls)", set_each, cls=cls, blank=object.__new__, set_field=object.__setattr__
    )


def _takes_positions(cls: type[msgspec.Struct]) -> bool:
    """Whether all fields of a Struct can be given by position."""
    return not any(
        parameter.kind is parameter.KEYWORD_ONLY for parameter in inspect.signature(cls).parameters.values()
    )


def _twin(cls: type, names: tuple[str, ...]) -> type | None:
    """A plain class whose objects can become ones of `cls`, if there is any."""
    if all(isinstance(vars(cls).get(name), types.MemberDescriptorType) for name in names):
        twin = type("Twin", (), {"__slots__": names})
    elif any(hasattr(inspect.getattr_static(cls, name, None), "__set__") for name in names):
        return None  # a property, say, or the slot of a base: it wants to be asked
    else:
        twin = type("Twin", (), {})
    probe: Any = twin()
    try:
        probe.__class__ = cls
    except TypeError:  # another layout
        return None
    object.__setattr__(probe, "__class__", twin)  # so that it ends without code of the class
    return twin


def _compiled(names: Sequence[str], new: str, body: Sequence[str], **scope: Any) -> Build:
    values = "".join(f"v{at}, " for at in range(len(names)))
    source = _BUILD.format(values=values, new=new, body="\n        ".join(body))
    exec(compile(source, f"<objects of {', '.join(names)}>", "exec"), scope)
    build: Build = scope["build"]
    return build


_BUILD = """
def build(columns):
    made = []
    for {values}in zip(*columns, strict=True):
        entry = {new}
        {body}
        made.append(entry)
    return made
"""
