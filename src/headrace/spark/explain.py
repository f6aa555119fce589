"""Explaining: what Spark raises, as an error of headrace's own, in one sentence.

An error that headrace raises inside Spark (in a source, a sink, a worker) arrives as text in the middle of
Java's and Python's tracebacks: `headrace.kernel.errors.NotFound: there is no …`. Here it becomes what it was.
An error of the user's own code is told with the line that raised it; of Spark's own errors one sentence is
kept.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from headrace.kernel.errors import Broken, DiskFull, HeadraceError, NoPermission

_OURS = re.compile(r"\b(headrace(?:\.\w+)+)\.([A-Z]\w*): (\S.*)$", re.MULTILINE)
_RAISED = re.compile(
    r"^(?!Caused by)([A-Za-z_][\w.]*): (.*)$|^(\w+(?:Error|Exception|Interrupt))$", re.MULTILINE
)
_PLACE = re.compile(r'^  File "(.+)", line (\d+), in ', re.MULTILINE)
_JAVA = re.compile(r"(?:^|: )((?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error)): (.+)$", re.MULTILINE)
_NOISE = re.compile(r"\s*SQLSTATE: \w{5}.*$|^\[[A-Z_.0-9]+\]\s*")
_TRACEBACK = "Traceback (most recent call last):"
_AFTER = "\n=== Streaming Query ==="
_SENTENCE_MAX = 500


class SparkFailed(Broken):
    """Spark could not do what it was asked for; the sentence is its own."""

    code = "spark_failed"


@contextmanager
def plain_words() -> Iterator[None]:
    """Whatever Spark raises inside leaves as an error of headrace."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as error:
        raise explain(error) from error


def explain(error: BaseException) -> HeadraceError:
    """The error of headrace that a person can understand in the place of one of Spark."""
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, Py4JNetworkError | ConnectionError):
        return SparkFailed("Spark's Java process has ended (was it killed, or out of memory?): start again")
    text = str(error).partition(_AFTER)[0]
    return _ours(text) or _of_python(text) or SparkFailed(f"Spark says: {_of_spark(text)}")


def _ours(text: str) -> HeadraceError | None:
    """The error that headrace raised somewhere inside: of several the last, which was raised on top."""
    for module, name, sentence in reversed(_OURS.findall(text)):
        try:
            kind = getattr(importlib.import_module(module), name, None)
        except ImportError:
            continue
        if isinstance(kind, type) and issubclass(kind, HeadraceError):
            made: HeadraceError = kind.__new__(kind, _clean(sentence))  # some have an __init__ of their own
            return made
    return None


def _of_python(text: str) -> HeadraceError | None:
    """An error of Python code that runs inside Spark, with the place that raised it."""
    if _TRACEBACK not in text:
        return None
    traceback = text.rpartition(_TRACEBACK)[2]
    places = list(_PLACE.finditer(traceback))
    after = traceback[places[-1].end() :] if places else traceback
    raised = _RAISED.search(after)
    if raised is None:
        return None
    kind, sentence = (raised[1] or raised[3]).rpartition(".")[2], _clean(raised[2] or "")
    if "[Errno 28]" in sentence:
        return DiskFull(f"no room on the disk: free some and try again ({sentence})")
    if "[Errno 13]" in sentence or "[Errno 30]" in sentence:
        return NoPermission(
            f"Spark's workers are not allowed to open or change a file ({sentence}): check who owns it"
        )
    own = [place for place in places if "/pyspark/" not in place[1] and not place[1].startswith("<")]
    where = f" ({Path(own[-1][1]).name}, line {own[-1][2]})" if own else ""
    return SparkFailed(
        f"the code that Spark runs failed with {kind}{f': {sentence}' if sentence else ''}{where}"
    )


def _of_spark(text: str) -> str:
    """The sentence that says most: of Java's chain of errors the innermost one, else the first line."""
    causes = _JAVA.findall(text)
    if causes:
        return _clean(causes[-1][1])
    first = next((line for line in text.splitlines() if line.strip()), "nothing")
    return _clean(first)


def _clean(sentence: str) -> str:
    for _ in range(3):
        sentence = _NOISE.sub("", sentence.strip())
    return sentence if len(sentence) <= _SENTENCE_MAX else f"{sentence[:_SENTENCE_MAX]}…"
