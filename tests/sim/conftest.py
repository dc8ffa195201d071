"""What goes wrong inside a simulated broker goes wrong in its test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

SWALLOWING = ("broker.sessions.session", "broker.sessions.call")
"""Who goes on after an error that nobody has foreseen: it costs one connection. In a simulation it
may be an invariant that does not hold, which an answer or a request of another broker has shown."""


class Raising(logging.Handler):
    """Raises again what was caught and logged."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            raise record.exc_info[1]


@pytest.fixture(autouse=True)
def faults_are_raised() -> Iterator[None]:
    handler = Raising()
    loggers = [logging.getLogger(name) for name in SWALLOWING]
    for logger in loggers:
        logger.addHandler(handler)
    yield
    for logger in loggers:
        logger.removeHandler(handler)
