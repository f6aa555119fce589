"""Names that people give to logs, streams and positions.

A name is 1..200 characters of `[-_A-Za-z0-9.]`, and neither starts with a dot nor contains `..`:
so a name is always exactly one visible file name, and can never leave its directory.
"""

from __future__ import annotations

import re

from headrace.kernel.errors import BadName
from headrace.kernel.limits import NAME_BYTES_MAX

_ALLOWED = re.compile(r"[-_A-Za-z0-9.]+\Z")


def is_name(name: str) -> bool:
    """Whether `checked_name` takes it."""
    return bool(_ALLOWED.match(name)) and not name.startswith(".") and ".." not in name


def checked_name(name: str, what: str = "name") -> str:
    """`name` itself, or BadName saying what is wrong with it."""
    if not isinstance(name, str) or not name:
        raise BadName(f"a {what} must be a non-empty string, not {name!r}")
    if len(name) > NAME_BYTES_MAX:
        raise BadName(f"the {what} {name[:40]!r}… has {len(name)} characters; {NAME_BYTES_MAX} are allowed")
    if not _ALLOWED.match(name):
        raise BadName(f"the {what} {name!r} has characters other than letters, digits, '-', '_' and '.'")
    if name.startswith(".") or ".." in name:
        raise BadName(f"the {what} {name!r} may not start with '.' nor contain '..'")
    return name
