"""Converts requests of operators that change the voters of the quorum (KIP-853) to changes for the
quorum's core.

This module is pure. The leader of the quorum decides these requests. They do not depend on the
controller's image.
"""

from __future__ import annotations

from broker.config import BROKER_LISTENER
from broker.metadata.image import MetadataImage
from broker.quorum.events import AddVoter, RemoveVoter, VoterChange, VoterChangeResult
from broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from protocol.errors import ApiError, ErrorCode
from protocol.messages.voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)

VoterOrder = AddRaftVoterRequest | RemoveRaftVoterRequest


def change_of(order: VoterOrder, cluster_id: str, image: MetadataImage) -> VoterChange:
    """Return the change that a request asks for.

    A request without addresses must name a registered broker, whose address is in the image.
    Clients cannot see the addresses that brokers use among each other.

    Raises ApiError if the request is for another cluster, or if there is no address for other
    brokers.
    """
    # As in Kafka, a request without a cluster id is for any cluster.
    if order.cluster_id not in (None, cluster_id):
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the request is for cluster {order.cluster_id}, this is cluster {cluster_id}",
        )
    key = ReplicaKey(order.voter_id, order.voter_directory_id)
    if isinstance(order, RemoveRaftVoterRequest):
        return RemoveVoter(key)
    endpoints = tuple(Endpoint(one.name, one.host, one.port) for one in order.listeners)
    endpoints = endpoints or registered_address(key, image)
    names = [one.name for one in endpoints]
    if names.count(BROKER_LISTENER) != 1 or len(set(names)) != len(names):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the listeners of node {order.voter_id} are {', '.join(names) or 'none'}; expected "
            f"{BROKER_LISTENER} once, because the other voters connect to it",
        )
    return AddVoter(Voter(key, endpoints))


def waits_for_commit(order: VoterOrder) -> bool:
    """Return False if the caller wants its answer before the change is committed."""
    return not isinstance(order, AddRaftVoterRequest) or order.ack_when_committed


def registered_address(key: ReplicaKey, image: MetadataImage) -> tuple[Endpoint, ...]:
    """Return the address at which a voter is registered for other brokers; empty if it is not
    registered with this disk."""
    broker = image.brokers.get(key.node_id)
    if broker is None or BROKER_LISTENER not in broker.listeners:
        return ()
    if broker.directory_ids and key.directory_id not in broker.directory_ids:
        return ()
    return (Endpoint(BROKER_LISTENER, *broker.listeners[BROKER_LISTENER]),)


def present_addresses(
    voters: VoterSet, image: MetadataImage
) -> dict[ReplicaKey, tuple[Endpoint, ...]]:
    """Return the addresses of all voters that are registered."""
    found = {key: registered_address(key, image) for key in voters}
    return {key: endpoints for key, endpoints in found.items() if endpoints}


def answer_to(
    order: VoterOrder, result: VoterChangeResult
) -> AddRaftVoterResponse | RemoveRaftVoterResponse:
    """Return the answer with the result of the change."""
    cls = (
        AddRaftVoterResponse if isinstance(order, AddRaftVoterRequest) else RemoveRaftVoterResponse
    )
    return cls(error_code=result.error, error_message=result.reason or None)
