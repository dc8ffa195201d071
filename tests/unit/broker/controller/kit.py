"""A cluster of three brokers and a topic, built from records, and helpers that change it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from broker.metadata.broker_image import BrokerImage
from broker.metadata.features import supported_features
from broker.metadata.image import MetadataDelta, MetadataImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import (
    RECOVERED,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from protocol.messages.membership import (
    BrokerRegistrationRequest,
    DamagedTopic,
    RegistrationListener,
)
from protocol.types import Uuid
from tests.unit.broker.cluster.kit import broker_config

ONE, TWO, THREE = 1, 2, 3
NODES = (ONE, TWO, THREE)
TOPIC_ID = Uuid(int=0xA)
CLUSTER = "mill"
CONFIG = broker_config()


def disk(node_id: int) -> Uuid:
    return Uuid(int=0xD00 + node_id)


def incarnation(node_id: int, life: int = 0) -> Uuid:
    return Uuid(int=0x1000 * (life + 1) + node_id)


def broker(node_id: int, *, fenced: bool = False, stopping: bool = False) -> BrokerImage:
    return BrokerImage(
        node_id, incarnation(node_id), 10 + node_id, {}, None, fenced, stopping, (disk(node_id),)
    )


def brokers(*active: int) -> dict[int, BrokerImage]:
    """Return all three brokers. Only the brokers in `active` are in service."""
    return {node_id: broker(node_id, fenced=node_id not in active) for node_id in NODES}


def partition(
    isr: Sequence[int] = NODES,
    *,
    elr: Sequence[int] = (),
    known: Sequence[int] = (),
    leader: int = ONE,
    replicas: Sequence[int] = NODES,
    recovery: int = RECOVERED,
    adding: Sequence[int] = (),
    removing: Sequence[int] = (),
) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(replicas),
        in_sync_replicas=tuple(isr),
        leader=leader,
        leader_epoch=5,
        partition_epoch=7,
        eligible_leader_replicas=tuple(elr),
        last_known_elr=tuple(known),
        leader_recovery_state=recovery,
        removing_replicas=tuple(removing),
        adding_replicas=tuple(adding),
        directories=tuple(disk(node_id) for node_id in replicas),
    )


def image_of(
    *partitions: PartitionImage,
    min_isr: int = 2,
    active: Sequence[int] = NODES,
    settings: dict[str, str] | None = None,
    nodes: Sequence[int] = NODES,
) -> MetadataImage:
    """Return an image with a topic `logs` that has these partitions. The broker epochs are 0, 1, 2
    and so on."""
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(
            broker_id=node_id,
            incarnation_id=incarnation(node_id),
            broker_epoch=node_id - 1,
            fenced=node_id not in active,
            log_dirs=[disk(node_id)],
        )
        for node_id in nodes
    ]
    records.append(TopicRecord(name="logs", topic_id=TOPIC_ID))
    records += [
        PartitionRecord(
            partition_id=number,
            topic_id=TOPIC_ID,
            replicas=list(one.replicas),
            isr=list(one.in_sync_replicas),
            removing_replicas=list(one.removing_replicas),
            adding_replicas=list(one.adding_replicas),
            leader=one.leader,
            leader_epoch=one.leader_epoch,
            partition_epoch=one.partition_epoch,
            leader_recovery_state=one.leader_recovery_state,
            directories=list(one.directories),
            eligible_leader_replicas=list(one.eligible_leader_replicas),
            last_known_elr=list(one.last_known_elr),
        )
        for number, one in enumerate(partitions)
    ]
    for name, value in {"min.insync.replicas": str(min_isr), **(settings or {})}.items():
        records.append(
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="logs", name=name, value=value)
        )
    return after(MetadataImage(), records)


def after(image: MetadataImage, records: Sequence[MetadataRecord]) -> MetadataImage:
    return MetadataDelta(image).replay_all(records).image(image.end_offset + len(records))


def one_of(image: MetadataImage, number: int = 0) -> PartitionImage:
    return image.topics["logs"].partitions[number]


def registration(
    node_id: int,
    *,
    life: int = 1,
    cluster_id: str = CLUSTER,
    directories: Sequence[Uuid] | None = None,
    previous_broker_epoch: int = -1,
    damaged: Mapping[str, Sequence[int]] = MappingProxyType({}),
    can_be_old_copy: bool = False,
) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=node_id,
        cluster_id=cluster_id,
        incarnation_id=incarnation(node_id, life),
        listeners=[RegistrationListener(name="BROKER", host=f"broker-{node_id}", port=9094)],
        rack=None,
        features=supported_features(),
        log_dirs=[disk(node_id)] if directories is None else list(directories),
        previous_broker_epoch=previous_broker_epoch,
        damaged=[DamagedTopic(name=one, partitions=list(damaged[one])) for one in damaged],
        can_be_old_copy=can_be_old_copy,
    )
