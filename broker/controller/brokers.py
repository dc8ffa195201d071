"""A broker begins its life, and the partitions it leads begin new epochs with it.

Floor: controller. Pure.
"""

from __future__ import annotations

from broker.controller.outcome import Outcome, RegisterBroker
from broker.metadata.image import MetadataImage
from broker.metadata.records import (
    BrokerEndpoint,
    MetadataRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)


def register_broker(order: RegisterBroker, image: MetadataImage) -> Outcome[int]:
    """Record the incarnation and raise the leader epoch of everything the broker leads.

    Without that, a broker that lost its unflushed tail would lead again in the epoch in which it
    wrote it, and two histories would share one epoch.
    """
    broker_epoch = image.end_offset
    records: list[MetadataRecord] = [
        RegisterBrokerRecord(
            broker_id=order.node_id,
            incarnation_id=order.incarnation_id,
            broker_epoch=broker_epoch,
            end_points=[
                BrokerEndpoint(name=name, host=host, port=port)
                for name, (host, port) in sorted(order.listeners.items())
            ],
            rack=order.rack,
            fenced=False,
        )
    ]
    records.extend(
        PartitionChangeRecord(partition_id=number, topic_id=topic.topic_id, leader=order.node_id)
        for topic in image.topics.values()
        for number, partition in enumerate(topic.partitions)
        if partition.leader == order.node_id
    )
    return Outcome(records, broker_epoch)
