"""The rules for the leader, the in-sync replicas and the eligible leader replicas of a partition.

This module is pure. Every change of a partition's in-sync replicas or leader is described by a
`WantedChange`, and its record is built here. This includes fencing, registrations, proposals of
leaders and requests of operators. So no change can forget a rule:

- A leader must be an unfenced replica that is not stopping, and on the disk that has the replica.
- In-sync replicas are elected first, in the order of assignment, then eligible ones. Both have all
  acknowledged records. Other replicas lead only if an operator names them.
- Eligible leader replicas (ELR, KIP-966) are those that left the in-sync replicas while fewer than
  `min.insync.replicas` remained. Since then no record was committed without them. When enough
  replicas are in sync again, records can be committed without them, so the set becomes empty.
- A leader epoch never has two histories. A new leadership starts a new epoch, even for the same
  broker after a restart.
- A reassignment (KIP-455) is completed in the first record in which its conditions hold, whatever
  the record is for. The module `reassign` starts and cancels reassignments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from broker.config import BrokerConfig
from broker.controller.completion import (
    ReplicaAssignment,
    completed,
    is_complete,
    reassigned,
    takes_replicas_away,
)
from broker.metadata.broker_image import BrokerImage
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import (
    LEADER_UNCHANGED,
    RECOVERED,
    RECOVERING,
    TOPIC_RESOURCE,
    MetadataRecord,
    PartitionChangeRecord,
)
from protocol.errors import ApiError, ErrorCode
from protocol.reassignment import effective_min_isr, election_order
from protocol.types import NO_NODE, Uuid

Brokers = Mapping[int, BrokerImage]


class Election(Enum):
    """The kinds of elections."""

    CLEAN = "clean"
    """The present leader stays if it can lead; otherwise the first replica that can lead is
    elected."""
    PREFERRED = "preferred"
    """The first replica of the assignment is elected if it is in sync; otherwise the rule of CLEAN
    applies."""
    UNCLEAN = "unclean"
    """The rule of CLEAN applies.

    If no replica is in sync or eligible, the replica that an operator has chosen is elected.
    """


@dataclass(frozen=True, slots=True)
class WantedChange:
    """A requested change of one partition, before the rules are applied.

    `in_sync_replicas`: the new set in any order; None leaves the set unchanged. `distrusted`:
    replicas whose disks can lack acknowledged records, so they become neither in sync nor eligible.
    `moved`: a map from a node id to the empty directory that gets the node's replica. Such a node
    must also be distrusted, and no operator should choose it. `chosen`: the replica for an UNCLEAN
    election.
    """

    in_sync_replicas: Sequence[int] | None = None
    distrusted: frozenset[int] = frozenset()
    election: Election = Election.CLEAN
    moved: Mapping[int, Uuid] = field(default_factory=dict)
    chosen: int = NO_NODE
    is_recovered: bool = False
    """True if the leader has finished its recovery after an unclean election."""
    begins_epoch: bool = False
    """True to start a new leader epoch even if the leader stays. The leader then forgets its
    followers' progress."""
    assignment: ReplicaAssignment | None = None
    """A new assignment; None to keep the present one. Replicas that are not in the new assignment
    leave the in-sync and eligible replicas."""


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The result of an election. The leader is NO_NODE if no replica can lead."""

    leader: int
    is_unclean: bool = False


def may_lead(partition: PartitionImage, node_id: int, brokers: Brokers) -> bool:
    """Return True if a broker can lead: it is a replica, in service, and on the disk that has the
    replica."""
    broker = brokers.get(node_id)
    if broker is None or not broker.is_active or node_id not in partition.replicas:
        return False
    directory = directory_of(partition, node_id)
    return directory is None or not broker.directory_ids or directory in broker.directory_ids


def directory_of(partition: PartitionImage, node_id: int) -> Uuid | None:
    """Return the directory that holds a broker's replica; None if the partition's record has no
    directories."""
    if not partition.directories:
        return None
    return partition.directories[partition.replicas.index(node_id)]


def elect(
    partition: PartitionImage, brokers: Brokers, election: Election, chosen: int = NO_NODE
) -> ElectionResult:
    """Return the leader of a partition with these in-sync and eligible replicas.

    `chosen` is used only for an UNCLEAN election, and only if a clean election finds no leader.
    """
    able = [
        node_id for node_id in by_preference(partition) if may_lead(partition, node_id, brokers)
    ]
    in_sync = [node_id for node_id in able if node_id in partition.in_sync_replicas]
    eligible = [node_id for node_id in able if node_id in partition.eligible_leader_replicas]
    if election is Election.PREFERRED and partition.replicas[0] in in_sync:
        return ElectionResult(partition.replicas[0])
    if partition.leader in in_sync:
        return ElectionResult(partition.leader)
    for node_id in (*in_sync, *eligible):
        return ElectionResult(node_id)
    if election is Election.UNCLEAN and chosen in able:
        return ElectionResult(chosen, is_unclean=True)
    return ElectionResult(NO_NODE)


def by_preference(partition: PartitionImage) -> Sequence[int]:
    """Return the replicas in the order in which they are elected."""
    if not partition.is_moving:
        return partition.replicas
    return election_order(
        partition.replicas, partition.adding_replicas, partition.removing_replicas
    )


def min_in_sync_replicas(topic: TopicImage, image: MetadataImage, config: BrokerConfig) -> int:
    """Return the topic's `min.insync.replicas`.

    The minimum of a partition is `effective_min_isr`.
    """
    settings = image.settings(TOPIC_RESOURCE, topic.name)
    return config.log_config(settings).min_insync_replicas


def change(
    topic_id: Uuid,
    number: int,
    partition: PartitionImage,
    wanted: WantedChange,
    brokers: Brokers,
    min_isr: int,
) -> PartitionChangeRecord:
    """Return the record that applies `wanted` to a partition, with all consequences.

    Every record that changes the leader or the in-sync replicas must be made by this function. A
    record that is made elsewhere can leave replicas eligible that must not be eligible (decision
    0048).

    The record can change nothing except the partition epoch; use `differs` to avoid such records.
    `min_isr` is the topic's setting. The minimum of a partition is `effective_min_isr`.
    """
    after = _settled(partition, wanted, min_isr)
    begins_epoch = wanted.begins_epoch
    if is_complete(after, min_isr):
        begins_epoch = begins_epoch or takes_replicas_away(after)
        after = completed(after)
    elected = elect(after, brokers, wanted.election, wanted.chosen)
    in_sync, eligible = after.in_sync_replicas, after.eligible_leader_replicas
    known = after.last_known_elr
    if elected.is_unclean:
        # After an unclean election the other replicas' records need not be a prefix of the new
        # leader's, so only the leader stays in sync.
        in_sync, eligible, known = (elected.leader,), (), ()
    elif elected.leader != NO_NODE and elected.leader not in in_sync:
        in_sync = (*in_sync, elected.leader)
        in_sync, eligible, known = _with_eligible(after, in_sync, frozenset(), min_isr)
    record = PartitionChangeRecord(partition_id=number, topic_id=topic_id)
    if after.replicas != partition.replicas:
        record.replicas = list(after.replicas)
    if after.adding_replicas != partition.adding_replicas:
        record.adding_replicas = list(after.adding_replicas)
    if after.removing_replicas != partition.removing_replicas:
        record.removing_replicas = list(after.removing_replicas)
    if wanted.in_sync_replicas is not None or in_sync != partition.in_sync_replicas:
        record.isr = list(in_sync)
    if eligible != partition.eligible_leader_replicas:
        record.eligible_leader_replicas = list(eligible)
    if known != partition.last_known_elr:
        record.last_known_elr = list(known)
    if after.directories != partition.directories:
        record.directories = list(after.directories)
    if elected.leader != partition.leader or begins_epoch:
        record.leader = elected.leader
    if elected.is_unclean:
        record.leader_recovery_state = RECOVERING
    elif after.leader_recovery_state != partition.leader_recovery_state:
        record.leader_recovery_state = after.leader_recovery_state
    return record


def differs(partition: PartitionImage, record: PartitionChangeRecord) -> bool:
    """Return True if a record changes more than the partition epoch."""
    after = partition.changed(record)
    return record.leader != LEADER_UNCHANGED or after != partition.changed(PartitionChangeRecord())


def _settled(partition: PartitionImage, wanted: WantedChange, min_isr: int) -> PartitionImage:
    """Return the partition with `wanted` applied, before the election."""
    partition = reassigned(partition, wanted.assignment)
    asked = partition.in_sync_replicas
    if wanted.in_sync_replicas is not None:
        asked = tuple(wanted.in_sync_replicas)
    in_sync = tuple(node_id for node_id in asked if node_id not in wanted.distrusted)
    in_sync, eligible, known = _with_eligible(partition, in_sync, wanted.distrusted, min_isr)
    known = tuple(node_id for node_id in known if node_id not in wanted.moved)
    directories = partition.directories
    if directories and wanted.moved:
        directories = tuple(
            wanted.moved.get(node_id, directory)
            for node_id, directory in zip(partition.replicas, directories, strict=True)
        )
    record = PartitionChangeRecord(
        isr=list(in_sync),
        eligible_leader_replicas=list(eligible),
        last_known_elr=list(known),
        directories=list(directories),
    )
    if wanted.is_recovered:
        record.leader_recovery_state = RECOVERED
    return partition.changed(record)


def _with_eligible(
    partition: PartitionImage,
    in_sync: tuple[int, ...],
    distrusted: frozenset[int],
    min_isr: int,
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the in-sync, the eligible and the last known eligible replicas.

    A replica that leaves the in-sync replicas is eligible only if fewer than the minimum remain.
    Otherwise records are committed that this replica lacks.
    """
    if len(in_sync) >= effective_min_isr(min_isr, partition.replicas, partition.adding_replicas):
        return in_sync, (), ()
    left = [
        node_id
        for node_id in (*partition.eligible_leader_replicas, *partition.in_sync_replicas)
        if node_id not in in_sync
    ]
    eligible = tuple(dict.fromkeys(node_id for node_id in left if node_id not in distrusted))
    doubtful = (*partition.last_known_elr, *(one for one in left if one in distrusted))
    known = dict.fromkeys(one for one in doubtful if one not in (*in_sync, *eligible))
    return in_sync, eligible, tuple(known)


def partitions_of(image: MetadataImage) -> Iterator[tuple[TopicImage, int, PartitionImage]]:
    """Yield all partitions with their topics and indexes, in the image's order."""
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            yield topic, number, partition


def lowered_min_isr(
    image: MetadataImage, topic: TopicImage, min_isr: int
) -> Sequence[MetadataRecord]:
    """Return the changes for the batch in which a topic's `min.insync.replicas` becomes `min_isr`.

    With the lower value fewer replicas can commit. So replicas that are eligible only because too
    few were in sync must not stay eligible. If too few are still in sync, nothing is committed. In
    this case these replicas stay eligible, because they can be the only ones with all records.
    """
    records = []
    for number, partition in enumerate(topic.partitions):
        record = change(topic.topic_id, number, partition, WantedChange(), image.brokers, min_isr)
        if differs(partition, record):
            records.append(record)
    return records


def returns(partition: PartitionImage, brokers: Brokers) -> bool:
    """Return True if leadership could return to the preferred replica, because it is in sync.

    It does not return to a replica that a reassignment adds before the reassignment is complete.
    """
    if partition.replicas[0] in partition.adding_replicas:
        return False
    preferred = elect(partition, brokers, Election.PREFERRED).leader
    return preferred not in (NO_NODE, partition.leader) and preferred == partition.replicas[0]


def elect_by_order(
    topic: TopicImage,
    number: int,
    image: MetadataImage,
    election: Election,
    min_isr: int,
    chosen: int = NO_NODE,
) -> PartitionChangeRecord:
    """Return the record that ElectLeaders writes for one partition (KIP-460).

    Raises PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE if the requested replica
    cannot lead, and ELECTION_NOT_NEEDED if the leader need not change.
    """
    partition = topic.partitions[number]
    name = f"{topic.name}-{number}"
    elected = elect(partition, image.brokers, election, chosen)
    if election is Election.PREFERRED:
        if partition.leader == partition.replicas[0]:
            raise ApiError(
                ErrorCode.ELECTION_NOT_NEEDED,
                f"{name} already has its preferred leader, broker {partition.leader}",
            )
        if elected.leader != partition.replicas[0]:
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                f"broker {partition.replicas[0]} is the preferred leader of {name}, but it is not "
                "in sync or not in service",
            )
    elif elected.leader == NO_NODE:
        raise ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"no replica of {name} can become its leader: start a broker that has one",
        )
    elif elected.leader == partition.leader:
        raise ApiError(
            ErrorCode.ELECTION_NOT_NEEDED, f"{name} already has a leader, broker {partition.leader}"
        )
    wanted = WantedChange(election=election, chosen=chosen)
    return change(topic.topic_id, number, partition, wanted, image.brokers, min_isr)
