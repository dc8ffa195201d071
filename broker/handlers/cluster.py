"""Handles ApiVersions, Metadata, FindCoordinator and DescribeCluster, a client's first requests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from broker.cluster.metadata import Metadata
from broker.config import InForce
from broker.controller.outcome import CreateOwnTopic
from broker.handlers.lost_leaders import LostLeaders
from broker.handlers.reachable import (
    brokers_on,
    controller_on,
    leader_refusal,
    offline_replicas,
)
from broker.handlers.transactions import with_topic
from broker.metadata.image import (
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    MetadataImage,
    TopicImage,
)
from broker.metadata.names import check_topic_name
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
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.types import NO_NODE, ZERO_UUID

SOFTWARE_SINCE = 3
GROUP_KEY = 0
TRANSACTION_KEY = 1
BATCHED_SINCE = 4
TOPIC_IDS_SINCE = 12
LISTENERS_SINCE = 6
BROKER_ENDPOINTS = 1
CONTROLLER_ENDPOINTS = 2

# Without an authorizer every operation is allowed. The value is the set of Kafka's operations as
# bits.
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")

_API_KEYS = [
    ApiVersion(api_key=key, min_version=versions[0], max_version=versions[-1])
    for key, versions in sorted(SERVED.items())
]


class ClusterHandlers:
    """Answers requests for the cluster's brokers and topics, and for the coordinators of groups and
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
        """Return the APIs that this broker serves.

        The answer has no features, which would enable unsupported protocols.
        """
        if call.version >= SOFTWARE_SINCE and not (
            _SOFTWARE.match(request.client_software_name)
            and _SOFTWARE.match(request.client_software_version)
        ):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        return ApiVersionsResponse(api_keys=_API_KEYS)

    def metadata(self, call: Call, request: MetadataRequest) -> MetadataResponse | None:
        """Return brokers and topics.

        A missing topic is created first if the settings and the request allow this.
        """
        if call.version < TOPIC_IDS_SINCE and any(
            topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or []
        ):
            return _refuse_ids(request)
        missing = self._missing_topics(call, request)
        if not missing:
            return self._once_leaders_are_known(call, request)
        refusals: dict[str, ErrorCode] = {}
        waiting = len(missing)

        def finished(name: str, code: ErrorCode) -> None:
            nonlocal waiting
            waiting -= 1
            if code is not ErrorCode.NONE:
                refusals[name] = code
            if not waiting:
                call.answer(self._answer(call, request, refusals))

        def not_written(name: str, _: ApiError) -> None:
            finished(name, ErrorCode.LEADER_NOT_AVAILABLE)

        for name in missing:
            self._metadata.submit(
                CreateOwnTopic(name),
                partial(finished, name),
                partial(not_written, name),
                call.session.peer_host,
            )
        return None

    def _once_leaders_are_known(
        self, call: Call, request: MetadataRequest
    ) -> MetadataResponse | None:
        """Return the answer, or None if it waits for the successor of a leader that was lost."""

        def leaders() -> Iterator[int]:
            image = self._metadata.image
            asked = [_find(image, one) for one in request.topics or []]
            for topic in image.topics.values() if _wants_all(call, request) else asked:
                if topic is not None:
                    yield from (partition.leader for partition in topic.partitions)

        def answer() -> None:
            call.answer(self._answer(call, request, {}))

        if self._lost_leaders.hold(leaders, answer):
            return None
        return self._answer(call, request, {})

    def _missing_topics(self, call: Call, request: MetadataRequest) -> list[str]:
        if not request.topics or not self._settings.config.auto_create_topics_enable:
            return []
        if not request.allow_auto_topic_creation:
            return []
        image = self._metadata.image
        names = {
            topic.name
            for topic in request.topics
            if topic.name is not None
            and topic.topic_id == ZERO_UUID
            and topic.name not in image.topics
        }
        return sorted(names)[: self._settings.config.max_auto_created_topics]

    def _answer(
        self, call: Call, request: MetadataRequest, refusals: dict[str, ErrorCode]
    ) -> MetadataResponse:
        image = self._metadata.image
        operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else None
        if _wants_all(call, request):
            topics = [_describe_topic(topic, image, call) for topic in image.topics.values()]
        else:
            # Answer each topic once, because a small request must not get a huge answer.
            asked = {(one.name, one.topic_id): one for one in request.topics or []}
            topics = [_asked_topic(image, call, one, refusals) for one in asked.values()]
        response = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in brokers_on(image, call.listener_name)
            ],
            cluster_id=self._settings.config.cluster_id,
            controller_id=self._controller_id(call),
            topics=topics,
        )
        if operations is not None:
            for topic in topics:
                topic.topic_authorized_operations = operations
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response

    def find_coordinator(
        self, call: Call, request: FindCoordinatorRequest
    ) -> FindCoordinatorResponse | None:
        """Return the coordinator of a group or transactional id.

        A missing internal topic is created first.
        """
        keys = request.coordinator_keys if call.version >= BATCHED_SINCE else [request.key]
        shards: GroupCoordinator | TxnCoordinator
        if request.key_type == GROUP_KEY:
            topic, shards = OFFSETS_TOPIC, self._groups
        elif request.key_type == TRANSACTION_KEY:
            topic, shards = TRANSACTIONS_TOPIC, self._transactions
        else:
            reason = f"key type {request.key_type} is not known"
            refused = [_no_coordinator(key, ErrorCode.INVALID_REQUEST, reason) for key in keys]
            return _coordinators(call, refused)

        def coordinators() -> list[int]:
            return [shards.coordinator_id(key) for key in keys]

        def answer() -> None:
            call.answer(_coordinators(call, [self._coordinator(call, key, shards) for key in keys]))

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

    def _controller_id(self, call: Call) -> int:
        return controller_on(
            self._metadata.image,
            call.listener_name,
            self._metadata.quorum.leader_id,
            self._settings.config.node_id,
        )

    def describe_cluster(
        self, call: Call, request: DescribeClusterRequest
    ) -> DescribeClusterResponse:
        """Return the brokers with their addresses on the client's listener."""
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
            controller_id=self._controller_id(call),
            brokers=[
                DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
                for node_id, host, port, rack in brokers_on(
                    self._metadata.image, call.listener_name
                )
            ],
        )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = CLUSTER_OPERATIONS
        return response


def _refuse_ids(request: MetadataRequest) -> MetadataResponse:
    """Refuse topic ids: versions 10 and 11 have the field, but no request may use it."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST,
                name=topic.name or "",
                topic_id=topic.topic_id,
            )
            for topic in request.topics or []
        ]
    )


def _wants_all(call: Call, request: MetadataRequest) -> bool:
    """Return True if the request names no topics, so that all are described."""
    return request.topics is None or (call.version == 0 and not request.topics)


def _find(image: MetadataImage, asked: MetadataRequestTopic) -> TopicImage | None:
    """Return a topic by id if the request has one, otherwise by name; None if it is unknown."""
    if asked.topic_id != ZERO_UUID:
        return image.topic_by_id(asked.topic_id)
    return image.topics.get(asked.name or "")


def _asked_topic(
    image: MetadataImage,
    call: Call,
    asked: MetadataRequestTopic,
    refusals: dict[str, ErrorCode],
) -> MetadataResponseTopic:
    """Return one topic by name, or by id from version 12 on."""
    found = _find(image, asked)
    if found is not None:
        return _describe_topic(found, image, call)
    if asked.topic_id != ZERO_UUID:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=asked.name, topic_id=asked.topic_id
        )
    code = refusals.get(asked.name or "", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        check_topic_name(asked.name)
    except ApiError as error:
        code = error.code
    if code is ErrorCode.POLICY_VIOLATION:
        # The answer of this version does not have this error code, and no such topic exists.
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return MetadataResponseTopic(error_code=code, name=asked.name or "")


def _describe_topic(topic: TopicImage, image: MetadataImage, call: Call) -> MetadataResponseTopic:
    described = MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
    )
    for index, partition in enumerate(topic.partitions):
        code = leader_refusal(image, call.listener_name, partition.leader)
        if code is ErrorCode.LISTENER_NOT_FOUND and call.version < LISTENERS_SINCE:
            code = ErrorCode.LEADER_NOT_AVAILABLE
        described.partitions.append(
            MetadataResponsePartition(
                error_code=code,
                partition_index=index,
                leader_id=NO_NODE if code else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.in_sync_replicas),
                offline_replicas=offline_replicas(image, call.listener_name, partition),
            )
        )
    return described


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
