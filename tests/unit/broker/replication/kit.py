"""A leader's partition with two followers, and helpers that change it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from broker.replication.leader import Assignment, LogEnds
from broker.replication.partition import PartitionState

ME, ONE, TWO = 1, 2, 3
BROKER_EPOCHS = {ME: 10, ONE: 11, TWO: 12}
REGISTERED_AT = 10

ASSIGNED = Assignment(
    offset=100,
    leader=ME,
    leader_epoch=5,
    partition_epoch=7,
    replicas=(ME, ONE, TWO),
    in_sync_replicas=(ME, ONE, TWO),
    min_in_sync_replicas=2,
)


def ends(
    end: int, *, start: int = 0, high_watermark: int = 0, durable: int | None = None
) -> LogEnds:
    return LogEnds(start, high_watermark, end if durable is None else durable, end)


class Scene:
    """Node 1's view of one partition. Every change in the metadata log gets the next offset."""

    def __init__(self, seen: Assignment = ASSIGNED, log: LogEnds | None = None) -> None:
        self.now_ms = 0
        self.seen = seen
        self.log = log or ends(0)
        self.state = PartitionState(ME, REGISTERED_AT)
        self.state.eligible(BROKER_EPOCHS)
        self.change = self.state.assign(seen, self.log, self.now_ms)

    def log_says(self, **changes: object) -> None:
        """Replay the next partition change of the metadata log."""
        self.seen = replace(
            self.seen,
            offset=self.seen.offset + 1,
            partition_epoch=self.seen.partition_epoch + 1,
            **changes,  # type: ignore[arg-type]
        )
        self.change = self.state.assign(self.seen, self.log, self.now_ms)

    def fetched(self, node_id: int, end: int, *, start: int = 0, epoch: int | None = None) -> None:
        broker_epoch = BROKER_EPOCHS[node_id] if epoch is None else epoch
        self.state.fetched(node_id, broker_epoch, end, start, self.now_ms)

    def proposes(self) -> tuple[int, ...] | None:
        """Return the members that the leader proposes, or None if it proposes nothing."""
        proposal = self.state.proposal(self.now_ms)
        if proposal is None:
            return None
        self.number = proposal.number
        return tuple(node_id for node_id, _ in proposal.in_sync_replicas)


class CountedId(UUID):
    """Counts how often it is looked up in a dictionary."""

    __slots__ = ()
    looked_up = 0

    def __hash__(self) -> int:
        CountedId.looked_up += 1
        return hash(self.int)
