"""A scripted cluster with registrations and voters, for commands that add or remove brokers."""

from dataclasses import dataclass, field
from typing import Any

from protocol.errors import ErrorCode
from protocol.messages import membership, voters
from protocol.messages.api import ApiKey
from protocol.messages.cluster import DescribeClusterBroker, DescribeClusterResponse
from protocol.types import Uuid
from protocol.wire.schema import Message
from tests.unit.appliance.fake_cluster import FakeCluster
from tests.unit.client.scripted_server import Received

END = 100
"""The end of the metadata log of every broker."""
NOW_MS = 1_000_000


@dataclass
class FakeQuorum(FakeCluster):
    """`fenced` are brokers that are registered and away. `voters` maps ids to directories; each
    broker in service that is none of them observes, with its id as the directory.

    With `completes`, moves are complete one question after they were listed.
    """

    fenced: set[int] = field(default_factory=set)
    voters: dict[int, Uuid] = field(default_factory=dict)
    controller: int = 1
    completes: bool = False
    refused_changes: int = 0
    """The number of changes of the voters that are refused before one is made."""

    def _answer(self, node_id: int, request: Received) -> Message:
        answers = {
            ApiKey.DESCRIBE_CLUSTER: self._cluster,
            ApiKey.DESCRIBE_QUORUM: self._quorum,
            ApiKey.ADD_RAFT_VOTER: self._add,
            ApiKey.REMOVE_RAFT_VOTER: self._remove,
            ApiKey.UNREGISTER_BROKER: self._unregister,
        }
        key = ApiKey(request.api_key)
        if key in answers:
            self.asked.append(request.message)
            return answers[key](request.message)
        answer = super()._answer(node_id, request)
        if self.completes and key is ApiKey.LIST_PARTITION_REASSIGNMENTS:
            self.complete()
        return answer

    def asked_for(self) -> list[str]:
        """Return the names of the requests that change something."""
        kept = ("Alter", "Incremental", "Elect", "Add", "Remove", "Unregister")
        names = [type(one).__name__.removesuffix("Request") for one in self.asked]
        return [one for one in names if one.startswith(kept)]

    def _cluster(self, request: Any) -> Message:
        ids = {*self.brokers, *(self.fenced if request.include_fenced_brokers else ())}
        return DescribeClusterResponse(
            cluster_id="fake",
            brokers=[
                DescribeClusterBroker(
                    broker_id=one, host="127.0.0.1", port=1, is_fenced=one in self.fenced
                )
                for one in sorted(ids)
            ],
        )

    def _quorum(self, _: Any) -> Message:
        observers = {one: Uuid(int=one) for one in self.brokers if one not in self.voters}

        def states(of: dict[int, Uuid]) -> list[voters.QuorumReplicaState]:
            return [
                voters.QuorumReplicaState(
                    replica_id=one,
                    replica_directory_id=directory_id,
                    log_end_offset=END,
                    last_fetch_timestamp=NOW_MS,
                    last_caught_up_timestamp=NOW_MS,
                )
                for one, directory_id in sorted(of.items())
            ]

        partition = voters.DescribeQuorumPartition(
            leader_id=self.controller,
            high_watermark=END,
            current_voters=states(self.voters),
            observers=states(observers),
        )
        return voters.DescribeQuorumResponse(
            topics=[
                voters.DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=[partition])
            ]
        )

    def _is_refused(self) -> bool:
        self.refused_changes -= 1
        return self.refused_changes >= 0

    def _add(self, request: Any) -> Message:
        code = ErrorCode.NONE
        if self._is_refused():
            code = ErrorCode.REQUEST_TIMED_OUT
        elif request.voter_id in self.voters:
            code = ErrorCode.DUPLICATE_VOTER
        else:
            self.voters[request.voter_id] = request.voter_directory_id
        return voters.AddRaftVoterResponse(error_code=code)

    def _remove(self, request: Any) -> Message:
        code = ErrorCode.NONE
        if self._is_refused():
            code = ErrorCode.REQUEST_TIMED_OUT
        elif self.voters.get(request.voter_id) != request.voter_directory_id:
            code = ErrorCode.VOTER_NOT_FOUND
        else:
            del self.voters[request.voter_id]
        return voters.RemoveRaftVoterResponse(error_code=code)

    def _unregister(self, request: Any) -> Message:
        code = ErrorCode.NONE
        if request.broker_id in self.brokers:
            code = ErrorCode.INVALID_REQUEST
        elif request.broker_id not in self.fenced:
            code = ErrorCode.BROKER_ID_NOT_REGISTERED
        self.fenced.discard(request.broker_id)
        return membership.UnregisterBrokerResponse(error_code=code)
