"""No test here depends on timing: hypothesis must not either."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("no deadline", deadline=None, derandomize="HEADRACE_CAMPAIGN" not in os.environ)
settings.load_profile("no deadline")
