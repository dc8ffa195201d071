"""The position of one assigned partition, and the error that prevents further reads.

This module is pure: time and the back-off, which has the random source, are arguments.
"""

from enum import StrEnum

from protocol.client.backoff import Backoff
from protocol.client.errors import LogTruncated
from protocol.errors import ErrorCode
from protocol.messages.fetch import EpochEndOffset
from protocol.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_LEADER_EPOCH,
    TopicPartition,
)


class OutOfRange(StrEnum):
    """The reaction to a position that is not, or no longer, in the log."""

    FAIL = "fail"
    EARLIEST = "earliest"
    LATEST = "latest"


RESET_TO = {OutOfRange.EARLIEST: EARLIEST_TIMESTAMP, OutOfRange.LATEST: LATEST_TIMESTAMP}
"""The timestamp that stands for the end of the log at which reading continues."""


class PartitionPosition:
    """The position in one assigned partition.

    An `offset` below 0 is a timestamp whose offset is not known yet. `leader_epoch` is the epoch of
    the last batch read; -1 before the first batch.
    """

    __slots__ = ("backoff", "failure", "leader_epoch", "offset", "problem", "retry_at_ms")

    def __init__(self, offset: int, backoff: Backoff) -> None:
        self.offset = offset
        self.backoff = backoff
        self.failure: Exception | None = None
        self.problem: ErrorCode | None = None
        self.retry_at_ms = 0
        self.leader_epoch = NO_LEADER_EPOCH

    def epoch_to_validate(self, current_epoch: int) -> int:
        """Return the epoch with which a new leader must validate the position; -1 for no
        validation.

        The leader from which the last batch was read cannot have truncated it. So nothing is
        validated as long as the leader stays, which costs the broker nothing.
        """
        return self.leader_epoch if self.leader_epoch < current_epoch else NO_LEADER_EPOCH

    def diverged(self, tp: TopicPartition, end: EpochEndOffset, policy: OutOfRange) -> None:
        """Go back to the offset at which the leader's log and the read records diverge, or fail."""
        if policy is OutOfRange.FAIL:
            self.failure = LogTruncated(tp, self.offset, end.end_offset)
            return
        has_end = 0 <= end.end_offset <= self.offset
        self.offset = end.end_offset if has_end else RESET_TO[policy]
        self.leader_epoch = end.epoch if has_end else NO_LEADER_EPOCH

    def trouble(self, code: ErrorCode, now_ms: int) -> None:
        """Store an error. The partition is fetched again after a back-off."""
        self.problem = code
        self.retry_at_ms = now_ms + self.backoff.next_ms()

    def progress(self, offset: int, leader_epoch: int | None = None) -> None:
        """Set the new position, and the leader epoch of the last batch."""
        self.offset = offset
        if leader_epoch is not None:
            self.leader_epoch = leader_epoch
        self.problem = None
        self.retry_at_ms = 0
        self.backoff.reset()
