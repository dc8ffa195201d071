"""Converts an image to records and back. The records are the content of a metadata snapshot.

This module is pure. A snapshot replaces the whole log before it, so replaying the records on an
empty image gives the same image.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.metadata.acl_changes import fields_of
from broker.metadata.broker_image import BrokerImage
from broker.metadata.credential_records import credential_record
from broker.metadata.image import MetadataDelta, MetadataImage, TopicImage
from broker.metadata.quota_changes import quota_records
from broker.metadata.records import (
    TOPIC_RESOURCE,
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from protocol.types import NO_NODE


def records_of(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yield the records of an image's whole content, in an order in which they can be replayed."""
    for name, level in image.features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield registration_of(broker)
    for topic in image.topics.values():
        yield from _topic(topic)
    for (resource_type, resource_name), settings in image.configs.items():
        for name, value in settings.items():
            yield ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
    for key, one in image.credentials.items():
        yield credential_record(key, one)
    for acl_id, entry in image.acls.entries.items():
        yield AccessControlEntryRecord(id=acl_id, **fields_of(entry))
    yield from quota_records(image.quotas)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=NO_NODE, next_producer_id=image.next_producer_id)


def registration_of(broker: BrokerImage) -> RegisterBrokerRecord:
    """Return the registration of a broker in its present state."""
    return RegisterBrokerRecord(
        broker_id=broker.node_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[
            BrokerEndpoint(name=name, host=host, port=port)
            for name, (host, port) in broker.listeners.items()
        ],
        features=[
            BrokerFeature(
                name=name, min_supported_version=one.oldest, max_supported_version=one.newest
            )
            for name, one in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.is_stopping,
        log_dirs=list(broker.directory_ids),
    )


def _topic(topic: TopicImage) -> Iterator[MetadataRecord]:
    yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
    for number, one in enumerate(topic.partitions):
        yield PartitionRecord(
            partition_id=number,
            topic_id=topic.topic_id,
            replicas=list(one.replicas),
            isr=list(one.in_sync_replicas),
            removing_replicas=list(one.removing_replicas),
            adding_replicas=list(one.adding_replicas),
            leader=one.leader,
            leader_recovery_state=one.leader_recovery_state,
            leader_epoch=one.leader_epoch,
            partition_epoch=one.partition_epoch,
            directories=list(one.directories),
            eligible_leader_replicas=list(one.eligible_leader_replicas) or None,
            last_known_elr=list(one.last_known_elr) or None,
        )


def between(base: MetadataImage, image: MetadataImage) -> MetadataDelta:
    """Return the differences between two images, for the case that `image` replaces `base`. Code
    whose state belongs to `base` applies them."""
    delta = MetadataDelta(base)
    delta.removed = [
        topic for topic in base.topics.values() if topic.topic_id not in image.topic_names
    ]
    delta.touched = {
        topic.name
        for topic in image.topics.values()
        if topic != base.topics.get(topic.name)
        or image.settings(TOPIC_RESOURCE, topic.name) != base.settings(TOPIC_RESOURCE, topic.name)
    }
    delta.changes_nodes = _settings_of_nodes(base) != _settings_of_nodes(image)
    delta.credentials = {
        key
        for key in base.credentials.keys() | image.credentials.keys()
        if base.credentials.get(key) != image.credentials.get(key)
    }
    delta.changes_acls = base.acls.entries != image.acls.entries
    delta.changes_quotas = base.quotas != image.quotas
    return delta


def _settings_of_nodes(image: MetadataImage) -> dict[tuple[int, str], dict[str, str]]:
    return {
        resource: dict(settings)
        for resource, settings in image.configs.items()
        if resource[0] != TOPIC_RESOURCE
    }
