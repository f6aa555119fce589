"""`headrace doctor`: is everything as it should be, and if not, what is to be done?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from headrace.cli import doctor_machine, doctor_store
from headrace.cli.console import Console, Exit
from headrace.cli.findings import Finding, run
from headrace.cli.options import Ca, Json
from headrace.cli.settings_flags import Config
from headrace.cli.stream_open import DEFAULT_STORE, StoreDir
from headrace.store import STORE_FILE


def doctor(
    *,
    store: StoreDir = DEFAULT_STORE,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="A node to ask whether it is ready.", show_default=False)
    ] = None,
    ca: Ca = None,
    config: Config = None,
    json: Json = False,
) -> None:
    """Check the machine, the disk, a store and a node, line by line.

    Streams and journals are opened and read at their ends; `headrace stream verify` reads all of them. The
    exit code is 1 if something has failed. Nothing is changed.

    Example: headrace doctor --store data --url http://127.0.0.1:7400
    """
    findings = list(_findings(store, url, ca, config))
    states = {state: sum(each.state == state for each in findings) for state in ("ok", "warning", "failed")}
    lines = [each.line for each in findings]
    lines.append(", ".join(f"{count} {state}" for state, count in states.items()))
    Console(json).answer({**states, "findings": msgspec.to_builtins(findings)}, "\n".join(lines))
    if states["failed"]:
        raise typer.Exit(Exit.ERROR)


def _findings(store: Path, url: str | None, ca: Path | None, config: Path | None) -> Iterator[Finding]:
    checks: dict[str, Callable[[], Iterator[Finding]]] = {
        "programs": doctor_machine.programs,
        "limits": doctor_machine.limits,
    }
    there = os.path.isfile(store / STORE_FILE)  # false, and no error, where one may not look
    if there:
        checks |= {
            "disk": partial(doctor_machine.disk, store),
            "permissions": partial(doctor_store.modes, store),
            "store": partial(doctor_store.store, store),
            "tokens": partial(doctor_store.tokens, store),
            "settings": partial(doctor_store.settings, store, os.environ, config),
        }
    if url is not None:
        checks["node"] = partial(doctor_store.node, url, ca)
    if not there:
        checks["store"] = partial(doctor_store.missing, store, needed=url is None)
    for name, check in checks.items():
        yield from run(name, check)
