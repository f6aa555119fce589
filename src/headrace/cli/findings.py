"""What a check of `headrace doctor` has found: well, to be looked at, or failed; and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.kernel.errors import HeadraceError

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: State
    found: str
    advice: str | None = None
    """What to do, unless it is well."""

    @property
    def line(self) -> str:
        return f"{self.state:<7}  {self.check}: {self.found}" + (f"; {self.advice}" if self.advice else "")


def ok(check: str, found: str) -> Finding:
    return Finding(check, "ok", found)


def warning(check: str, found: str, advice: str) -> Finding:
    return Finding(check, "warning", found, advice)


def failed(check: str, found: str, advice: str | None = None) -> Finding:
    return Finding(check, "failed", found, advice)


def run(check: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a check; one that cannot be made has failed, and the others go on."""
    try:
        yield from look()
    except HeadraceError as error:
        yield failed(check, f"{error} ({error.code})")
    except OSError as error:
        yield failed(check, f"it cannot be looked at ({error})")
