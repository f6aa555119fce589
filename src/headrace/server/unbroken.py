"""Work that goes on to its end, whoever waits for it.

A request whose peer has gone is cancelled, wherever it is. What opens, changes or closes something for
everybody must not be left half done by that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def unbroken(work: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    @wraps(work)
    async def whole(*arguments: P.args, **named: P.kwargs) -> T:
        doing = asyncio.get_running_loop().create_task(work(*arguments, **named))
        try:
            return await asyncio.shield(doing)
        except asyncio.CancelledError:
            doing.add_done_callback(_heard)
            raise

    return whole


def _heard(done: asyncio.Task[Any]) -> None:
    """What came of it is told to nobody."""
    if not done.cancelled():
        done.exception()
