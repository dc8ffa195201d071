"""Logs the denied operations of clients.

The level is INFO, as in the log of Kafka's authorizer, because a denial is a mistake of the client
and not of the broker.
"""

from __future__ import annotations

import logging

from broker.metrics.metrics import Metrics
from broker.security.denials import Denial, DenialLog, DueDenials
from broker.world import Clock
from protocol.log import fields

logger = logging.getLogger(__name__)

DENIED = "authorization denied"
REPEATED = "authorization denied again"
LEFT_OUT = "more authorizations denied"


class AuditLog:
    """The log of one broker's denials."""

    def __init__(self, clock: Clock, metrics: Metrics) -> None:
        self._clock = clock
        self._metrics = metrics
        self._denials = DenialLog()

    def note(self, denial: Denial) -> None:
        """Count a denial, and log it unless it repeats an earlier one."""
        self._metrics.authorization_denied += 1
        if self._denials.note(denial, self._clock.monotonic_ms()):
            logger.info(DENIED, extra=fields(**_values(denial)))

    def close_due(self, now_ms: int) -> None:
        """Log the numbers of the intervals that have ended. Call it about every second."""
        _log(self._denials.due(now_ms))

    def close_all(self) -> None:
        """Log all numbers now, because the broker stops."""
        _log(self._denials.close())


def _log(due: DueDenials) -> None:
    for denial, count in due.repeated:
        logger.info(REPEATED, extra=fields(**_values(denial), count=count))
    for user, count in due.left_out:
        logger.info(LEFT_OUT, extra=fields(user=user, count=count))


def _values(denial: Denial) -> dict[str, object]:
    return {
        "user": denial.user,
        "address": denial.host,
        "operation": denial.operation.name.lower(),
        "resource": denial.resource,
        "request": denial.request.name.lower(),
    }
