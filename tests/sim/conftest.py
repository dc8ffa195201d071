"""Makes an exception inside a simulated broker fail the test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

SWALLOWING = ("broker.sessions.session", "broker.sessions.call")
"""Modules that survive an unforeseen error at the cost of one connection. In a simulation the error
can be a broken invariant, which an answer or a request of another broker has shown."""


class RaisingHandler(logging.Handler):
    """A log handler that raises each logged exception again."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            raise record.exc_info[1]


@pytest.fixture(autouse=True)
def faults_are_raised() -> Iterator[None]:
    handler = RaisingHandler()
    loggers = [logging.getLogger(name) for name in SWALLOWING]
    for logger in loggers:
        logger.addHandler(handler)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
