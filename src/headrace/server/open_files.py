"""How many files a server may have open: connections are files, too, and must leave some for the data.

Most systems allow a process 1,024 at first, and let it have many more if it asks.
"""

from __future__ import annotations

import contextlib
import logging
import resource
from dataclasses import replace

from headrace.server.http_limits import HttpLimits

_logger = logging.getLogger("headrace.server")


def allow_many() -> None:
    """As many as the system lets this process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # a system that does not want to: then as many as now
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def within_files(limits: HttpLimits) -> HttpLimits:
    """The same limits, with no more connections than half of the files that may be open."""
    files, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = files // 2
    if files == resource.RLIM_INFINITY or limits.connections <= most:
        return limits
    _logger.warning(
        "%d files may be open, so there are at most %d connections, not %d: "
        "allow more with `ulimit -n`, or LimitNOFILE= of the unit",
        files,
        most,
        limits.connections,
    )
    per_address = min(limits.connections_per_address, most)
    return replace(limits, connections=most, connections_per_address=per_address)
