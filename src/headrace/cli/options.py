"""Options that several commands share, and options that belong together.

A command with many options takes them as one frozen dataclass: `with_options` shows typer one option for
each of its fields, and gives the command the dataclass.

    @dataclass(frozen=True, slots=True)
    class Policy:
        durability: Annotated[Durability, typer.Option(help="…")] = "fsync"

    @with_options
    def create(path: LogPath, policy: Policy, json: Json = False) -> None: ...
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

Json = Annotated[bool, typer.Option("--json", help="For machines: JSON, one object a line.")]
Token = Annotated[
    str | None,
    typer.Option(envvar="HEADRACE_TOKEN", help="The token that the node asks for.", show_default=False),
]
Ca = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="Certificates to trust, for https.", show_default=False),
]

_Command = Callable[..., None]


def with_options(command: _Command) -> _Command:
    """`command` with each parameter that is a dataclass replaced by one parameter per field."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[Any]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        hint = hints[parameter.name]
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            groups[parameter.name] = hint
            parameters += _parameters_of(hint)
        else:
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(annotation=hint, kind=kind))

    def expanded(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in dataclasses.fields(group)})
        command(**given)

    expanded.__name__, expanded.__doc__ = command.__name__, command.__doc__
    expanded.__module__, expanded.__qualname__ = command.__module__, command.__qualname__
    expanded.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return expanded


def _parameters_of(group: type[Any]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]
