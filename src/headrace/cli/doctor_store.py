"""What `headrace doctor` looks at in a store and of a node: does it open, who can read it, who may use it."""

from __future__ import annotations

import os
import ssl
import stat
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.cli.findings import Finding, failed, ok, warning
from headrace.cli.quantities import plural
from headrace.cli.settings_sources import settled
from headrace.journal.engine import LOG_DIRECTORY
from headrace.kernel.clock import SystemClock
from headrace.kernel.errors import HeadraceError
from headrace.log.log import Log
from headrace.server.tokens import TOKENS_FILE, TokenFile
from headrace.store import JOURNALS_DIRECTORY, STREAMS_DIRECTORY, Store, open_store

_SOON_US = 7 * 86_400_000_000
_TIMEOUT_S = 5


def store(path: Path) -> Iterator[Finding]:
    """The streams and journals, each opened and read at its ends."""
    with open_store(path) as opened:
        logs = _logs(opened)
        bad = 0
        for what, folder, advice in logs:
            try:
                _look(folder)
            except HeadraceError as error:
                bad += 1
                yield failed(what, f"{error} ({error.code})", advice)
        if not bad:
            yield ok(
                "store", f"{plural(len(logs), 'stream or journal', 'streams and journals')}, all open well"
            )


def missing(path: Path, *, needed: bool) -> Iterator[Finding]:
    """A directory that is no store; `needed` if there is nothing else to look at."""
    if path.is_dir() and not any(path.iterdir()):  # as a service finds it at its first start
        yield warning("store", f"{path} is empty", "it becomes one when it is used")
        if not os.access(path, os.W_OK):
            yield _not_writable(path)
    elif needed:
        yield failed(
            "store", f"there is none at {path}", "say where it is with --store, or make it by using it"
        )


def _logs(opened: Store) -> list[tuple[str, Path, str]]:
    found = []
    for name in opened.streams():
        folder = opened.path / STREAMS_DIRECTORY / name
        found.append((f"stream {name}", folder, f"run `headrace stream verify {name}`"))
    for name in opened.journals():
        folder = opened.path / JOURNALS_DIRECTORY / name / LOG_DIRECTORY
        found.append((f"journal {name}", folder, f"run `headrace log verify {folder}`"))
    return found


def _look(folder: Path) -> None:
    """Its first and its last entry can be read; `verify` reads all of them."""
    with Log.open(folder, read_only=True) as log:
        log.info()
        if log.next_index > log.first_index:
            for index in {log.first_index, log.next_index - 1}:
                for _ in log.read(index, index + 1):
                    pass


def modes(path: Path) -> Iterator[Finding]:
    """Who else can read secrets, or write to the store."""
    tokens, wrong = path / TOKENS_FILE, False
    if tokens.exists() and stat.S_IMODE(tokens.stat().st_mode) & 0o077:
        wrong = True
        yield failed("permissions", f"others can read {tokens}", f"chmod 600 {tokens}")
    if path.stat().st_mode & stat.S_IWOTH:
        wrong = True
        yield failed("permissions", f"everybody can write to {path}", f"chmod o-w {path}")
    if not os.access(path, os.W_OK):
        wrong = True
        yield _not_writable(path)
    if not wrong:
        yield ok("permissions", "only their owner can change the files")


def _not_writable(path: Path) -> Finding:
    return failed("permissions", f"you may not write to {path}", "run as the user who owns it")


def tokens(path: Path) -> Iterator[Finding]:
    found, now_us = TokenFile(path).tokens(), SystemClock().now_us()
    if found is None:
        yield ok("tokens", "none: the node is open to its own machine, and to nobody else")
        return
    expired = [token.name for token in found if token.expired(now_us)]
    soon = [token.name for token in found if token.expired(now_us + _SOON_US) and token.name not in expired]
    if expired:
        yield warning("tokens", f"{', '.join(expired)} expired", "revoke them, and make new ones")
    if soon:
        yield warning("tokens", f"{', '.join(soon)} will expire within a week", "make new ones")
    if len(found) == len(expired):
        yield failed("tokens", "no token can be used", "make one with `headrace token create`")
    elif not expired and not soon:
        yield ok("tokens", plural(len(found), "token"))


def settings(path: Path, environment: Mapping[str, str], config: Path | None) -> Iterator[Finding]:
    """What `headrace serve` would run with, and its certificate."""
    node = settled({"store": path}, environment, config).node
    if node.tls_cert is None or node.tls_key is None:
        yield ok("settings", f"{node.host}:{node.port}, without TLS")
        return
    from headrace.server.tls import server_context

    server_context(node.tls_cert, node.tls_key)
    if stat.S_IMODE(node.tls_key.stat().st_mode) & 0o007:
        yield failed("settings", f"everybody can read the key {node.tls_key}", f"chmod o-r {node.tls_key}")
    else:
        yield ok("settings", f"{node.host}:{node.port}, with TLS")


def node(url: str, ca: Path | None) -> Iterator[Finding]:
    """Whether a node answers, and takes requests."""
    trusted = ssl.create_default_context()
    if ca is not None:
        trusted.load_verify_locations(ca)
    https = urllib.request.HTTPSHandler(context=trusted)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), https)
    try:
        with opener.open(f"{url.rstrip('/')}/readyz", timeout=_TIMEOUT_S) as response:
            response.read(1000)
        yield ok("node", f"{url} is ready")
    except urllib.error.HTTPError as error:
        yield failed("node", f"{url} is not ready ({error.code})", "see its log")
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            why = f"the certificate of {url} is not to be trusted ({reason.verify_message})"
            yield failed("node", why, "renew it, or give its issuer's with --ca")
            return
        yield failed("node", f"{url} does not answer ({reason})", "is it running? check the address")
