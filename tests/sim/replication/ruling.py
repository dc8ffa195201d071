"""A controller that never fails. It uses the real controller's rules on an image that is committed
at once.

Each partition is the only one of its topic, so that it can have a min ISR of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.controller.alter_partition import alter_partition
from broker.controller.leadership import lowered_min_isr, min_in_sync_replicas
from broker.controller.outcome import CompleteReassignments
from broker.controller.reassign import alter_reassignments, complete_reassignments
from broker.controller.registration import fence, register, unfence
from broker.controller.registration_checks import RegistrationFacts
from broker.metadata.broker_image import BrokerImage
from broker.metadata.image import MetadataDelta, MetadataImage, TopicImage
from broker.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    BrokerState,
)
from protocol.types import Uuid
from tests.sim.replication.controller import SESSION_MS, AlterPartition, Batch, Part
from tests.unit.broker.controller.kit import CLUSTER, CONFIG, disk, registration
from tests.unit.broker.controller.moving import request_to

FACTS = RegistrationFacts(CLUSTER, is_live=False, voter_directory=None)


class RulingController:
    """A controller with the interface of `Controller` and the rules of the real controller."""

    def __init__(self, on_commit: Callable[[Batch], None]) -> None:
        self.log: list[Batch] = []
        self.image = MetadataImage()
        self.parts: dict[int, Part] = {}
        self._heard_ms: dict[int, int] = {}
        self._incarnations: dict[int, int] = {}
        self._on_commit = on_commit

    @property
    def brokers(self) -> dict[int, BrokerImage]:
        """Return the registered brokers by id."""
        return dict(self.image.brokers)

    def create(self, partition: int, replicas: tuple[int, ...], min_isr: int) -> None:
        """Create a partition with all replicas in sync, even if their brokers are not registered
        yet."""
        topic_id = Uuid(int=0x10 + partition)
        created = PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=list(replicas),
            isr=list(replicas),
            leader=replicas[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[disk(node_id) for node_id in replicas],
        )
        topic = TopicRecord(name=str(partition), topic_id=topic_id)
        self._commit([topic, created, _min_isr_of(partition, min_isr)])

    def register(self, node_id: int, incarnation: int, now_ms: int) -> int:
        """Register a new process of a node. The node is fenced and leaves every ISR, and its
        leaderships end."""
        if self._incarnations.get(node_id) != incarnation:
            self._incarnations[node_id] = incarnation
            request = registration(node_id, life=incarnation)
            self._commit(register(request, self.image, CONFIG, FACTS).records)
        self._heard_ms[node_id] = now_ms
        return self.image.brokers[node_id].broker_epoch

    def heartbeat(self, node_id: int, broker_epoch: int, replayed: int, now_ms: int) -> None:
        broker = self.image.brokers.get(node_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            return
        self._heard_ms[node_id] = now_ms
        if broker.is_fenced and replayed > broker_epoch:
            self._commit(unfence(node_id, self.image, CONFIG))

    def tick(self, now_ms: int) -> None:
        for node_id in self.brokers:
            if now_ms - self._heard_ms[node_id] > SESSION_MS:
                self.fence(node_id)
        self._commit(complete_reassignments(CompleteReassignments(), self.image, CONFIG).records)

    def fence(self, node_id: int) -> None:
        if not self.image.brokers[node_id].is_fenced:
            self._commit(fence(node_id, self.image, CONFIG))

    def prefer(self, partition: int, node_id: int) -> None:
        """Move the leadership to this node, if it is in the ISR and active."""
        part, broker = self.parts[partition], self.image.brokers.get(node_id)
        is_able = broker is not None and broker.is_active
        if is_able and node_id in part.isr and node_id != part.leader:
            topic_id = self._topic(partition).topic_id
            record = PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=node_id)
            self._commit([record])

    def set_min_isr(self, partition: int, min_isr: int) -> None:
        """Set min ISR. If enough replicas are in sync for it, clear the ELR in the same batch."""
        records: list[MetadataRecord] = [_min_isr_of(partition, min_isr)]
        if min_isr < self.parts[partition].min_isr:
            records += lowered_min_isr(self.image, self._topic(partition), min_isr)
        self._commit(records)

    def alter(self, asked: AlterPartition) -> ErrorCode:
        """Decide a proposal. A proposal of the same ISR is also a change, because it raises the
        partition epoch."""
        proposal = AlterPartitionRequestPartition(
            partition_index=0,
            leader_epoch=asked.leader_epoch,
            partition_epoch=asked.partition_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=node_id, broker_epoch=epoch) for node_id, epoch in asked.isr
            ],
        )
        topic_id = self._topic(asked.partition).topic_id
        request = AlterPartitionRequest(
            broker_id=asked.node_id,
            broker_epoch=dict(asked.isr)[asked.node_id],
            topics=[AlterPartitionRequestTopic(topic_id=topic_id, partitions=[proposal])],
        )
        try:
            outcome = alter_partition(request, self.image, CONFIG)
        except ApiError as error:
            return error.code
        self._commit(outcome.records)
        return ErrorCode(outcome.reply.topics[0].partitions[0].error_code)

    def move(self, partition: int, target: Sequence[int] | None) -> ErrorCode:
        """Start or replace a reassignment. None as the target cancels it."""
        request = request_to(target, topic=str(partition))
        outcome = alter_reassignments(request, self.image, CONFIG)
        self._commit(outcome.records)
        return ErrorCode(outcome.reply.responses[0].partitions[0].error_code)

    def _topic(self, partition: int) -> TopicImage:
        return self.image.topics[str(partition)]

    def _commit(self, records: Sequence[MetadataRecord]) -> None:
        if not records:
            return
        end_offset = self.image.end_offset + len(records)
        self.image = MetadataDelta(self.image).replay_all(records).image(end_offset)
        before = dict(self.parts)
        self.parts = {int(name): self._part(topic) for name, topic in self.image.topics.items()}
        changed = [(index, part) for index, part in self.parts.items() if part != before.get(index)]
        alive = {n: one.broker_epoch for n, one in self.image.brokers.items() if one.is_active}
        batch = Batch(end_offset, tuple(changed), alive)
        self.log.append(batch)
        self._on_commit(batch)

    def _part(self, topic: TopicImage) -> Part:
        (one,) = topic.partitions
        return Part(
            one.replicas,
            one.leader,
            one.leader_epoch,
            one.partition_epoch,
            tuple(sorted(one.in_sync_replicas)),
            tuple(sorted(one.eligible_leader_replicas)),
            min_in_sync_replicas(topic, self.image, CONFIG),
            one.adding_replicas,
            one.removing_replicas,
        )


def _min_isr_of(partition: int, min_isr: int) -> ConfigRecord:
    return ConfigRecord(
        resource_type=TOPIC_RESOURCE,
        resource_name=str(partition),
        name="min.insync.replicas",
        value=str(min_isr),
    )
