"""Describes the metadata quorum and the progress of its replicas, and changes its voters."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.client.errors import raise_for
from protocol.messages.voters import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
    QuorumListener,
    QuorumReplicaState,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from protocol.security.address import bracketed
from protocol.types import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster

METADATA_TOPIC = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """One replica of the metadata log.

    Times are Unix milliseconds; None if the leader does not know.
    """

    node_id: int
    directory_id: Uuid | None
    log_end_offset: int | None
    fetched_at_ms: int | None
    caught_up_at_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The quorum as its leader sees it.

    `endpoints` has the addresses of each voter by broker id.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[str, ...]]

    @property
    def leader(self) -> QuorumReplica | None:
        """The leader among the voters; None if the leader is not a voter any more."""
        return self.voter(self.leader_id)

    def voter(self, node_id: int) -> QuorumReplica | None:
        """Return the voter with this broker id; None if there is none."""
        return next((one for one in self.voters if one.node_id == node_id), None)

    def observer(self, node_id: int) -> QuorumReplica | None:
        """Return the observer with this broker id; None if there is none.

        After an exchange of its disk, a broker can be listed with both disks. Then the entry with
        the last fetch is returned.
        """
        found = [one for one in self.observers if one.node_id == node_id]
        return max(found, key=lambda one: one.fetched_at_ms or 0, default=None)

    def lag(self, replica: QuorumReplica) -> int | None:
        """Return how many offsets a replica is behind the end of the leader's log; None if
        unknown."""
        leader = self.leader
        if leader is None or leader.log_end_offset is None or replica.log_end_offset is None:
            return None
        return leader.log_end_offset - replica.log_end_offset


async def describe_quorum(cluster: "Cluster", *, timeout_ms: int | None = None) -> QuorumInfo:
    """Return the quorum as its leader sees it. Any broker can answer.

    Raises ApiError (NOT_LEADER_OR_FOLLOWER while there is no leader), and UnsupportedVersion for a
    cluster without a quorum. Raises BrokerUnreachable and ConnectionLost if no broker answers.
    """
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopic(
                topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartition()]
            )
        ]
    )

    async def attempt(left_ms: int) -> QuorumInfo:
        response: DescribeQuorumResponse = await cluster.request(None, request, timeout_ms=left_ms)
        return quorum_in(response)

    return await cluster.repeat(attempt, timeout_ms)


def quorum_in(response: DescribeQuorumResponse) -> QuorumInfo:
    """Return the quorum of an answer. Raises ApiError if the answer has an error."""
    raise_for(response.error_code, response.error_message)
    found = response.topics[0].partitions[0]
    raise_for(found.error_code, found.error_message)
    return QuorumInfo(
        found.leader_id,
        found.leader_epoch,
        found.high_watermark,
        tuple(map(_replica, found.current_voters)),
        tuple(map(_replica, found.observers)),
        {
            node.node_id: tuple(
                f"{one.name}://{bracketed(one.host)}:{one.port}" for one in node.listeners
            )
            for node in response.nodes
        },
    )


async def add_voter(
    cluster: "Cluster",
    node_id: int,
    directory_id: Uuid,
    endpoints: Iterable[tuple[str, str, int]] = (),
) -> None:
    """Make an observer a voter. Any broker accepts the request. Returns when the change is
    committed.

    `endpoints` are (listener name, host, port). Millrace's brokers know the endpoints of a
    registered broker, so they need none. The request is sent once, because a change whose answer
    was lost can have been made. Raises ApiError (DUPLICATE_VOTER, REQUEST_TIMED_OUT if the observer
    has not caught up) and the errors of `Cluster.request`.
    """
    request = AddRaftVoterRequest(
        cluster_id=cluster.current.cluster_id,
        timeout_ms=cluster.request_timeout_ms,
        voter_id=node_id,
        voter_directory_id=directory_id,
        listeners=[
            QuorumListener(name=name, host=host, port=port) for name, host, port in endpoints
        ],
    )
    response: AddRaftVoterResponse = await cluster.request(None, request)
    raise_for(response.error_code, response.error_message)


async def remove_voter(cluster: "Cluster", node_id: int, directory_id: Uuid) -> None:
    """Remove a voter. Any broker accepts the request. Returns when the change is committed.

    The request is sent once. Raises ApiError (VOTER_NOT_FOUND) and the errors of `Cluster.request`.
    """
    request = RemoveRaftVoterRequest(
        cluster_id=cluster.current.cluster_id, voter_id=node_id, voter_directory_id=directory_id
    )
    response: RemoveRaftVoterResponse = await cluster.request(None, request)
    raise_for(response.error_code, response.error_message)


def _replica(state: QuorumReplicaState) -> QuorumReplica:
    directory_id = state.replica_directory_id
    return QuorumReplica(
        state.replica_id,
        None if directory_id == ZERO_UUID else directory_id,
        _known(state.log_end_offset),
        _known(state.last_fetch_timestamp),
        _known(state.last_caught_up_timestamp),
    )


def _known(value: int) -> int | None:
    return value if value >= 0 else None
