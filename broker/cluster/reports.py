"""The report of a broker: whose disk it has, and what stands there.

Floor: cluster. Pure. It is asked for before a cluster is born (`birth`), and before a partition is
led again whose in-sync replicas were all lost. On the wire it is `ReplicaReport`, a message of our
own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from broker.quorum.voters import ReplicaKey
from protocol.messages.replica_report import (
    ReplicaReportRequest,
    ReplicaReportResponse,
    ReportedPartition,
    ReportedTopicState,
    ReportedVoter,
)
from protocol.types import NO_LEADER_EPOCH, Uuid


class ReportedReplica(NamedTuple):
    """One partition's log: its end is exclusive and counts only what is on the disk.

    `damage` says what is wrong with one that has lost something it once held durably.
    """

    topic_id: Uuid
    partition: int
    last_epoch: int
    end_offset: int
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What one broker says of itself; everything in it is durable.

    `voters`: the set that its log or snapshot names, in the order of ids; none if it has none.
    """

    cluster_id: str
    me: ReplicaKey
    configured_ids: tuple[int, ...]
    metadata_end_offset: int = 0
    metadata_last_epoch: int = NO_LEADER_EPOCH
    snapshot_end_offset: int = 0
    voters: tuple[ReplicaKey, ...] = ()
    replicas: tuple[ReportedReplica, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether its disk has never held anything of a cluster."""
        return not (
            self.metadata_end_offset or self.snapshot_end_offset or self.voters or self.replicas
        )


def request_by(report: Report) -> ReplicaReportRequest:
    """Ask another broker for all that it can report."""
    return ReplicaReportRequest(
        cluster_id=report.cluster_id,
        broker_id=report.me.node_id,
        directory_id=report.me.directory_id,
        configured_ids=list(report.configured_ids),
        topics=None,
    )


def response_of(report: Report) -> ReplicaReportResponse:
    """The report as it is sent."""
    return ReplicaReportResponse(
        cluster_id=report.cluster_id,
        broker_id=report.me.node_id,
        directory_id=report.me.directory_id,
        configured_ids=list(report.configured_ids),
        metadata_end_offset=report.metadata_end_offset,
        metadata_last_epoch=report.metadata_last_epoch,
        metadata_snapshot_end_offset=report.snapshot_end_offset,
        voters=[
            ReportedVoter(voter_id=key.node_id, voter_directory_id=key.directory_id)
            for key in report.voters
        ],
        topics=[
            ReportedTopicState(topic_id=topic_id, partitions=_partitions(replicas))
            for topic_id, replicas in groupby(sorted(report.replicas), key=lambda one: one.topic_id)
        ],
    )


def report_from(response: ReplicaReportResponse) -> Report:
    """What has been received; an answer with an error code is no report."""
    return Report(
        response.cluster_id,
        ReplicaKey(response.broker_id, response.directory_id),
        tuple(response.configured_ids),
        response.metadata_end_offset,
        response.metadata_last_epoch,
        response.metadata_snapshot_end_offset,
        in_order(ReplicaKey(one.voter_id, one.voter_directory_id) for one in response.voters),
        tuple(
            ReportedReplica(
                topic.topic_id, one.partition_index, one.last_epoch, one.end_offset, one.damage
            )
            for topic in response.topics
            for one in topic.partitions
        ),
    )


def in_order(voters: Iterable[ReplicaKey]) -> tuple[ReplicaKey, ...]:
    """A voter set as reports have it, so that equal ones are equal."""
    return tuple(sorted(voters))


def _partitions(replicas: Iterable[ReportedReplica]) -> list[ReportedPartition]:
    return [
        ReportedPartition(
            partition_index=one.partition,
            last_epoch=one.last_epoch,
            end_offset=one.end_offset,
            damage=one.damage,
        )
        for one in replicas
    ]
