"""Running a replica for a command, until a signal ends it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable

from headrace.cli.console import Console
from headrace.cli.serving import run_loop
from headrace.client.replica import Replica, ReplicaState


def run_replica(make: Callable[[], Replica], once: bool, console: Console) -> ReplicaState:
    """Follow; how it was when it ended."""
    states: list[ReplicaState] = []

    async def follow() -> None:
        replica = make()
        state = replica.state
        states.append(state)
        loop = asyncio.get_running_loop()
        for each in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError, RuntimeError):  # only the main thread has signals
                loop.add_signal_handler(each, replica.stop)
        if not once:
            console.note(f"following {state.source.name} at {state.source.url} as {state.name}")
        await replica.run(once=once)

    run_loop(follow())
    return states[0]
