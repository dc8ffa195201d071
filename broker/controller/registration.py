"""Decides the registration, fencing, stop and removal of brokers, with the consequences for
partitions.

This module is pure. Each function returns one batch, so the broker's state and all consequences for
partitions are committed together. In a cluster, a registration gives the broker a new broker epoch,
fences it, and removes it from all in-sync replicas. Partitions that the broker led get a new leader
epoch, so that no two logs of one epoch can differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from broker.config import BrokerConfig
from broker.controller.leadership import (
    Brokers,
    WantedChange,
    change,
    differs,
    directory_of,
    min_in_sync_replicas,
    partitions_of,
)
from broker.controller.outcome import ControllerDecision
from broker.controller.registration_checks import (
    RegistrationFacts,
    addresses_of,
    refuse_directories,
    refuse_foreign,
    refuse_level,
    wanted_addresses,
)
from broker.metadata.broker_image import BrokerImage
from broker.metadata.features import ranges_of
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import (
    IN_CONTROLLED_SHUTDOWN,
    TOPIC_RESOURCE,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from broker.metadata.snapshot import registration_of
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    DamagedTopic,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from protocol.types import NO_NODE, uuid_to_base64

NAMED_MAX = 10
"""The most partitions that a refusal names."""


@dataclass(frozen=True, slots=True)
class Registration:
    """A BrokerRegistration to decide. `facts` is None for a broker that runs without a cluster."""

    request: BrokerRegistrationRequest
    facts: RegistrationFacts | None = None


def register(
    request: BrokerRegistrationRequest,
    image: MetadataImage,
    config: BrokerConfig,
    facts: RegistrationFacts,
) -> ControllerDecision[BrokerRegistrationResponse]:
    """Handle BrokerRegistration. An incarnation that registers again gets its present epoch, and no
    record is written. The exception is a broker whose supported levels are unknown because a
    snapshot of version 1.0.0-rc1 did not have them.

    Raises INCONSISTENT_CLUSTER_ID. Raises UNSUPPORTED_VERSION for a broker that does not support
    the level of the metadata log. Raises DUPLICATE_BROKER_REGISTRATION while another incarnation
    may still be running. Raises INVALID_REQUEST for directories that this broker cannot have; the
    broker need not try again.
    """
    known = image.brokers.get(request.broker_id)
    refuse_foreign(request, facts)
    if known is not None and known.incarnation_id == request.incarnation_id:
        features = ranges_of(request.features)
        again = registration_of(replace(known, features=features))
        return ControllerDecision(
            [] if features == known.features else [again],
            BrokerRegistrationResponse(broker_epoch=known.broker_epoch),
        )
    refuse_level(request, image)
    refuse_directories(request, image, facts)
    if known is not None and facts.is_live:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {request.broker_id} is running as incarnation "
            f"{uuid_to_base64(known.incarnation_id)} at {addresses_of(known)}; incarnation "
            f"{uuid_to_base64(request.incarnation_id)} at {wanted_addresses(request)} must have "
            "another broker id, or wait until the other broker has stopped",
        )
    # The broker epoch is the offset of the batch's first record.
    broker_epoch = image.end_offset
    record = _record(request, broker_epoch, is_fenced=True)
    brokers = {**image.brokers, request.broker_id: _image_of(request, broker_epoch)}
    damaged = {(one.name, number) for one in request.damaged for number in one.partitions}
    records: list[MetadataRecord] = [record]
    for topic, number, partition in partitions_of(image):
        if request.broker_id in partition.replicas:
            wanted = _after_restart(request, known, partition, _is_flushed(topic, image, config))
            if (topic.name, number) in damaged:
                distrusted = wanted.distrusted | {request.broker_id}
                wanted = replace(wanted, distrusted=distrusted)
            min_isr = min_in_sync_replicas(topic, image, config)
            changed = change(topic.topic_id, number, partition, wanted, brokers, min_isr)
            if differs(partition, changed):
                records.append(changed)
    return ControllerDecision(records, BrokerRegistrationResponse(broker_epoch=broker_epoch))


def register_alone(
    request: BrokerRegistrationRequest, image: MetadataImage
) -> ControllerDecision[BrokerRegistrationResponse]:
    """Register the only broker of a cluster. No other broker can lead, so it is in service at once.

    Every partition that it leads gets a new leader epoch. Otherwise a broker that lost unflushed
    records would write other records in the same leader epoch, and followers and clients could not
    tell the two logs apart.
    """
    broker_epoch = image.end_offset
    records: list[MetadataRecord] = [_record(request, broker_epoch, is_fenced=False)]
    records.extend(
        PartitionChangeRecord(
            partition_id=number, topic_id=topic.topic_id, leader=request.broker_id
        )
        for topic, number, partition in partitions_of(image)
        if partition.leader == request.broker_id
    )
    return ControllerDecision(records, BrokerRegistrationResponse(broker_epoch=broker_epoch))


def fence(node_id: int, image: MetadataImage, config: BrokerConfig) -> Sequence[MetadataRecord]:
    """Fence a dead broker: it leads no partition and is not in sync anywhere.

    Fencing is safe even if the broker still runs.
    """
    broker = image.brokers[node_id]
    brokers = {**image.brokers, node_id: replace(broker, is_fenced=True)}
    record = FenceBrokerRecord(broker_id=node_id, broker_epoch=broker.broker_epoch)
    return [record, *_without(node_id, image, brokers, config)]


def stop(node_id: int, image: MetadataImage, config: BrokerConfig) -> Sequence[MetadataRecord]:
    """Prepare a broker to stop: its leaderships move, and it leaves all in-sync replicas."""
    broker = image.brokers[node_id]
    brokers = {**image.brokers, node_id: replace(broker, is_stopping=True)}
    record = BrokerRegistrationChangeRecord(
        broker_id=node_id,
        broker_epoch=broker.broker_epoch,
        in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN,
    )
    return [record, *_without(node_id, image, brokers, config)]


def unfence(node_id: int, image: MetadataImage, config: BrokerConfig) -> Sequence[MetadataRecord]:
    """Unfence a broker that has replayed its own registration.

    It becomes the leader of partitions without a leader. Reassignments of its partitions are
    completed if they can be.
    """
    broker = image.brokers[node_id]
    brokers = {**image.brokers, node_id: replace(broker, is_fenced=False)}
    records: list[MetadataRecord] = [
        UnfenceBrokerRecord(broker_id=node_id, broker_epoch=broker.broker_epoch)
    ]
    for topic, number, partition in partitions_of(image):
        is_affected = partition.leader == NO_NODE or partition.is_moving
        if is_affected and node_id in partition.replicas:
            min_isr = min_in_sync_replicas(topic, image, config)
            changed = change(topic.topic_id, number, partition, WantedChange(), brokers, min_isr)
            if differs(partition, changed):
                records.append(changed)
    return records


def unregister(
    request: UnregisterBrokerRequest, image: MetadataImage
) -> ControllerDecision[UnregisterBrokerResponse]:
    """Handle UnregisterBroker: remove a broker that will not come back and has no replicas.

    Kafka also removes a broker that has replicas. Its partitions then name a broker that does not
    exist.

    Raises BROKER_ID_NOT_REGISTERED for an unknown id, and INVALID_REQUEST for a broker in service,
    which must stop first, or for a broker whose replicas must move first.
    """
    node_id = request.broker_id
    broker = image.brokers.get(node_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"no broker {node_id} is registered")
    if not broker.is_fenced:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"broker {node_id} at {addresses_of(broker)} is in service: stop it first",
        )
    held = [
        f"{name}-{number}"
        for name, topic in sorted(image.topics.items())
        for number, partition in enumerate(topic.partitions)
        if node_id in partition.replicas
    ]
    if held:
        more = len(held) - NAMED_MAX
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"broker {node_id} still has replicas of {', '.join(held[:NAMED_MAX])}"
            f"{f' and {more} more' if more > 0 else ''}: move these to other brokers first",
        )
    record = UnregisterBrokerRecord(broker_id=node_id, broker_epoch=broker.broker_epoch)
    return ControllerDecision([record], UnregisterBrokerResponse())


def distrust(
    node_id: int, damaged: Iterable[DamagedTopic], image: MetadataImage, config: BrokerConfig
) -> Sequence[MetadataRecord]:
    """Handle damaged logs of a broker in service: other brokers lead these partitions, and the
    broker is not in sync any more.

    The leader epoch always rises. The new epoch tells the broker to start its log again, and makes
    the leader forget the end of the old log. Otherwise the leader could add an empty log to the
    in-sync replicas. If no other broker can lead, nothing changes, because a partly readable copy
    is better than none, and appends go on.
    """
    records = []
    for named in damaged:
        topic = image.topics.get(named.name)
        for number in dict.fromkeys(named.partitions):
            if topic is None or not 0 <= number < len(topic.partitions):
                continue
            partition = topic.partitions[number]
            if node_id not in partition.replicas:
                continue
            others = _others(partition, node_id)
            wanted = WantedChange(others, frozenset({node_id}), begins_epoch=True)
            min_isr = min_in_sync_replicas(topic, image, config)
            changed = change(topic.topic_id, number, partition, wanted, image.brokers, min_isr)
            if partition.changed(changed).leader not in (NO_NODE, node_id):
                records.append(changed)
    return records


def leads_nothing(node_id: int, image: MetadataImage) -> bool:
    """Return True if a stopping broker leads nothing, so that it may stop."""
    return all(partition.leader != node_id for _, _, partition in partitions_of(image))


def _without(
    node_id: int, image: MetadataImage, brokers: Brokers, config: BrokerConfig
) -> Iterator[PartitionChangeRecord]:
    for topic, number, partition in partitions_of(image):
        if node_id in partition.in_sync_replicas or partition.leader == node_id:
            wanted = WantedChange(in_sync_replicas=_others(partition, node_id))
            min_isr = min_in_sync_replicas(topic, image, config)
            yield change(topic.topic_id, number, partition, wanted, brokers, min_isr)


def _others(partition: PartitionImage, node_id: int) -> tuple[int, ...]:
    return tuple(one for one in partition.in_sync_replicas if one != node_id)


def _after_restart(
    request: BrokerRegistrationRequest,
    known: BrokerImage | None,
    partition: PartitionImage,
    is_flushed: bool,
) -> WantedChange:
    """Return the change of one partition after a broker's restart. It depends on what is still on
    the broker's disk."""
    node_id = request.broker_id
    directory = directory_of(partition, node_id)
    before = () if known is None else known.directory_ids
    lay_in = before if directory is None else (directory,)
    in_sync = _others(partition, node_id)
    if not set(lay_in) <= set(request.log_dirs):
        return WantedChange(in_sync, frozenset({node_id}), moved={node_id: request.log_dirs[0]})
    has_lost_nothing = known is not None and request.previous_broker_epoch == known.broker_epoch
    is_known = known is not None or directory is not None
    # An old copy lacks records whether they were flushed or not, and its marker of a clean stop has
    # an earlier broker epoch.
    is_flushed = is_flushed and not request.can_be_old_copy
    is_trusted = is_known and (is_flushed or has_lost_nothing)
    distrusted = frozenset[int]() if is_trusted else frozenset({node_id})
    return WantedChange(in_sync, distrusted)


def _is_flushed(topic: TopicImage, image: MetadataImage, config: BrokerConfig) -> bool:
    settings = image.settings(TOPIC_RESOURCE, topic.name)
    return config.log_config(settings).is_flushed_before_ack


def _record(
    request: BrokerRegistrationRequest, broker_epoch: int, *, is_fenced: bool
) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=broker_epoch,
        end_points=[
            BrokerEndpoint(
                name=one.name,
                host=one.host,
                port=one.port,
                security_protocol=one.security_protocol,
            )
            for one in request.listeners
        ],
        features=[
            BrokerFeature(
                name=one.name,
                min_supported_version=one.min_supported_version,
                max_supported_version=one.max_supported_version,
            )
            for one in request.features
        ],
        rack=request.rack,
        fenced=is_fenced,
        log_dirs=list(request.log_dirs),
    )


def _image_of(request: BrokerRegistrationRequest, broker_epoch: int) -> BrokerImage:
    return BrokerImage(
        request.broker_id,
        request.incarnation_id,
        broker_epoch,
        {one.name: (one.host, one.port) for one in request.listeners},
        request.rack,
        is_fenced=True,
        directory_ids=tuple(request.log_dirs),
        features=ranges_of(request.features),
    )
