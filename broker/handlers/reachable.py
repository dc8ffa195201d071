"""Finds the brokers that clients of a listener can reach.

This module is pure. A client cannot reach a fenced broker, or a broker without this listener.
"""

from __future__ import annotations

from broker.metadata.image import MetadataImage
from broker.metadata.partition_image import PartitionImage
from protocol.errors import ErrorCode
from protocol.types import NO_NODE


def leader_refusal(image: MetadataImage, listener: str, leader: int) -> ErrorCode:
    """Return the error for clients of a listener that cannot use this leader; NONE if they can."""
    broker = image.brokers.get(leader)
    if broker is None or broker.is_fenced:
        return ErrorCode.LEADER_NOT_AVAILABLE
    if listener not in broker.listeners:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.NONE


def offline_replicas(image: MetadataImage, listener: str, partition: PartitionImage) -> list[int]:
    """Return the replicas on brokers that clients of a listener cannot reach."""
    return [one for one in partition.replicas if leader_refusal(image, listener, one)]


def brokers_on(image: MetadataImage, listener: str) -> list[tuple[int, str, int, str | None]]:
    """Return id, host, port and rack of the brokers with this listener, as advertised."""
    return [
        (broker.node_id, *broker.listeners[listener], broker.rack)
        for broker in image.brokers.values()
        if listener in broker.listeners and not broker.is_fenced
    ]


def controller_on(image: MetadataImage, listener: str, leader_id: int, own_id: int) -> int:
    """Return the broker that clients of a listener get as the controller.

    The clients must be able to reach this broker. It is the controller, else this broker, else any
    other broker, because each broker accepts the requests for the controller. The result is -1 if
    no broker is in service. librdkafka waits a minute for a controller that is not in the list,
    such as a broker that started but is not yet in service.
    """
    reachable = [one[0] for one in brokers_on(image, listener)]
    wanted = (leader_id, own_id, *reachable)
    return next((one for one in wanted if one in reachable), NO_NODE)
