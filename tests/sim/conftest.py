"""Makes an exception inside a simulated broker fail the test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

SWALLOWING = ("broker.sessions.session", "broker.sessions.call")
"""Modules that catch unexpected exceptions and close only one connection. In a simulation such an
exception can be a broken invariant, so the test must fail."""


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
