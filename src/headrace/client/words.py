"""All the words that a client has: for jobs, and for values."""

from __future__ import annotations

from headrace.client.job_calls import JobWords
from headrace.client.value_calls import ValueWords


class ClientWords(JobWords, ValueWords):
    """Every verb as a call."""
