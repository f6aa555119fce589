"""Durations as people give them: seconds as a number, a timedelta, or text such as `30s`, `2h`, `7d`."""

from __future__ import annotations

import math
import re
from datetime import timedelta

from headrace.kernel.errors import Refused

Duration = float | str | timedelta
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


class BadDuration(Refused):
    code = "bad_duration"


def microseconds(duration: Duration) -> int:
    """The duration in microseconds; BadDuration if it is none, or negative."""
    if isinstance(duration, timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        match = _TEXT.fullmatch(duration)
        if match is None or match[2].lower() not in SECONDS:
            raise BadDuration(f"{duration!r} is not a duration such as 30s, 2h or 7d: units are ms s m h d w")
        seconds = float(match[1]) * SECONDS[match[2].lower()]
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        seconds = duration
    else:
        raise BadDuration(f"a duration is seconds, text such as '30s', or a timedelta, not {duration!r}")
    if not math.isfinite(seconds) or not 0 <= seconds <= 1e11:
        raise BadDuration(f"a duration is a time from 0 on, not {duration!r}")
    return round(seconds * 1_000_000)
