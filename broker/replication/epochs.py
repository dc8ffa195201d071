"""Where two logs part, by their leader epochs (KIP-101, KIP-279, KIP-320).

Floor: replication. Pure. A log is never cut to a high watermark, which may lag behind what is
committed, but only to where its epochs part from its leader's. The leader compares at every fetch
and answers with the largest epoch it has that is not above the follower's, and where that ended.
The follower cuts to where both can agree, and asks again until nothing parts them.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from protocol.types import NO_LEADER_EPOCH, NO_OFFSET


class EpochEnd(NamedTuple):
    """A leader epoch, and the offset at which it ended, exclusive."""

    epoch: int
    end_offset: int


UNKNOWN = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


class Epochs(Protocol):
    """A log's leader epochs, as `broker.storage.leader_epochs` keeps them."""

    @property
    def latest(self) -> int:
        """The epoch of the newest batch, -1 without any."""

    def end_offset_for(
        self, leader_epoch: int, log_end_offset: int, current_epoch: int
    ) -> tuple[int, int]:
        """The largest epoch not above the one asked for, and its end; (-1, -1) when unknown."""


def divergence(
    epochs: Epochs,
    log_end_offset: int,
    current_epoch: int,
    fetch_offset: int,
    last_fetched_epoch: int,
) -> EpochEnd | None:
    """What a leader answers to a follower whose log parts from its own; None if it does not.

    The follower says where its log ends and of which epoch its last batch is; -1 for an empty log,
    which parts from nothing. UNKNOWN for an epoch that is above all of the leader's: no honest
    follower has one, and nothing can be told about it. What is of the leader's own epoch came from
    this log, so nothing parts the two; whether the offset is in range is another question.
    """
    if last_fetched_epoch in (NO_LEADER_EPOCH, current_epoch):
        return None
    found = EpochEnd(*epochs.end_offset_for(last_fetched_epoch, log_end_offset, current_epoch))
    if found == UNKNOWN:
        return UNKNOWN
    if found.epoch < last_fetched_epoch or found.end_offset < fetch_offset:
        return found
    return None


def is_comparable(
    epochs: Epochs, log_start_offset: int, log_end_offset: int, fetch_offset: int, last_epoch: int
) -> bool:
    """Whether a leader still has anything to compare a follower's end with.

    It has not where the follower ends at the leader's start, and the leader has deleted all of the
    follower's last epoch: both may have written that epoch's last offsets, each its own.
    """
    if last_epoch == NO_LEADER_EPOCH or fetch_offset > log_start_offset:
        return True
    ended = EpochEnd(*epochs.end_offset_for(last_epoch, log_end_offset, NO_LEADER_EPOCH))
    return ended == UNKNOWN or ended.end_offset > log_start_offset


def common_end(epochs: Epochs, log_end_offset: int, leaders: EpochEnd) -> int:
    """How much of its log a follower may keep by a leader's answer, exclusive.

    Both logs may have ended that epoch at different places: the earlier one counts. If the epoch
    is not in the follower's log at all, what lies below the end of its next older one is kept, and
    the leader is asked again with that.
    """
    own = EpochEnd(*epochs.end_offset_for(leaders.epoch, log_end_offset, NO_LEADER_EPOCH))
    if own == UNKNOWN:
        return min(leaders.end_offset, log_end_offset)
    if own.epoch == leaders.epoch:
        return min(own.end_offset, leaders.end_offset, log_end_offset)
    return min(own.end_offset, log_end_offset)
