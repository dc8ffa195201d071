"""Converts requests that change the voters of the quorum (KIP-853) to changes for the quorum's
core.

This module is pure. Operators add and remove voters, and each voter updates its own addresses. The
leader of the quorum decides these requests. The controller's image only gives the addresses that a
request leaves out.
"""

from __future__ import annotations

from broker.config import BROKER_LISTENER
from broker.metadata.image import MetadataImage
from broker.quorum.events import (
    AddVoter,
    RemoveVoter,
    UpdateVoter,
    VoterChange,
    VoterChangeResult,
)
from broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from protocol.errors import ApiError, ErrorCode
from protocol.messages.voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoterUpdateLeader,
)

VoterOrder = AddRaftVoterRequest | RemoveRaftVoterRequest | UpdateRaftVoterRequest
VoterAnswer = AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateRaftVoterResponse


def change_of(order: VoterOrder, cluster_id: str, image: MetadataImage) -> VoterChange:
    """Return the change that a request asks for.

    A request to add a broker can leave out the addresses if the broker is registered, because the
    image has its address. Clients cannot see the addresses that brokers use among each other.

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
    if isinstance(order, AddRaftVoterRequest):
        endpoints = endpoints or registered_address(key, image)
    names = [one.name for one in endpoints]
    if names.count(BROKER_LISTENER) != 1 or len(set(names)) != len(names):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the listeners of node {order.voter_id} are {', '.join(names) or 'none'}; expected "
            f"{BROKER_LISTENER} once, because the other voters connect to it",
        )
    if isinstance(order, AddRaftVoterRequest):
        return AddVoter(Voter(key, endpoints))
    versions = order.k_raft_version_feature
    return UpdateVoter(
        Voter(key, endpoints, versions.min_supported_version, versions.max_supported_version)
    )


def check_epoch(order: VoterOrder, epoch: int) -> None:
    """Raise ApiError if a voter sent an update to the leader of another epoch."""
    if not isinstance(order, UpdateRaftVoterRequest) or order.current_leader_epoch == epoch:
        return
    is_older = order.current_leader_epoch < epoch
    raise ApiError(
        ErrorCode.FENCED_LEADER_EPOCH if is_older else ErrorCode.UNKNOWN_LEADER_EPOCH,
        f"the request is for epoch {order.current_leader_epoch}, this leader has epoch {epoch}",
    )


def waits_for_commit(order: VoterOrder) -> bool:
    """Return False if the caller wants its answer before the change is committed.

    As in Kafka, the answer to an update comes before its commit.
    """
    match order:
        case AddRaftVoterRequest():
            return order.ack_when_committed
        case RemoveRaftVoterRequest():
            return True
        case UpdateRaftVoterRequest():
            return False


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
    change: VoterChange, voters: VoterSet, image: MetadataImage
) -> dict[ReplicaKey, tuple[Endpoint, ...]]:
    """Return the addresses of all voters that are registered, for the record of a change.

    Leave out a voter whose update is the change, because its registration can be older.
    """
    own = change.voter.key if isinstance(change, UpdateVoter) else None
    found = {key: registered_address(key, image) for key in voters if key != own}
    return {key: endpoints for key, endpoints in found.items() if endpoints}


def named_leader(leader_id: int, epoch: int, image: MetadataImage) -> VoterUpdateLeader:
    """Return the leader of the quorum with its registered address, as an answer to an update
    names it."""
    broker = image.brokers.get(leader_id)
    host, port = ("", 0) if broker is None else broker.listeners.get(BROKER_LISTENER, ("", 0))
    return VoterUpdateLeader(leader_id=leader_id, leader_epoch=epoch, host=host, port=port)


def answer_to(
    order: VoterOrder, result: VoterChangeResult, leader: VoterUpdateLeader
) -> VoterAnswer:
    """Return the answer with the result of the change."""
    if isinstance(order, UpdateRaftVoterRequest):
        return UpdateRaftVoterResponse(error_code=result.error, current_leader=leader)
    cls = (
        AddRaftVoterResponse if isinstance(order, AddRaftVoterRequest) else RemoveRaftVoterResponse
    )
    return cls(error_code=result.error, error_message=result.reason or None)
