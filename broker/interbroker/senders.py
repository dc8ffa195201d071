"""Checks that a request of another broker comes from the broker that it names.

On a link with certificates the certificate proves the id of the sender. A request that names
another broker as its sender is not served, and the connection is closed. Otherwise each broker
could acknowledge records, vote and register for another (CVE-2018-1288 in Kafka). On a link without
certificates nothing is checked.

`SENDERS` has an entry for each request between brokers, so that none is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from broker.security.broker_identity import broker_name
from broker.sessions.call import Call
from broker.sessions.dispatch import Handler
from broker.sessions.peer_versions import VERSIONS_NAME
from broker.sessions.peers import CATCH_UP_NAME
from protocol.messages.api import ApiKey
from protocol.messages.fetch import FetchRequest
from protocol.messages.quorum import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    VoteRequest,
)
from protocol.wire.schema import Message

NamedSenders = Callable[[Any], Iterable[int]]
"""A function that returns the broker ids by which a request names its sender."""


def _in_vote(request: VoteRequest) -> Iterable[int]:
    return (one.replica_id for topic in request.topics for one in topic.partitions)


def _in_epoch(request: BeginQuorumEpochRequest | EndQuorumEpochRequest) -> Iterable[int]:
    return (one.leader_id for topic in request.topics for one in topic.partitions)


def _in_fetch(request: FetchRequest) -> Iterable[int]:
    return (-1 if request.replica_state is None else request.replica_state.replica_id,)


def _replica_id(request: Any) -> Iterable[int]:
    return (request.replica_id,)


def _broker_id(request: Any) -> Iterable[int]:
    return (request.broker_id,)


def _voter_id(request: Any) -> Iterable[int]:
    return (request.voter_id,)


def _only_client_id(request: Message) -> Iterable[int]:
    """Return nothing, because only the client id in the header names the sender."""
    return ()


SENDERS: Mapping[ApiKey, NamedSenders] = MappingProxyType(
    {
        ApiKey.VOTE: _in_vote,
        ApiKey.BEGIN_QUORUM_EPOCH: _in_epoch,
        ApiKey.END_QUORUM_EPOCH: _in_epoch,
        ApiKey.FETCH: _in_fetch,
        ApiKey.FETCH_SNAPSHOT: _replica_id,
        ApiKey.BROKER_REGISTRATION: _broker_id,
        ApiKey.BROKER_HEARTBEAT: _broker_id,
        ApiKey.ALTER_PARTITION: _broker_id,
        ApiKey.ALLOCATE_PRODUCER_IDS: _broker_id,
        ApiKey.REPLICA_REPORT: _broker_id,
        ApiKey.UPDATE_RAFT_VOTER: _voter_id,
        ApiKey.ENVELOPE: _only_client_id,
        ApiKey.ADD_PARTITIONS_TO_TXN: _only_client_id,
        ApiKey.WRITE_TXN_MARKERS: _only_client_id,
        ApiKey.API_VERSIONS: _only_client_id,
    }
)
"""The ids of the sender in each request between brokers."""


def from_its_sender(key: ApiKey, handler: Handler) -> Handler:
    """Return a handler that serves only requests which name their true sender."""
    senders_of = SENDERS[key]

    def checked(call: Call, request: Any) -> Message | None:
        proven = call.session.peer_id
        if proven is None or _is_from(proven, call, senders_of(request)):
            return handler(call, request)
        named = ", ".join(map(str, senders_of(request))) or f"client id {call.client_id!r}"
        call.hang_up(
            f"broker {proven}, as its certificate says, sent {key.name} in the name of {named}"
        )
        return None

    return checked


def _is_from(proven: int, call: Call, named: Iterable[int]) -> bool:
    name = broker_name(proven)
    names = (name, name + CATCH_UP_NAME, name + VERSIONS_NAME)
    return call.client_id in names and all(one == proven for one in named)
