"""Handles Metadata, which returns the brokers and the topics that a client may see."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from broker.cluster.metadata import Metadata
from broker.config import InForce
from broker.controller.outcome import CreateOwnTopic
from broker.controller.permits import may_create
from broker.handlers.cluster import cluster_operations, controller_for
from broker.handlers.lost_leaders import LostLeaders
from broker.handlers.mutations import MutationQuota
from broker.handlers.reachable import brokers_on, leader_refusal, offline_replicas
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.names import check_topic_name
from broker.security.rights import operation_bits
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.security.acl import AclResource
from protocol.types import NO_NODE, ZERO_UUID

TOPIC_IDS_SINCE = 12
LISTENERS_SINCE = 6


class MetadataHandlers:
    """Handles Metadata."""

    def __init__(self, metadata: Metadata, settings: InForce, lost_leaders: LostLeaders) -> None:
        self._metadata = metadata
        self._settings = settings
        self._lost_leaders = lost_leaders

    def metadata(self, call: Call, request: MetadataRequest) -> MetadataResponse | None:
        """Return brokers and topics.

        A missing topic is created first if the settings, the request and the client's quota allow
        this.
        """
        if call.version < TOPIC_IDS_SINCE and any(
            topic.name is None or topic.topic_id != ZERO_UUID for topic in request.topics or []
        ):
            return _refuse_ids(request)
        refusals: dict[str, ErrorCode] = {}
        missing = []
        quota = MutationQuota(call, strict_since=0)
        for name in self._missing_topics(call, request):
            if not may_create(call, name):
                refusals[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif quota.allows(name, self._settings.config.num_partitions):
                missing.append(name)
        if not missing:
            return self._once_leaders_are_known(call, request, refusals)
        waiting = len(missing)

        def finished(name: str, code: ErrorCode) -> None:
            nonlocal waiting
            waiting -= 1
            if code is not ErrorCode.NONE:
                refusals[name] = code
                quota.not_changed([name])
            if not waiting:
                call.answer(self._answer(call, request, refusals))

        def not_written(name: str, _: ApiError) -> None:
            finished(name, ErrorCode.LEADER_NOT_AVAILABLE)

        for name in missing:
            self._metadata.submit(
                CreateOwnTopic(name),
                partial(finished, name),
                partial(not_written, name),
                *call.asker,
            )
        return None

    def _once_leaders_are_known(
        self, call: Call, request: MetadataRequest, refusals: dict[str, ErrorCode]
    ) -> MetadataResponse | None:
        """Return the answer; None if it waits for the successor of a leader that was lost."""

        def leaders() -> Iterator[int]:
            image = self._metadata.image
            asked = [_find(image, one) for one in request.topics or []]
            for topic in image.topics.values() if _wants_all(call, request) else asked:
                # A wait would tell that a topic exists.
                if topic is not None and call.may_describe_topic(topic.name, is_logged=False):
                    yield from (partition.leader for partition in topic.partitions)

        def answer() -> None:
            call.answer(self._answer(call, request, refusals))

        if self._lost_leaders.hold(leaders, answer):
            return None
        return self._answer(call, request, refusals)

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
            and call.may_describe_topic(topic.name, is_logged=False)
        }
        return sorted(names)[: self._settings.config.max_auto_created_topics]

    def _answer(
        self, call: Call, request: MetadataRequest, refusals: dict[str, ErrorCode]
    ) -> MetadataResponse:
        image = self._metadata.image
        if _wants_all(call, request):
            topics = [
                _describe_topic(topic, image, call)
                for topic in image.topics.values()
                if call.may_describe_topic(topic.name, is_logged=False)
            ]
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
            controller_id=controller_for(call, self._metadata, self._settings),
            topics=topics,
        )
        if request.include_topic_authorized_operations:
            for topic in topics:
                if topic.name and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    topic.topic_authorized_operations = operation_bits(
                        call.session.rights, AclResource.TOPIC, topic.name
                    )
        if request.include_cluster_authorized_operations:
            response.cluster_authorized_operations = cluster_operations(call)
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
    """Return one topic by name, or by id from version 12 on.

    A name that the client may not see gets the same answer whether the topic exists or not. The
    answer to a request by id never contains the name of a topic that the client may not see.
    """
    found = _find(image, asked)
    name = asked.name if found is None else found.name
    if name is not None and not call.may_describe_topic(name):
        is_by_id = asked.topic_id != ZERO_UUID
        return MetadataResponseTopic(
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            name=asked.name,
            topic_id=asked.topic_id if is_by_id else ZERO_UUID,
        )
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
