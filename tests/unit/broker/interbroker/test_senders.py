"""Pitfall 14 (CVE-2018-1288): a broker is served only in its own name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.interbroker.senders import SENDERS, from_its_sender
from broker.sessions.call import Call
from broker.sessions.peer_versions import VERSIONS_NAME
from broker.sessions.peers import CATCH_UP_NAME
from broker.sessions.pipeline import Slot
from protocol.messages import quorum
from protocol.messages.api import BETWEEN_BROKERS, ApiKey
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.fetch import FetchRequest, ReplicaState
from protocol.messages.membership import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    EnvelopeRequest,
)
from protocol.messages.producer_ids import AllocateProducerIdsRequest
from protocol.messages.replica_report import ReplicaReportRequest
from protocol.messages.transactions import AddPartitionsToTxnRequest, WriteTxnMarkersRequest
from protocol.messages.voters import UpdateRaftVoterRequest
from protocol.wire.schema import Message
from tests.unit.broker.rig import FakeSession


def votes(*node_ids: int) -> quorum.VoteRequest:
    partitions = [quorum.VoteRequestPartition(replica_id=one) for one in node_ids]
    return quorum.VoteRequest(topics=[quorum.VoteRequestTopic(partitions=partitions)])


def begins(*node_ids: int) -> quorum.BeginQuorumEpochRequest:
    partitions = [quorum.BeginQuorumEpochPartition(leader_id=one) for one in node_ids]
    topic = quorum.BeginQuorumEpochTopic(partitions=partitions)
    return quorum.BeginQuorumEpochRequest(topics=[topic])


def ends(*node_ids: int) -> quorum.EndQuorumEpochRequest:
    partitions = [quorum.EndQuorumEpochPartition(leader_id=one) for one in node_ids]
    topic = quorum.EndQuorumEpochTopic(partitions=partitions)
    return quorum.EndQuorumEpochRequest(topics=[topic])


NAMING: dict[ApiKey, Callable[[int], Message]] = {
    ApiKey.VOTE: votes,
    ApiKey.BEGIN_QUORUM_EPOCH: begins,
    ApiKey.END_QUORUM_EPOCH: ends,
    ApiKey.FETCH: lambda node_id: FetchRequest(replica_state=ReplicaState(replica_id=node_id)),
    ApiKey.FETCH_SNAPSHOT: lambda node_id: quorum.FetchSnapshotRequest(replica_id=node_id),
    ApiKey.BROKER_REGISTRATION: lambda node_id: BrokerRegistrationRequest(broker_id=node_id),
    ApiKey.BROKER_HEARTBEAT: lambda node_id: BrokerHeartbeatRequest(broker_id=node_id),
    ApiKey.ALTER_PARTITION: lambda node_id: AlterPartitionRequest(broker_id=node_id),
    ApiKey.ALLOCATE_PRODUCER_IDS: lambda node_id: AllocateProducerIdsRequest(broker_id=node_id),
    ApiKey.REPLICA_REPORT: lambda node_id: ReplicaReportRequest(broker_id=node_id),
    ApiKey.UPDATE_RAFT_VOTER: lambda node_id: UpdateRaftVoterRequest(voter_id=node_id),
}
"""The requests that name their sender, each with a function that makes one."""

NAMELESS: dict[ApiKey, Message] = {
    ApiKey.ENVELOPE: EnvelopeRequest(),
    ApiKey.ADD_PARTITIONS_TO_TXN: AddPartitionsToTxnRequest(),
    ApiKey.WRITE_TXN_MARKERS: WriteTxnMarkersRequest(),
    ApiKey.API_VERSIONS: ApiVersionsRequest(),
}
"""The requests whose sender is only named by the client id of the header."""


def is_served(
    key: ApiKey, request: Any, proven: int | None, client_id: str | None
) -> tuple[bool, str]:
    """Return True if the handler got the request, and the reason if the session was closed."""
    session: Any = FakeSession("BROKER")
    session.peer_id = proven
    served: list[Any] = []
    handler = from_its_sender(key, lambda call, request: served.append(request))
    handler(Call(session, Slot(False, 0), key, 0, 1, client_id), request)
    assert session.is_closed == (not served)
    return bool(served), session.closed_because


def test_every_request_between_brokers_has_a_rule_and_a_test() -> None:
    assert SENDERS.keys() == BETWEEN_BROKERS.keys() == NAMING.keys() | NAMELESS.keys()


@pytest.mark.parametrize("key", NAMING, ids=lambda key: key.name)
def test_a_request_in_the_name_of_another_broker_is_refused(key: ApiKey) -> None:
    make = NAMING[key]
    assert is_served(key, make(2), 2, "broker-2") == (True, "")
    assert is_served(key, make(3), 2, "broker-2") == (
        False,
        f"broker 2, as its certificate says, sent {key.name} in the name of 3",
    )


@pytest.mark.parametrize("key", NAMELESS, ids=lambda key: key.name)
@pytest.mark.parametrize("client_id", ["broker-3", "broker-22", "broker-2-more", "", None])
def test_the_client_id_counts_too(key: ApiKey, client_id: str | None) -> None:
    """A transaction coordinator is recognised by its client id, and in an envelope nothing else
    names the sender."""
    request = NAMELESS[key]
    assert is_served(key, request, 2, "broker-2") == (True, "")
    for name in CATCH_UP_NAME, VERSIONS_NAME:
        assert is_served(key, request, 2, f"broker-2{name}") == (True, "")
    is_ok, said = is_served(key, request, 2, client_id)
    assert not is_ok
    assert said.endswith(f"sent {key.name} in the name of client id {client_id!r}")


@pytest.mark.parametrize("make", [votes, begins, ends])
def test_one_forged_name_among_true_ones_is_enough(make: Any) -> None:
    key = ApiKey(make(2).api_key)
    assert is_served(key, make(2, 2), 2, "broker-2")[0]
    assert not is_served(key, make(2, 3), 2, "broker-2")[0]


def test_a_fetch_that_names_no_replica_is_refused() -> None:
    assert not is_served(ApiKey.FETCH, FetchRequest(), 2, "broker-2")[0]


def test_without_certificates_nothing_is_checked() -> None:
    """On one machine the links are plain, and every account of the machine is trusted."""
    for key, make in NAMING.items():
        assert is_served(key, make(3), None, "broker-2")[0]
    for key, request in NAMELESS.items():
        assert is_served(key, request, None, "anything")[0]
