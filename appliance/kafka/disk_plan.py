"""Plans how a broker comes back after its disk was lost: the steps that are left.

This module is pure. As for a removal, there is no state of its own: the steps that are left follow
from what the cluster reports, and an interrupted replacement continues with the same command. The
steps, in order:

1. remove the vote of the lost disk. A voter is a broker with a disk, so the new disk cannot use
   that vote, and a set of voters names a broker once;
2. start the broker with an empty folder. It joins as an observer, and leaves the in-sync replicas
   of all its partitions;
3. wait until it has copied all partitions that another broker can give it;
4. make it a voter again, if the number of voters is even.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from appliance.kafka.growth_plan import directory_of_ready
from appliance.kafka.membership_steps import (
    GiveVote,
    MembershipStep,
    StartBroker,
    TakeVote,
    WaitForMetadata,
    WaitForReplicas,
)
from appliance.kafka.reassign import ClusterReplicas, named_partitions
from appliance.output import CommandError, Exit
from protocol.client.broker_admin import RegisteredBroker
from protocol.client.quorum_admin import QuorumInfo, QuorumReplica
from protocol.client.topic_details import PartitionDetails
from protocol.types import TopicPartition


@dataclass(frozen=True)
class DiskState:
    """What a cluster reports about a broker whose disk was lost, or that moves. `quorum` is None if
    there is none."""

    node_id: int
    replicas: ClusterReplicas
    registered: Mapping[int, RegisteredBroker]
    quorum: QuorumInfo | None

    @property
    def is_in_service(self) -> bool:
        """True if the broker runs and serves clients."""
        return self.node_id in self.replicas.brokers

    @property
    def voters(self) -> tuple[QuorumReplica, ...]:
        """All voters of the metadata quorum."""
        return () if self.quorum is None else self.quorum.voters

    @property
    def vote(self) -> QuorumReplica | None:
        """The broker among the voters; None if it does not vote."""
        return None if self.quorum is None else self.quorum.voter(self.node_id)

    @cached_property
    def held(self) -> dict[TopicPartition, PartitionDetails]:
        """The partitions of which the broker has a replica."""
        return {
            tp: one
            for tp, one in sorted(self.replicas.partitions(), key=lambda pair: pair[0])
            if self.node_id in one.replicas
        }

    @cached_property
    def sources(self) -> dict[TopicPartition, frozenset[int]]:
        """The other brokers in service that have all records of each partition of the broker."""
        others = frozenset(self.replicas.brokers) - {self.node_id}
        return {tp: others & frozenset(one.in_sync_replicas) for tp, one in self.held.items()}

    @cached_property
    def lost(self) -> list[TopicPartition]:
        """The partitions that no other broker has any replica of."""
        return [tp for tp, one in self.held.items() if len(one.replicas) == 1]

    @property
    def silent(self) -> list[TopicPartition]:
        """The partitions that other brokers have replicas of, but none in service has all records
        of."""
        return [
            tp for tp, one in self.held.items() if len(one.replicas) > 1 and not self.sources[tp]
        ]

    @cached_property
    def to_copy(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The partitions that the broker must copy, each with its replicas.

        A broker that is away must copy all, also those for which it is still listed as in sync.
        """
        return {
            tp: one.replicas
            for tp, one in self.held.items()
            if self.sources[tp]
            and not (self.is_in_service and self.node_id in one.in_sync_replicas)
        }


def steps_to_replace(state: DiskState) -> list[MembershipStep]:
    """Return the steps that are left, in order; empty if the broker is whole again.

    Only the first one can be taken. A broker in service that votes has the disk that votes.
    """
    return list(_steps(state))


def _steps(state: DiskState) -> Iterator[MembershipStep]:
    node_id = state.node_id
    left = tuple(sorted(one.node_id for one in state.voters if one is not state.vote))
    voting = len(state.voters)
    if not state.is_in_service:
        if state.vote is not None and state.vote.directory_id is not None:
            yield TakeVote(node_id, state.vote.directory_id, left)
            voting -= 1
        yield StartBroker(node_id)
    if state.to_copy:
        yield WaitForReplicas(state.to_copy, f"broker {node_id}")
    if voting and voting % 2 == 0 and (state.vote is None or not state.is_in_service):
        directory_id = directory_of_ready(state.quorum, node_id)
        yield (
            WaitForMetadata(node_id) if directory_id is None else GiveVote(node_id, directory_id)
        )


def refuse_replacement(state: DiskState) -> None:
    """Raise CommandError if the broker cannot come back this way: with all reasons."""
    node_id = state.node_id
    if node_id not in state.registered and state.vote is None and not state.is_in_service:
        known = ", ".join(map(str, sorted({*state.registered, *state.replicas.brokers})))
        raise CommandError(f"there is no broker {node_id}; registered are {known}", Exit.NOT_FOUND)
    faults = [] if state.is_in_service else [*_refused_voters(state), *_refused_partitions(state)]
    if faults:
        text = "\n".join([f"the disk of broker {node_id} cannot be replaced now:", *faults])
        raise CommandError(text, Exit.CONDITION)


def _refused_voters(state: DiskState) -> Iterator[str]:
    if state.vote is None:
        return
    left = [one.node_id for one in state.voters if one is not state.vote]
    if not left:
        yield (
            f"broker {state.node_id} is the only voter, so no other disk has the metadata of the "
            "cluster: restore a backup"
        )
        return
    live = [one for one in left if one in state.replicas.brokers]
    if len(live) <= len(state.voters) // 2:
        yield (
            f"without broker {state.node_id} the voters are brokers {', '.join(map(str, left))}, "
            f"and those in service ({', '.join(map(str, live)) or 'none'}) are no majority of the "
            "present voters: start the others first"
        )


def _refused_partitions(state: DiskState) -> Iterator[str]:
    if state.silent:
        yield (
            f"no other broker in service has all records of {named_partitions(state.silent)}: "
            "start the other brokers, and wait until their replicas are in sync"
        )
