"""Handles ApiVersions, FindCoordinator and DescribeCluster, which clients send first."""

from __future__ import annotations

import re

from broker.cluster.metadata import Metadata
from broker.config import InForce
from broker.handlers.internal_topics import with_topic
from broker.handlers.lost_leaders import LostLeaders
from broker.handlers.reachable import brokers_on, controller_on
from broker.handlers.shown_features import SUPPORTED_FEATURES, finalised_features
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from broker.security.rights import operation_bits
from broker.sessions.call import Call
from broker.shards.groups import GroupCoordinator
from broker.shards.transactions import TxnCoordinator
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import SERVED
from protocol.messages.cluster import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    Coordinator,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.security.acl import CLUSTER_NAME, AclOperation, AclResource
from protocol.types import NO_NODE

SOFTWARE_SINCE = 3
GROUP_KEY = 0
TRANSACTION_KEY = 1
BATCHED_SINCE = 4
BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")

_API_KEYS = [
    ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])
    for key, versions in sorted(SERVED.items())
]


class ClusterHandlers:
    """Answers requests for the cluster's brokers, and for the coordinators of groups and
    transactions."""

    def __init__(
        self,
        metadata: Metadata,
        settings: InForce,
        groups: GroupCoordinator,
        transactions: TxnCoordinator,
        lost_leaders: LostLeaders,
    ) -> None:
        self._metadata = metadata
        self._lost_leaders = lost_leaders
        self._settings = settings
        self._groups = groups
        self._transactions = transactions

    def api_versions(self, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
        """Return the APIs that this broker serves, and the level of the metadata log.

        The answer has no other features, which would enable unsupported protocols in clients.
        """
        if call.version >= SOFTWARE_SINCE and not (
            _SOFTWARE.match(request.client_software_name)
            and _SOFTWARE.match(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        image = self._metadata.image
        return ApiVersionsResponse(
            api_keys=_API_KEYS,
            supported_features=SUPPORTED_FEATURES,
            finalized_features_epoch=image.end_offset - 1,
            finalized_features=finalised_features(image),
        )

    def find_coordinator(
        self, call: Call, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse | None:
        """Return the coordinator of a group or transactional id.

        A missing internal topic is created first, if the user has the right for one of the keys.
        """
        keys = request.coordinator_keys if call.version >= BATCHED_SINCE else [request.key]
        shards: GroupCoordinator | TxnCoordinator
        if request.key_type == GROUP_KEY:
            topic, shards, kind = OFFSETS_TOPIC, self._groups, AclResource.GROUP
        elif request.key_type == TRANSACTION_KEY:
            topic, shards = TRANSACTIONS_TOPIC, self._transactions
            kind = AclResource.TRANSACTIONAL_ID
        else:
            reason = f"key type {request.key_type} is not known"
            refused = [_no_coordinator(key, ErrorCode.INVALID_REQUEST, reason) for key in keys]
            return _coordinators(call, refused)

        denied = {key for key in keys if not call.may(AclOperation.DESCRIBE, kind, key)}
        if len(denied) == len(set(keys)):
            return _coordinators(call, [_denied(key, kind) for key in keys])

        def coordinators() -> list[int]:
            return [shards.coordinator_id(key) for key in keys if key not in denied]

        def answer() -> None:
            found = [
                _denied(key, kind) if key in denied else self._coordinator(call, key, shards)
                for key in keys
            ]
            call.answer(_coordinators(call, found))

        def answer_once_known() -> None:
            if not self._lost_leaders.hold(coordinators, answer):
                answer()

        with_topic(self._metadata, call, topic, answer_once_known)
        return None

    def _coordinator(
        self, call: Call, key: str, shards: GroupCoordinator | TxnCoordinator
    ) -> Coordinator:
        """Return the leader of the key's partition, with its address on the client's listener."""
        coordinator_id = shards.coordinator_id(key)
        try:
            if coordinator_id in (NO_NODE, self._settings.config.node_id):
                shards.find(key)
        except ApiError as error:
            # While the shard is loading, its broker is already known.
            if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                return _no_coordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
        for node_id, host, port, _ in brokers_on(self._metadata.image, call.listener_name):
            if node_id == coordinator_id:
                return Coordinator(
                    key=key,
                    node_id=node_id,
                    host=host,
                    port=port,
                    error_code=ErrorCode.NONE,
                    error_message=None,
                )
        return _no_coordinator(
            key,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "the coordinator has no address on this listener",
        )

    def describe_cluster(
        self, call: Call, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Return the brokers with their addresses on the client's listener.

        Fenced brokers are left out, unless the client asks for them (KIP-1073).
        """
        if request.endpoint_type != BROKER_ENDPOINTS:
            raise ApiError(
                ErrorCode.MISMATCHED_ENDPOINT_TYPE
                if request.endpoint_type == CONTROLLER_ENDPOINTS
                else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                f"found endpoint type {request.endpoint_type}, expected {BROKER_ENDPOINTS} "
                "(brokers)",
            )
        response = DescribeClusterResponse(
            cluster_id=self._settings.config.cluster_id,
            controller_id=controller_for(call, self._metadata, self._settings),
            brokers=[
                DescribeClusterBroker(
                    broker_id=broker.node_id,
                    host=broker.listeners[call.listener_name][0],
                    port=broker.listeners[call.listener_name][1],
                    rack=broker.rack,
                    is_fenced=broker.is_fenced,
                )
                for broker in self._metadata.image.brokers.values()
                if call.listener_name in broker.listeners
                and (request.include_fenced_brokers or not broker.is_fenced)
            ],
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(call)
        return response


def cluster_operations(call: Call) -> int:
    """Return the operations that the client may do with the cluster; 0 if the client may not see
    them."""
    if not call.may_with_cluster(AclOperation.DESCRIBE, is_logged=False):
        return 0
    return operation_bits(call.session.rights, AclResource.CLUSTER, CLUSTER_NAME)


def controller_for(call: Call, metadata: Metadata, settings: InForce) -> int:
    """Return the id of the controller for a client of this listener."""
    return controller_on(
        metadata.image, call.listener_name, metadata.quorum.leader_id, settings.config.node_id
    )


def _denied(key: str, kind: AclResource) -> Coordinator:
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if kind is AclResource.TRANSACTIONAL_ID:
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return _no_coordinator(key, code, code.description)


def _no_coordinator(key: str, code: ErrorCode, reason: str) -> Coordinator:
    return Coordinator(
        key=key, node_id=NO_NODE, host="", port=-1, error_code=code, error_message=reason
    )


def _coordinators(call: Call, found: list[Coordinator]) -> FindCoordinatorResponse:
    if call.version >= BATCHED_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )
