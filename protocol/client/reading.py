"""How far one assigned partition has been read, and what keeps it from being read on.

Floor: client. Pure: chance is the back-off's, time an argument.
"""

from enum import StrEnum

from protocol.client.backoff import Backoff
from protocol.errors import ErrorCode
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP


class OutOfRange(StrEnum):
    """What to do when a position does not exist in the log (any more)."""

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


RESET_TO = {OutOfRange.EARLIEST: EARLIEST_TIMESTAMP, OutOfRange.LATEST: LATEST_TIMESTAMP}
"""The timestamp that stands for the end of a log at which to go on."""


class Reading:
    """One assigned partition. An `offset` below 0 is a timestamp still to be looked up."""

    __slots__ = ("backoff", "failure", "offset", "problem", "retry_at_ms")

    def __init__(self, offset: int, backoff: Backoff) -> None:
        self.offset = offset
        self.backoff = backoff
        self.failure: Exception | None = None
        self.problem: ErrorCode | None = None
        self.retry_at_ms = 0

    def trouble(self, code: ErrorCode, now_ms: int) -> None:
        """It gives nothing at the moment; it is asked for again a little later."""
        self.problem = code
        self.retry_at_ms = now_ms + self.backoff.next_ms()

    def progress(self, offset: int) -> None:
        """It has been read up to here."""
        self.offset = offset
        self.problem = None
        self.retry_at_ms = 0
        self.backoff.reset()
