"""Decides reassignments: AlterPartitionReassignments (KIP-455, KIP-860), and their completion.

This module is pure. All state of a reassignment is in the partition's record, so the next
controller continues it after a replay of the log. A reassignment has these steps:

- *Start*: the replicas become the target, then the original replicas that the target lacks. Those
  that are not original are *adding*, those that the target lacks are *removing*. The leader and the
  in-sync replicas stay.
- The added replicas copy the log and join the in-sync replicas by AlterPartition.
- *Completion* (module `completion`): the replicas become the target.
- *Cancellation*: the replicas become the original ones. A start over a running reassignment keeps
  the original replicas. Added replicas that the new target lacks leave at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from broker.config import BrokerConfig
from broker.controller.completion import ReplicaAssignment, is_complete, within
from broker.controller.leadership import (
    WantedChange,
    change,
    min_in_sync_replicas,
)
from broker.controller.outcome import CompleteReassignments, ControllerDecision
from broker.controller.placement import cordoned_brokers
from broker.metadata.broker_image import directories_for
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import MetadataRecord
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

COMPLETED_MAX = 1_000
"""The largest number of reassignments that one batch completes. The next check completes further
ones."""


def alter_reassignments(
    request: AlterPartitionReassignmentsRequest, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[AlterPartitionReassignmentsResponse]:
    """Decide AlterPartitionReassignments, each partition separately.

    If the partition already has the target, or is being reassigned to it, the answer is a success
    without a record. So a client can repeat a request.
    """
    records: list[MetadataRecord] = []
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    # If a request names a partition twice, the second change starts from the first one.
    changed: dict[tuple[str, int], PartitionImage] = {}
    cordoned = cordoned_brokers(image, config)
    for asked in request.topics:
        answer = ReassignableTopicResponse(name=asked.name)
        for one in asked.partitions:
            number = one.partition_index
            result = ReassignablePartitionResponse(partition_index=number)
            answer.partitions.append(result)
            try:
                topic = _topic_with(image, asked.name, number)
                partition = changed.get((topic.name, number), topic.partitions[number])
                name = f"{topic.name}-{number}"
                if one.replicas is None:
                    wanted: WantedChange | None = _cancellation(name, partition, image)
                else:
                    _check_target(name, one.replicas, partition, image, cordoned)
                    _check_size(name, one.replicas, partition, request)
                    wanted = _start(name, tuple(one.replicas), partition, image)
            except ApiError as error:
                result.error_code, result.error_message = error.code, error.message
                continue
            if wanted is not None:
                min_isr = min_in_sync_replicas(topic, image, config)
                record = change(topic.topic_id, number, partition, wanted, image.brokers, min_isr)
                records.append(record)
                changed[topic.name, number] = partition.changed(record)
        response.responses.append(answer)
    return ControllerDecision(records, response)


def complete_reassignments(
    order: CompleteReassignments, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[None]:
    """Complete the reassignments whose conditions hold although their partitions have had no new
    record since.

    This happens when the default of `min.insync.replicas` in the brokers' files was lowered, or
    when the leader was elected from the eligible replicas.
    """
    records: list[MetadataRecord] = []
    for topic_id, numbers in image.moving.items():
        topic = image.topic_by_id(topic_id)
        assert topic is not None, "a deleted topic has no reassignments"
        min_isr = min_in_sync_replicas(topic, image, config)
        for number in numbers:
            partition = topic.partitions[number]
            if len(records) < COMPLETED_MAX and is_complete(partition, min_isr):
                wanted = WantedChange()
                records.append(change(topic_id, number, partition, wanted, image.brokers, min_isr))
    return ControllerDecision(records, None)


def _topic_with(image: MetadataImage, name: str, number: int) -> TopicImage:
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{name}' does not exist")
    if not 0 <= number < len(topic.partitions):
        raise ApiError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"topic '{name}' has no partition {number}: its partitions are 0 to "
            f"{len(topic.partitions) - 1}",
        )
    return topic


def _start(
    name: str, target: tuple[int, ...], partition: PartitionImage, image: MetadataImage
) -> WantedChange | None:
    """Return the change to a target; None if the partition has this target, or is being reassigned
    to it."""
    if target == partition.target_replicas:
        return None
    original = partition.original_replicas
    removing = tuple(one for one in original if one not in target)
    replicas = (*target, *removing)
    if not set(partition.replicas) <= set(replicas):
        # The target cancels the running reassignment, so the replicas that it was adding leave.
        return _shrink(name, partition, _assigned(replicas, original, removing, partition, image))
    return WantedChange(assignment=_assigned(replicas, original, removing, partition, image))


def _cancellation(name: str, partition: PartitionImage, image: MetadataImage) -> WantedChange:
    if not partition.is_moving:
        raise ApiError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            f"{name} is not being reassigned: there is nothing to cancel",
        )
    original = partition.original_replicas
    return _shrink(name, partition, _assigned(original, original, (), partition, image))


def _assigned(
    replicas: tuple[int, ...],
    original: tuple[int, ...],
    removing: tuple[int, ...],
    partition: PartitionImage,
    image: MetadataImage,
) -> ReplicaAssignment:
    return ReplicaAssignment(
        replicas,
        tuple(one for one in replicas if one not in original),
        removing,
        directories_for(replicas, image.brokers, partition.directory_by_node),
    )


def _shrink(name: str, partition: PartitionImage, to: ReplicaAssignment) -> WantedChange:
    """Return the change to an assignment without some of the replicas that the running reassignment
    adds.

    The leader epoch rises so that these replicas stop fetching (KAFKA-13972). The change is refused
    if no replica of the new assignment is in sync, because it would be an unclean election
    (KAFKA-14424).
    """
    if not within(partition.in_sync_replicas, to.replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"none of the replicas {list(to.replicas)} of {name} is in sync, so acknowledged "
            "records could be lost: start their brokers and wait until one of them is in sync, or "
            f"keep one of the replicas {list(partition.in_sync_replicas)}",
        )
    return WantedChange(assignment=to, begins_epoch=True)


def _check_target(
    name: str,
    target: Sequence[int],
    partition: PartitionImage,
    image: MetadataImage,
    cordoned: Collection[int],
) -> None:
    """Refuse a target with an invalid list of replicas.

    A registered broker that is out of service is accepted, and copies the partition when it is
    back. A cordoned broker is accepted only if it already has a replica of the partition
    (KIP-1066).
    """
    if not target:
        fault = "an empty list of replicas: name at least one broker"
    elif repeated := sorted(one for one, count in Counter(target).items() if count > 1):
        fault = f"the brokers {repeated} more than once: name each broker once"
    elif unknown := sorted(set(target) - image.brokers.keys()):
        fault = (
            f"the brokers {unknown}, which are not registered; the cluster has the brokers "
            f"{sorted(image.brokers)}"
        )
    elif refused := sorted((set(target) & set(cordoned)) - set(partition.replicas)):
        fault = (
            f"the brokers {refused}, which are cordoned: they get no new replicas until you delete "
            "their setting cordoned.log.dirs"
        )
    else:
        return
    raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{name} was assigned to {fault}")


def _check_size(
    name: str,
    target: Sequence[int],
    partition: PartitionImage,
    request: AlterPartitionReassignmentsRequest,
) -> None:
    """Refuse another number of replicas if the request does not allow it (KIP-860)."""
    size = len(partition.target_replicas)
    if len(target) != size and not request.allow_replication_factor_change:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{name} has {size} replicas, the request names {len(target)} brokers and does not "
            f"allow another number of replicas: name {size} brokers, or allow the change",
        )
