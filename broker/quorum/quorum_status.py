"""The progress of each replica of the metadata log, as the leader of the epoch knows it.

This module is pure. Ages are in lived milliseconds, so that a stall of the leader does not make a
replica look late. Only the present leader knows the progress. What a replica reported to an earlier
leader says nothing, because those records can have been truncated.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.quorum.leader import UNKNOWN_END, Leader
from broker.quorum.quorum import Quorum
from broker.quorum.voters import ReplicaKey, Voter


@dataclass(frozen=True, slots=True)
class QuorumReplicaStatus:
    """The progress of one replica. `end_offset` is the end of its durable records; -1 before its
    first fetch of the epoch.

    `fetched_ago_ms` is the time since its last fetch. `caught_up_ago_ms` is the time since it last
    had all records of the leader. Each is None if it has not happened in this epoch.
    """

    key: ReplicaKey
    end_offset: int
    fetched_ago_ms: int | None
    caught_up_ago_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """The state of one epoch: its leader, the committed offset, and the progress of all replicas in
    the order of ids."""

    leader_id: int
    epoch: int
    committed_offset: int
    voters: tuple[QuorumReplicaStatus, ...]
    observers: tuple[QuorumReplicaStatus, ...]
    members: tuple[Voter, ...]
    """The voters, with the addresses that the voter set has for them."""

    @property
    def end_offset(self) -> int:
        """The durable end of the leader's own log."""
        every = [*self.voters, *self.observers]
        return next(one.end_offset for one in every if one.key.node_id == self.leader_id)


def status_of(quorum: Quorum, now_ms: int) -> QuorumStatus | None:
    """Return the progress of all replicas at a lived time; None if this replica does not lead."""
    leader, replica = quorum.role, quorum.replica
    if not isinstance(leader, Leader):
        return None
    voters = replica.voters.latest
    # A leader that is being removed from the voters is listed as an observer.
    observers = sorted(key for key in (*leader.progress, replica.me) if key not in voters)

    def status(key: ReplicaKey) -> QuorumReplicaStatus:
        if key == replica.me:
            return QuorumReplicaStatus(key, replica.log.durable_end_offset, 0, 0)
        progress = leader.progress.get(key)
        if progress is None:
            return QuorumReplicaStatus(key, UNKNOWN_END, None, None)
        caught_up_ms = progress.caught_up_ms
        return QuorumReplicaStatus(
            key,
            progress.end_offset,
            now_ms - progress.fetched_ms,
            None if caught_up_ms is None else now_ms - caught_up_ms,
        )

    return QuorumStatus(
        leader.leader_id,
        replica.epoch,
        replica.log.committed_offset,
        tuple(status(key) for key in voters),
        tuple(status(key) for key in observers),
        voters.voters,
    )
