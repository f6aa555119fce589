"""Running a replica for a command, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from headrace.cli.console import Console
from headrace.cli.serving import run_loop
from headrace.client.node_line import NodeLine
from headrace.client.replica import Replica, ReplicaState
from headrace.store import Store


def run_replica(
    store: Store, line: NodeLine, name: str, local: str | None, once: bool, console: Console
) -> ReplicaState:
    """Follow; how it was when it ended."""
    states: list[ReplicaState] = []

    async def follow() -> None:
        replica = Replica(store, line, name, local=local)
        states.append(replica.state)
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError, RuntimeError):  # only the main thread has signals
                loop.add_signal_handler(each, replica.stop)
        if not once:
            console.note(f"following {name} at {line.url} as {replica.state.name}")
        await replica.run(once=once)

    run_loop(follow())
    return states[0]
