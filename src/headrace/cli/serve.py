"""`headrace serve`: a store for other processes and machines, over HTTP."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
from typing import TYPE_CHECKING

from headrace.cli.console import Console
from headrace.cli.log_lines import logging_to_stderr
from headrace.cli.options import Json
from headrace.cli.quantities import plural
from headrace.cli.settings import NodeSettings, Settled
from headrace.cli.settings_flags import with_settings
from headrace.kernel.clock import SystemClock
from headrace.kernel.errors import HeadraceError, MissingExtra, Refused
from headrace.server.tokens import TokenFile
from headrace.store import Store, open_store

if TYPE_CHECKING:
    from headrace.cli.kept_replicas import KeptReplicas
    from headrace.server.node import Node

_logger = logging.getLogger("headrace.server")


@with_settings
def serve(settings: Settled, json: Json = False) -> None:
    """Serve the streams and journals of a store over HTTP.

    The address is printed when it takes connections. At SIGTERM or SIGINT every request that was taken is
    answered, readers that follow get what is there, and the exit code is 0. At SIGHUP the certificate is
    read again. Addresses that others reach need tokens (`headrace token create`), and TLS. Every option can
    be given in a file or as a variable, too: see `headrace config show`.

    Example: headrace serve --port 7400
    """
    try:
        from headrace.cli.serving import others_reach, run_loop
        from headrace.server import http  # noqa: F401  # is it installed?
    except ModuleNotFoundError as error:
        raise MissingExtra("this needs the server: pip install 'headrace[server]'") from error
    node = settings.node
    reached = others_reach(node.host)
    if reached:
        check_safe(node)
    tls = _tls(node)
    lines = node.log_format == "json" or (node.log_format == "auto" and json)
    with open_store(node.store) as opened, logging_to_stderr(node.log_level, json=lines):
        run_loop(_serve(opened, node, tls, Console(json), reached=reached))


def check_safe(node: NodeSettings) -> None:
    """Refuse to be reached by others without tokens, and without TLS unless that is meant."""
    missing = []
    tokens = TokenFile(node.store).tokens() or []
    now_us = SystemClock().now_us()
    if all(token.expired(now_us) for token in tokens):
        missing.append("make a token with `headrace token create`")
    if node.tls_cert is None and not node.insecure:
        missing.append("give --tls-cert and --tls-key, or --insecure if the network is private")
    if missing:
        raise Refused(
            f"{node.host or 'every address'} can be reached by others: {', and '.join(missing)}; "
            "or listen on 127.0.0.1"
        )


def _tls(node: NodeSettings) -> ssl.SSLContext | None:
    from headrace.server.tls import server_context

    if node.tls_cert is None or node.tls_key is None:
        return None
    return server_context(node.tls_cert, node.tls_key)


def _renew(context: ssl.SSLContext | None, node: NodeSettings) -> None:
    """At SIGHUP, which would end a process that does not expect it."""
    from headrace.server.tls import load

    if context is None or node.tls_cert is None or node.tls_key is None:
        return
    try:
        load(context, node.tls_cert, node.tls_key)
        _logger.info("the certificate %s has been read again", node.tls_cert)
    except HeadraceError as error:
        _logger.error("the old certificate stays: %s", error)


def _follow(node: Node, settings: NodeSettings) -> KeptReplicas:
    """The copies of other nodes' streams and journals that the settings ask for."""
    from headrace.cli.kept_replicas import KeptReplicas
    from headrace.client.node_line import NodeLine

    kept = KeptReplicas(node)
    for each in settings.follow:
        line = NodeLine(each.url, each.secret(), ca=each.ca)
        if each.journal is not None:
            kept.follow(line, each.journal, each.name, "journals")
        elif each.stream is not None:
            kept.follow(line, each.stream, each.name)
    return kept


async def _serve(
    store: Store, settings: NodeSettings, tls: ssl.SSLContext | None, console: Console, *, reached: bool
) -> None:
    from headrace.cli.serving import shown_address, started, until_signal
    from headrace.server.http import HttpServer
    from headrace.server.node import Node

    node = Node(store, settings.limits)
    where = (settings.host, settings.port)
    server = await started(HttpServer.start(node, *where, tls=tls, tokens_required=reached), where)
    scheme = "http" if tls is None else "https"
    facts: dict[str, object] = {"host": server.address[0], "port": server.address[1], "scheme": scheme}
    line = f"serving {store.path} at {scheme}://{shown_address(server.address)}"
    journals = None
    if settings.journal is not None:
        await node.ensure_journal(settings.journal)
        # FJ knows no passwords: it stays on this machine, wherever HTTP is served.
        there = ("127.0.0.1" if reached else settings.host, settings.fj_port)
        journals = await node.fj(settings.journal)
        await started(journals.listen(*there), there, "--fj-port")
        facts |= {"journal": settings.journal, "fj_port": journals.address[1]}
        line += f", journal {settings.journal} over FJ at {shown_address(journals.address)}"
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _renew, tls, settings)
    kept = _follow(node, settings)
    console.answer(facts, line)
    await until_signal()
    await kept.stop()
    await server.stop()
    await node.close()
    console.note(f"stopped after {plural(node.requests, 'request')}")
