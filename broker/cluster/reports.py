"""The report of a broker: the identity and the content of its disk.

This module is pure. Brokers ask for reports before a cluster is born (`birth`). The controller asks
for them before it elects a leader for a partition that lost all its in-sync replicas. The message
is `ReplicaReport`, which Kafka does not have.
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
    """The log of one partition. `end_offset` is the exclusive end of its durable part.

    `damage` describes the damage of a log that has lost durable data. Else it is None.
    """

    topic_id: Uuid
    partition: int
    last_epoch: int
    end_offset: int
    damage: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerReport:
    """The report of one broker. It contains only durable data.

    `voters` is the voter set in its log or snapshot, in the order of ids. It is empty without a
    set.
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
        """True if the disk has never had data of a cluster."""
        return not (
            self.metadata_end_offset or self.snapshot_end_offset or self.voters or self.replicas
        )


def request_by(report: BrokerReport) -> ReplicaReportRequest:
    """Return the request for the whole report of another broker."""
    return ReplicaReportRequest(
        cluster_id=report.cluster_id,
        broker_id=report.me.node_id,
        directory_id=report.me.directory_id,
        configured_ids=list(report.configured_ids),
        topics=None,
    )


def response_of(report: BrokerReport) -> ReplicaReportResponse:
    """Return the report as a response."""
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


def report_from(response: ReplicaReportResponse) -> BrokerReport:
    """Return the report in a response. The caller has checked the error code."""
    return BrokerReport(
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
    """Return a voter set in ascending order, so that equal sets compare as equal."""
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
