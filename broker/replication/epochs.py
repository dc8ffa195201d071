"""Finds where two logs diverge, by their leader epochs (KIP-101, KIP-279, KIP-320).

This module is pure. A follower never truncates its log to a high watermark, which can be lower than
the committed records. It truncates only to the offset at which its epochs diverge from its
leader's. The leader compares the epochs at every fetch. It answers with its largest epoch that is
not above the follower's, and with the end of that epoch. The follower truncates to the offset up to
which both logs can agree, and fetches again until they do not diverge.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from protocol.types import NO_LEADER_EPOCH, NO_OFFSET


class EpochEnd(NamedTuple):
    """A leader epoch and its end offset (exclusive)."""

    epoch: int
    end_offset: int


UNKNOWN = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


class Epochs(Protocol):
    """The interface to the leader epochs of a log (`storage/leader_epochs`)."""

    @property
    def latest(self) -> int:
        """The epoch of the newest batch; -1 for an empty log."""

    def end_offset_for(
        self, leader_epoch: int, log_end_offset: int, current_epoch: int
    ) -> tuple[int, int]:
        """Return the largest epoch that is not above `leader_epoch`, and its end; (-1, -1) if
        unknown."""


def divergence(
    epochs: Epochs,
    log_end_offset: int,
    current_epoch: int,
    fetch_offset: int,
    last_fetched_epoch: int,
) -> EpochEnd | None:
    """Return a leader's answer to a follower whose log diverges; None if it does not diverge.

    The follower reports its log end offset and the epoch of its last batch. The epoch is -1 for an
    empty log, which never diverges. The answer is UNKNOWN if that epoch is above all epochs of the
    leader, which no correct follower reports. A batch of the leader's current epoch came from the
    leader's log, so nothing diverges. This function does not check whether the fetch offset is in
    range.
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
    """Return True if the leader can compare the end of a follower's log with its own log.

    The comparison is impossible if the follower's log ends at the leader's log start offset and the
    leader has deleted the whole last epoch of the follower. In this case the two logs can have had
    different records at the last offsets of that epoch.
    """
    if last_epoch == NO_LEADER_EPOCH or fetch_offset > log_start_offset:
        return True
    ended = EpochEnd(*epochs.end_offset_for(last_epoch, log_end_offset, NO_LEADER_EPOCH))
    return ended == UNKNOWN or ended.end_offset > log_start_offset


def common_end(epochs: Epochs, log_end_offset: int, leaders: EpochEnd) -> int:
    """Return the exclusive end up to which a follower may keep its log after a leader's answer.

    The epoch can end at different offsets in the two logs, and the result is the lower one. If the
    follower's log does not have the epoch, it keeps all records up to the end of its next older
    epoch and asks the leader again.
    """
    own = EpochEnd(*epochs.end_offset_for(leaders.epoch, log_end_offset, NO_LEADER_EPOCH))
    if own == UNKNOWN:
        return min(leaders.end_offset, log_end_offset)
    if own.epoch == leaders.epoch:
        return min(own.end_offset, leaders.end_offset, log_end_offset)
    return min(own.end_offset, log_end_offset)
