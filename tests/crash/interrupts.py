"""Interrupts: what a person who presses Ctrl-C does to a program, at every line of it, one after another."""

from __future__ import annotations

import gc
import linecache
import sys
from collections.abc import Callable
from types import FrameType


class Interrupt:
    """Comes before the `at`-th line (from 0) that is run below some folder. `where` it did, or ''.

    Not before lines that Python cannot be interrupted at: when a `with` lets go, what comes next is the call
    that does it.
    """

    def __init__(self, at: int, folders: tuple[str, ...]) -> None:
        self._left = at
        self._folders = folders
        self.where = ""

    def strike(self, act: Callable[[], object]) -> bool:
        """Do it; whether the interrupt came out of it."""
        gc.disable()
        sys.settrace(self._trace)
        try:
            act()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
            gc.enable()
        return False

    def _trace(self, frame: FrameType, event: str, _: object) -> object:
        code = frame.f_code
        if _finalizes(frame) or not any(folder in code.co_filename for folder in self._folders):
            return None
        line = linecache.getline(code.co_filename, frame.f_lineno).strip()
        safe = line.startswith(("with ", "try:", "yield", "except", "finally"))
        if event == "line" and not safe and not self.where:
            if self._left == 0:
                self.where = f"{code.co_name}: {line}"
                raise KeyboardInterrupt
            self._left -= 1
        return self._trace


def _finalizes(frame: FrameType | None) -> bool:
    """Whether it is run by a finalizer: there an interrupt is printed, and nothing else."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None
