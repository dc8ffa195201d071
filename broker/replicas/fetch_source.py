"""The partitions that a follower fetches from one leader on one kind of link."""

from __future__ import annotations

from broker.replicas.replica import Replica
from broker.replication.copy_pace import CopyPace
from broker.replication.follower import LeaderFetch
from broker.replication.follower_steps import Key, PartitionId
from broker.sessions.peers import LinkKind


class FetchSource:
    """One leader and one kind of link, with the state of the fetches there."""

    __slots__ = (
        "caught_up",
        "fetch",
        "is_pump_wanted",
        "kind",
        "leader",
        "pace",
        "replicas",
        "throttled",
        "wake_ms",
    )

    def __init__(self, leader: int, kind: LinkKind) -> None:
        self.leader = leader
        self.kind = kind
        self.fetch = LeaderFetch()
        self.pace = CopyPace()
        self.replicas: dict[PartitionId, Replica] = {}
        self.caught_up: dict[PartitionId, Replica] = {}
        """The partitions on a CATCH_UP link that the next fetch on DATA will name instead."""
        self.throttled: dict[PartitionId, Key] = {}
        """The partitions that wait for the rate."""
        self.wake_ms: int | None = None
        """The time at which a copy of this source can continue, after it has waited for its rate or
        paused."""
        self.is_pump_wanted = False

    @property
    def next_deadline_ms(self) -> int | None:
        """The time at which a request can be sent without another event; None if never."""
        deadlines_ms = (self.wake_ms, self.fetch.next_deadline_ms)
        return min((one for one in deadlines_ms if one is not None), default=None)
