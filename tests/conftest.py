"""Which tests run where, when there are several workers.

Each worker that runs a test with Spark starts a Java of its own, which takes seconds and both cores. So the
tests with a session share one worker, and those that start programs with a session of their own another
one.
"""

from __future__ import annotations

from typing import Any

import pytest

_TOGETHER = {
    "tests/spark/": "spark",
    "tests/cli/test_spark": "spark",
    "tests/docs/test_examples": "programs",
    "tests/docs/test_snippets": "programs",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((name for path, name in _TOGETHER.items() if nodeid.startswith(path)), nodeid)

    return Together(config, log)
