"""The settings of a node as options of a command: made from the dataclass, so that none can be forgotten.

    @with_settings
    def serve(settings: Settled, json: Json = False) -> None: ...

An option that is not given is None, and leaves the word to the environment and the file.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

import typer
from msgspec import Meta

from headrace.cli.settings import Settled, defaults, hints
from headrace.cli.settings_sources import settled

Config = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A file with settings, in TOML.", show_default=False),
]
Limit = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="One of the limits; may be repeated.", show_default=False),
]


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """`command` with its first parameter replaced by an option for each setting."""
    first, *others = inspect.signature(command).parameters.values()
    own = get_type_hints(command, include_extras=True)
    options = _options()
    options |= {"limit": Limit, "config": Config}

    def expanded(**given: Any) -> None:
        flags = {name: given.pop(name) for name in options}
        config = flags.pop("config")
        command(settled(flags, os.environ, config), **given)

    parameters = [_parameter(name, hint, None) for name, hint in options.items()]
    parameters += [_parameter(each.name, own[each.name], each.default) for each in others]
    assert own[first.name] is Settled
    expanded.__name__, expanded.__doc__ = command.__name__, command.__doc__
    expanded.__annotations__ = {each.name: each.annotation for each in parameters}
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return expanded


def _parameter(name: str, hint: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)


def _options() -> dict[str, Any]:
    made = {}
    for name, hint in hints().items():
        if "." in name or name == "follow":
            continue
        plain, meta = get_args(hint)
        assert isinstance(meta, Meta)
        default = defaults()[name]
        option = typer.Option(
            f"--{name.replace('_', '-')}",
            help=meta.description,
            min=meta.ge,
            max=meta.le,
            readable=False,
            show_default=False if default in (None, False) else str(default),
        )
        made[name] = Annotated[_without_none(plain) | None, option]
    return made


def _without_none(hint: Any) -> Any:
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return kinds[0] if NoneType in get_args(hint) else hint
