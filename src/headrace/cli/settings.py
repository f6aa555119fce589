"""The settings of a node, and where each comes from: flags > `HEADRACE_*` > a TOML file > what stands here.

    port = 7400                         --port 7400                     HEADRACE_PORT=7400
    [limits]
    connections = 100                   --limit connections=100         HEADRACE_LIMITS_CONNECTIONS=100
    [[follow]]
    url = "https://other:7400"
    stream = "orders"                   or journal = "pages"

The dataclasses below are the only list there is: flags, variables, keys of the file, and what `headrace
config show` prints are made of it. Sizes may be text such as "64MiB", times such as "20s". Paths in a file
are relative to the file. A key that is not known is an error that names the nearest one which is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from headrace.cli.quantities import parse_duration, parse_size
from headrace.kernel.errors import BadSettings
from headrace.server.http_limits import HttpLimits

SECRET = "***"
_LIMITS = HttpLimits()


@dataclass(frozen=True, slots=True)
class FollowSetting:
    """A stream or a journal of another node, of which this node keeps a copy."""

    url: str
    stream: str | None = None
    name: str | None = None
    """What the copy is called here; None: the same."""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    """Where the token stands, instead of here."""
    ca: Path | None = None
    """A file with certificates to trust."""
    journal: str | None = None
    """Instead of a stream."""

    def __post_init__(self) -> None:
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise ValueError(f"a node has a URL such as http://other:7400, not {self.url!r}")

    def below(self, folder: Path) -> FollowSetting:
        """The same with paths that are relative to the file it stands in."""
        token_file = self.token_file and folder / self.token_file.expanduser()
        return replace(self, token_file=token_file, ca=self.ca and folder / self.ca.expanduser())

    def secret(self) -> str | None:
        """The token, wherever it stands."""
        if self.token_file is None:
            return self.token
        try:
            return self.token_file.read_text().strip()
        except OSError as error:
            raise BadSettings(f"the token for {self.url} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class NodeSettings:
    store: Annotated[Path, Meta(description="The store: a directory.")] = Path("data")
    host: Annotated[str, Meta(description="The address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="The port; 0: any that is free.")] = 7400
    journal: Annotated[str | None, Meta(description="A journal to serve over FJ, too, on this machine.")] = (
        None
    )
    fj_port: Annotated[int, Meta(ge=0, le=65535, description="The port for FJ; 0: any.")] = 4011
    tls_cert: Annotated[Path | None, Meta(description="A certificate and its chain, in PEM: HTTPS.")] = None
    tls_key: Annotated[Path | None, Meta(description="The key of the certificate, in PEM.")] = None
    insecure: Annotated[bool, Meta(description="Yes, tokens may cross the network unencrypted.")] = False
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="What is logged; info: every request.")
    ] = "warning"
    log_format: Annotated[
        Literal["auto", "text", "json"], Meta(description="How it is logged; auto: JSON with --json.")
    ] = "auto"
    limits: HttpLimits = _LIMITS
    follow: tuple[FollowSetting, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """A value as somebody has given it, and where: `--port`, `HEADRACE_PORT`, `headrace.toml`."""

    value: Any
    origin: str
    folder: Path | None = None
    """What paths are relative to, if not to the working directory."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as it is in force."""

    key: str
    value: Any
    origin: str


@dataclass(frozen=True, slots=True)
class Settled:
    """All settings, and each with its origin."""

    node: NodeSettings
    origins: list[Setting]


def hints() -> dict[str, Any]:
    """The type of every setting, by its key: `port`, `limits.connections`."""
    found = get_type_hints(NodeSettings, include_extras=True)
    del found["limits"]
    return found | {f"limits.{name}": hint for name, hint in get_type_hints(HttpLimits).items()}


def defaults() -> dict[str, Any]:
    plain = {each.name: each.default for each in dataclasses.fields(NodeSettings)}
    del plain["limits"]
    return plain | {f"limits.{each.name}": each.default for each in dataclasses.fields(HttpLimits)}


def settle(*sources: Mapping[str, Given]) -> Settled:
    """What is in force: for each key the first source that has it, and what stands here if none has."""
    known, plain = hints(), defaults()
    values: dict[str, Any] = {}
    origins: list[Setting] = []
    for key, hint in known.items():
        given = next((source[key] for source in sources if key in source), None)
        values[key] = plain[key] if given is None else _converted(key, given, hint)
        origins.append(Setting(key, shown(values[key]), "default" if given is None else given.origin))
    limits = HttpLimits(**{key[7:]: values.pop(key) for key in list(values) if key.startswith("limits.")})
    return Settled(NodeSettings(**values, limits=limits), origins)


def shown(value: Any) -> Any:
    """A value as it may be printed: paths as text, and no secrets."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, tuple):
        return [
            {
                name: SECRET if name == "token" else text
                for name, text in msgspec.to_builtins(each, enc_hook=str).items()
                if text is not None
            }
            for each in value
        ]
    return value


def _converted(key: str, given: Given, hint: Any) -> Any:
    raw = given.value
    try:
        if isinstance(raw, str) and key.endswith("_bytes"):
            raw = parse_size(raw)
        elif isinstance(raw, str) and key.endswith("_s"):
            raw = parse_duration(raw) if raw.strip()[-1:].isalpha() else float(raw)
        value = msgspec.convert(raw, hint, strict=False, dec_hook=lambda kind, each: kind(each))
        if key.startswith("limits.") and not 0 < value < 1 << 50:
            raise ValueError("a limit is more than 0")
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        told = repr(raw)[:80] if key != "follow" else "what stands there"
        raise BadSettings(f"{given.origin}: {key} cannot be {told} ({error})") from None
    if given.folder is None:
        return value
    if isinstance(value, tuple):
        return tuple(each.below(given.folder) for each in value)
    return given.folder / value.expanduser() if isinstance(value, Path) else value
