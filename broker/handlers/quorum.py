"""Handles the administration of the quorum: describe it, change its voters, unregister brokers,
raise feature levels.

The active controller decides these requests. Any other broker forwards the request to the
controller, as in Kafka, so that a client can ask any broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.cluster.controller_driver import Order
from broker.cluster.metadata import Metadata
from broker.controller.features import SAFE_DOWNGRADE
from broker.sessions.call import Call
from broker.sessions.dispatch import refusal
from protocol.messages.features import UpdateFeaturesRequest
from protocol.messages.membership import UnregisterBrokerRequest
from protocol.messages.voters import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RemoveRaftVoterRequest,
)
from protocol.security.acl import AclOperation
from protocol.types import ZERO_UUID

DIRECTORIES_SINCE = 2


class QuorumHandlers:
    """Handles the requests that the leader of the metadata quorum answers."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def describe_quorum(self, call: Call, request: DescribeQuorumRequest) -> None:
        """Handle DescribeQuorum."""
        call.need_of_cluster(AclOperation.DESCRIBE)

        def described(response: DescribeQuorumResponse) -> None:
            call.answer(
                response if call.version >= DIRECTORIES_SINCE else _without_places(response)
            )

        self._pass_on(call, request, described)

    def unregister_broker(self, call: Call, request: UnregisterBrokerRequest) -> None:
        """Handle UnregisterBroker. The answer is sent when the broker is unregistered."""
        self._pass_on(call, request, call.answer)

    def add_raft_voter(self, call: Call, request: AddRaftVoterRequest) -> None:
        """Handle AddRaftVoter. The answer is sent when the new voter set is committed."""
        call.need_of_cluster(AclOperation.ALTER)
        self._pass_on(call, request, call.answer)

    def remove_raft_voter(self, call: Call, request: RemoveRaftVoterRequest) -> None:
        """Handle RemoveRaftVoter. The answer is sent when the new voter set is committed."""
        call.need_of_cluster(AclOperation.ALTER)
        self._pass_on(call, request, call.answer)

    def update_features(self, call: Call, request: UpdateFeaturesRequest) -> None:
        """Handle UpdateFeatures. The answer is sent when the levels are committed."""
        self._pass_on(call, _in_latest_words(request), call.answer)

    def _pass_on(self, call: Call, order: Order, reply: Callable[[Any], None]) -> None:
        self._metadata.submit(
            order,
            reply,
            lambda error: call.answer(refusal(call.api_key, error)),
            *call.asker,
        )


def _without_places(response: DescribeQuorumResponse) -> DescribeQuorumResponse:
    """Return the response without the fields that versions before 2 do not have: directories and
    addresses."""
    response.nodes = []
    for topic in response.topics:
        for partition in topic.partitions:
            for state in [*partition.current_voters, *partition.observers]:
                state.replica_directory_id = ZERO_UUID
    return response


def _in_latest_words(request: UpdateFeaturesRequest) -> UpdateFeaturesRequest:
    """Convert a request of version 0 to version 1. The permission to lower a level becomes a safe
    downgrade."""
    for one in request.feature_updates:
        if one.allow_downgrade:
            one.allow_downgrade, one.upgrade_type = False, SAFE_DOWNGRADE
    return request
