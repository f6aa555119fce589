"""Portable: a job's classes as bytes, to be loaded where the module that they were written in is not known.

Spark's cloudpickle sends classes of scripts and tests as they are: it makes an empty class and fills it
then. Two kinds of class do not survive this: a msgspec.Struct has its fields from the moment it is made,
and what msgspec remembers of a dataclass, in the class itself, cannot be pickled. Here both are sent in
their own way.
"""

from __future__ import annotations

import inspect
import io
import pickle
import sys
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, get_type_hints

import msgspec
from pyspark import cloudpickle
from pyspark.cloudpickle import cloudpickle as internals
from pyspark.cloudpickle.cloudpickle import Pickler

_by_reference: Any = internals._should_pickle_by_reference
_INSTALLED = ("site-packages", "dist-packages")
_CACHE = "__msgspec_cache__"
_STRUCT_META: Any = type(msgspec.Struct)
_CONFIG = (
    *("frozen", "eq", "order", "array_like", "gc", "omit_defaults", "repr_omit_defaults", "tag", "tag_field"),
    *("forbid_unknown_fields", "weakref", "dict", "cache_hash"),
)
_MADE = {"__annotations__", "__slots__", "__weakref__", "__dict__", "__match_args__", _CACHE}


def send_by_value(cls: type) -> None:
    """Let a class travel as it is, unless workers can import it: not from a script or a test."""
    module = sys.modules.get(cls.__module__)
    installed = any(folder in (getattr(module, "__file__", None) or "") for folder in _INSTALLED)
    if module is not None and module.__name__ != "__main__" and not installed:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def dumps(value: Any) -> bytes:
    file = io.BytesIO()
    pickler: Any = _Pickler
    pickler(file).dump(value)
    return file.getvalue()


def loads(data: bytes) -> Any:
    return pickle.loads(data)


class _Pickler(Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and not _by_reference(obj):
            if isinstance(obj, _STRUCT_META):
                return _reduced(obj)
            if _CACHE in obj.__dict__:
                delattr(obj, _CACHE)  # msgspec makes it again
        return super().reducer_override(obj)  # type: ignore[no-untyped-call]


def _reduced(cls: Any) -> Any:
    """A Struct: what it is made with, then what may refer back to it (methods, the types of its fields)."""
    own = inspect.get_annotations(cls)
    fields = [each for each in msgspec.structs.fields(cls) if each.name in own]
    defaults = {each.name: (each.default, each.default_factory) for each in fields}
    config = {name: getattr(cls.__struct_config__, name) for name in _CONFIG}
    config["rename"] = {each.name: each.encode_name for each in fields if each.encode_name != each.name}
    parameters = inspect.signature(cls).parameters
    config["kw_only"] = any(parameters[each.name].kind is inspect.Parameter.KEYWORD_ONLY for each in fields)
    hints = get_type_hints(cls, include_extras=True)
    rest = {name: value for name, value in vars(cls).items() if _is_own(name, value)}
    rest["__annotations__"] = {name: hints[name] for name in own}
    return _make, (cls.__name__, cls.__bases__, defaults, config), rest, None, None, _fill


def _is_own(name: str, value: Any) -> bool:
    if name in _MADE or name.startswith("__struct_"):
        return False
    return not isinstance(value, MemberDescriptorType | GetSetDescriptorType)


def _make(name: str, bases: Any, defaults: dict[str, tuple[Any, Any]], config: dict[str, Any]) -> Any:
    space: dict[str, Any] = {"__annotations__": dict.fromkeys(defaults, Any)}
    for field, (default, factory) in defaults.items():
        if factory is not msgspec.NODEFAULT:
            space[field] = msgspec.field(default_factory=factory)
        elif default is not msgspec.NODEFAULT:
            space[field] = msgspec.field(default=default)
    return _STRUCT_META(name, bases, space, **config)


def _fill(cls: Any, rest: dict[str, Any]) -> None:
    for name, value in rest.items():
        setattr(cls, name, value)
