"""Where settings come from: flags, the environment and a file, each as the keys that it gives.

The file is the first of: what `--config` names, what `HEADRACE_CONFIG` names, `headrace.toml` in the working
directory, `headrace.toml` in the store.

A variable `HEADRACE_*` that is nearly the name of a setting is an error, since it is one that was mistyped.
Others are left alone: Kubernetes gives programs variables such as HEADRACE_SERVICE_HOST, after a service.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headrace.cli.settings import FollowSetting, Given, Settled, defaults, settle
from headrace.kernel.errors import BadSettings, NotFound

FILE = "headrace.toml"
CONFIG = "HEADRACE_CONFIG"
PREFIX = "HEADRACE_"
_NEARLY = 0.85
_OTHERS = {
    *("HEADRACE_CONFIG", "HEADRACE_TRACEBACK", "HEADRACE_TOKEN", "HEADRACE_URL"),
    *("HEADRACE_CAMPAIGN", "HEADRACE_EXAMPLES", "HEADRACE_SHRINK"),
}
"""Variables that are no settings of a node."""


def settled(flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None = None) -> Settled:
    """The settings in force. `flags`: those that were given, by key; `limit` is a list of `name=value`."""
    given, variables = from_flags(flags), from_environment(environment)
    path = find_file(config, environment, settle(given, variables).node.store)
    found = settle(given, variables, {} if path is None else from_file(path))
    if (found.node.tls_cert is None) != (found.node.tls_key is None):
        raise BadSettings("tls_cert and tls_key go together: give both, or none")
    return found


def variable_of(key: str) -> str:
    return PREFIX + key.replace(".", "_").upper()


def from_flags(flags: Mapping[str, Any]) -> dict[str, Given]:
    found = {
        key: Given(value, f"--{key.replace('_', '-')}")
        for key, value in flags.items()
        if key != "limit" and value is not None
    }
    for text in flags.get("limit") or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise BadSettings(f"--limit {text[:80]}: say which limit and what it is, as in connections=100")
        check_known(f"limits.{name}", defaults(), f"--limit {name[:80]}")
        found[f"limits.{name}"] = Given(value, f"--limit {name}")
    return found


def from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    keys = {variable_of(key): key for key in defaults() if key != "follow"}
    for name in environment:
        if name.startswith(PREFIX) and name not in keys and name not in _OTHERS:
            near = difflib.get_close_matches(name, [*keys, *_OTHERS], 1, _NEARLY)
            if near:
                raise BadSettings(f"there is no variable {name}: do you mean {near[0]}?")
    return {key: Given(environment[name], name) for name, key in keys.items() if name in environment}


def find_file(config: Path | None, environment: Mapping[str, str], store: Path) -> Path | None:
    asked = config or (Path(environment[CONFIG]) if environment.get(CONFIG) else None)
    if asked is not None:
        if not asked.is_file():
            raise NotFound(f"there is no file {asked}: check --config and {CONFIG}")
        return asked
    return next((path for path in (Path(FILE), store / FILE) if path.is_file()), None)


def from_file(path: Path) -> dict[str, Given]:
    try:
        content = tomllib.loads(path.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadSettings(f"{path} is not TOML: {error}") from error
    known = defaults()
    found: dict[str, Given] = {}
    for key, value in content.items():
        if key == "limits" and isinstance(value, dict):
            for name, limit in value.items():
                check_known(f"limits.{name}", known, str(path))
                found[f"limits.{name}"] = Given(limit, str(path), path.parent)
            continue
        check_known(key, known, str(path))
        if key == "follow":
            _check_follow(value, path)
        found[key] = Given(value, str(path), path.parent)
    return found


def check_known(key: str, known: Iterable[str], where: str) -> None:
    """BadSettings naming the nearest key, unless there is one like that."""
    names = list(known)
    if key not in names:
        (near, *_) = [*difflib.get_close_matches(key, names, 1, 0.0), ""]
        raise BadSettings(f"{where}: there is no setting {key[:80]!r}: do you mean {near!r}?")


def _check_follow(value: Any, path: Path) -> None:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise BadSettings(f"{path}: follow is written as tables, each beginning with [[follow]]")
    for each in value:
        for name in each:
            check_known(f"follow.{name}", [f"follow.{key}" for key in FollowSetting.__slots__], str(path))
        if "token" in each and "token_file" in each:
            raise BadSettings(f"{path}: give either `token` or `token_file` to follow a stream, not both")
        if ("stream" in each) == ("journal" in each):
            raise BadSettings(f"{path}: say which `stream` or which `journal` is to be followed, one in each")
