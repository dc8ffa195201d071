"""Five brokers and a topic whose partition is reassigned, and helpers that change it."""

from __future__ import annotations

from collections.abc import Sequence

from broker.controller.alter_partition import alter_partition
from broker.controller.outcome import CompleteReassignments
from broker.controller.reassign import alter_reassignments, complete_reassignments
from broker.controller.registration import fence, unfence
from broker.metadata.image import MetadataImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import MetadataRecord
from protocol.errors import ErrorCode
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from protocol.messages.membership import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    BrokerState,
)
from tests.unit.broker.controller.kit import CONFIG, TOPIC_ID, after, image_of, one_of

FIVE = (1, 2, 3, 4, 5)


def request_to(
    *targets: Sequence[int] | None, may_resize: bool = True, topic: str = "logs"
) -> AlterPartitionReassignmentsRequest:
    """Return a request that moves partition 0 to the first target, partition 1 to the second, and
    so on. None cancels a reassignment."""
    return AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=may_resize,
        topics=[
            ReassignableTopic(
                name=topic,
                partitions=[
                    ReassignablePartition(
                        partition_index=number, replicas=None if one is None else list(one)
                    )
                    for number, one in enumerate(targets)
                ],
            )
        ],
    )


class Mover:
    """The metadata, and the response to the newest request."""

    def __init__(
        self, *partitions: PartitionImage, min_isr: int = 2, active: Sequence[int] = FIVE
    ) -> None:
        self.image: MetadataImage = image_of(
            *partitions, min_isr=min_isr, active=active, nodes=FIVE
        )
        self.records: Sequence[MetadataRecord] = ()
        self.answer = ReassignablePartitionResponse()

    @property
    def one(self) -> PartitionImage:
        return one_of(self.image)

    def code(self) -> ErrorCode:
        return ErrorCode(self.answer.error_code)

    def sets(self) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Return the replicas, the adding replicas and the removing replicas."""
        return self.one.replicas, self.one.adding_replicas, self.one.removing_replicas

    def replay(self, records: Sequence[MetadataRecord]) -> PartitionImage:
        self.records = records
        self.image = after(self.image, records)
        return self.one

    def move(self, target: Sequence[int] | None, *, may_resize: bool = True) -> PartitionImage:
        """Request another target, or cancel. Return the partition afterwards."""
        outcome = alter_reassignments(request_to(target, may_resize=may_resize), self.image, CONFIG)
        (self.answer,) = outcome.reply.responses[0].partitions
        return self.replay(outcome.records)

    def propose(self, *members: int) -> ErrorCode:
        """Let the leader propose these in-sync replicas. Return the error code of the response."""
        one = self.one
        epochs = {node_id: broker.broker_epoch for node_id, broker in self.image.brokers.items()}
        proposal = AlterPartitionRequestPartition(
            partition_index=0,
            leader_epoch=one.leader_epoch,
            partition_epoch=one.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=node_id, broker_epoch=epochs[node_id]) for node_id in members
            ],
        )
        request = AlterPartitionRequest(
            broker_id=one.leader,
            broker_epoch=epochs[one.leader],
            topics=[AlterPartitionRequestTopic(topic_id=TOPIC_ID, partitions=[proposal])],
        )
        outcome = alter_partition(request, self.image, CONFIG)
        self.replay(outcome.records)
        return ErrorCode(outcome.reply.topics[0].partitions[0].error_code)

    def fence(self, node_id: int) -> PartitionImage:
        return self.replay(fence(node_id, self.image, CONFIG))

    def unfence(self, node_id: int) -> PartitionImage:
        return self.replay(unfence(node_id, self.image, CONFIG))

    def look(self) -> PartitionImage:
        """Let the controller complete the reassignments that are ready."""
        return self.replay(
            complete_reassignments(CompleteReassignments(), self.image, CONFIG).records
        )
