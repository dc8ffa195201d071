"""Decides AlterPartition: a leader proposes the in-sync replicas (KIP-497, KIP-903).

This module is pure. The checks come in Kafka's order, because a leader acts on the error code. Only
INELIGIBLE_REPLICA tells the leader that its proposal was checked against the present state and
refused. So a proposal that is newer than this controller's log gets NOT_CONTROLLER. A proposal that
changes nothing is written like any other, because it uses up a partition epoch and so makes older
proposals void (decision 0029).
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.config import BrokerConfig
from broker.controller.leadership import WantedChange, change, min_in_sync_replicas
from broker.controller.outcome import ControllerDecision
from broker.metadata.broker_image import BrokerImage
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import RECOVERED, RECOVERING, MetadataRecord
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
    BrokerState,
)

UNKNOWN_BROKER_EPOCH = -1
"""The broker epoch of a member in a proposal, if the leader has not seen a fetch of this member
yet."""


def check_broker_epoch(node_id: int, broker_epoch: int, image: MetadataImage) -> BrokerImage:
    """Return the registration of the broker that sent a request.

    Raises STALE_BROKER_EPOCH if the request's epoch is out of date. Raises NOT_CONTROLLER if the
    epoch is newer than this controller's log, because then a later controller gave the epoch.
    """
    broker = image.brokers.get(node_id)
    if broker is not None and broker.broker_epoch == broker_epoch:
        return broker
    newest = image.end_offset - 1 if broker is None else broker.broker_epoch
    if broker_epoch > newest:
        raise ApiError(
            ErrorCode.NOT_CONTROLLER,
            f"broker {node_id} has broker epoch {broker_epoch}, which a newer controller gave to "
            "it: send the request to the active controller",
        )
    raise ApiError(
        ErrorCode.STALE_BROKER_EPOCH,
        f"broker {node_id} is not registered with broker epoch {broker_epoch}: it must register "
        "again",
    )


def alter_partition(
    request: AlterPartitionRequest, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[AlterPartitionResponse]:
    """Decide AlterPartition, each partition separately.

    Raises the errors of `check_broker_epoch`.
    """
    check_broker_epoch(request.broker_id, request.broker_epoch, image)
    records: list[MetadataRecord] = []
    topics = []
    # If a request names a partition twice, the second proposal must be checked against the
    # partition epoch that the first one made.
    changed: dict[tuple[str, int], PartitionImage] = {}
    for asked in request.topics:
        topic = image.topic_by_id(asked.topic_id)
        answers = []
        for one in asked.partitions:
            index = one.partition_index
            try:
                partition = _partition(topic, one, changed)
                _check(one, request.broker_id, partition)
                _check_members(one, partition, image)
            except ApiError as error:
                answers.append(_refused(index, error.code))
                continue
            assert topic is not None
            wanted = WantedChange(
                tuple(member.broker_id for member in one.new_isr_with_epochs),
                is_recovered=one.leader_recovery_state == RECOVERED,
            )
            min_isr = min_in_sync_replicas(topic, image, config)
            record = change(asked.topic_id, index, partition, wanted, image.brokers, min_isr)
            records.append(record)
            changed[topic.name, index] = partition.changed(record)
            if changed[topic.name, index].leader == request.broker_id:
                answers.append(_granted(index, changed[topic.name, index]))
            else:
                # The change has completed a reassignment, and the sender is not among the remaining
                # replicas. The error tells the sender to stop acting as the leader (KAFKA-12803).
                answers.append(_refused(index, ErrorCode.NEW_LEADER_ELECTED))
        topics.append(AlterPartitionResponseTopic(topic_id=asked.topic_id, partitions=answers))
    return ControllerDecision(records, AlterPartitionResponse(topics=topics))


def _partition(
    topic: TopicImage | None,
    asked: AlterPartitionRequestPartition,
    changed: Mapping[tuple[str, int], PartitionImage],
) -> PartitionImage:
    index = asked.partition_index
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    if not 0 <= index < len(topic.partitions):
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return changed.get((topic.name, index), topic.partitions[index])


def _check(asked: AlterPartitionRequestPartition, sender: int, partition: PartitionImage) -> None:
    """Refuse a proposal unless it comes from the partition's leader, with its leader epoch and
    partition epoch."""
    if (
        asked.leader_epoch > partition.leader_epoch
        or asked.partition_epoch > partition.partition_epoch
    ):
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    if asked.leader_epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if sender != partition.leader:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if asked.partition_epoch < partition.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)
    members = [member.broker_id for member in asked.new_isr_with_epochs]
    if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if partition.leader not in members:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if asked.leader_recovery_state not in (RECOVERED, RECOVERING):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if asked.leader_recovery_state == RECOVERING and (
        # Only a leader that has finished its recovery may add replicas. A leader reports the end of
        # its recovery only once.
        len(members) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        raise ApiError(ErrorCode.INVALID_REQUEST)


def _check_members(
    asked: AlterPartitionRequestPartition, partition: PartitionImage, image: MetadataImage
) -> None:
    """Refuse a proposed member that is out of service, or that fetched under another broker
    epoch."""
    for member in asked.new_isr_with_epochs:
        broker = image.brokers.get(member.broker_id)
        newest = image.end_offset - 1 if broker is None else broker.broker_epoch
        if member.broker_epoch > newest:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
    for member in asked.new_isr_with_epochs:
        if not _is_eligible(member, partition, image.brokers.get(member.broker_id)):
            raise ApiError(ErrorCode.INELIGIBLE_REPLICA)


def _is_eligible(
    member: BrokerState, partition: PartitionImage, broker: BrokerImage | None
) -> bool:
    if broker is None or not broker.is_active:
        return False
    if member.broker_epoch == UNKNOWN_BROKER_EPOCH:
        # A member that is already in sync is the registered incarnation. A restart would have
        # removed it from the set, and then this proposal would have an old partition epoch.
        return member.broker_id in partition.in_sync_replicas
    return member.broker_epoch == broker.broker_epoch


def _refused(index: int, code: ErrorCode) -> AlterPartitionResponsePartition:
    return AlterPartitionResponsePartition(partition_index=index, error_code=code)


def _granted(index: int, partition: PartitionImage) -> AlterPartitionResponsePartition:
    return AlterPartitionResponsePartition(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.in_sync_replicas),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
