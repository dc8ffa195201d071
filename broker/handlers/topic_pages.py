"""Handles DescribeTopicPartitions, which returns the partitions of topics page by page
(KIP-966)."""

from __future__ import annotations

from broker.cluster.metadata import Metadata
from broker.handlers.reachable import leader_refusal, offline_replicas
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.names import check_topic_name
from broker.security.rights import operation_bits
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.security.acl import AclResource
from protocol.types import NO_NODE

PARTITION_COUNT_MAX = 2_000
"""The largest number of partitions on one page. A larger limit in the request is ignored."""


class TopicPageHandlers:
    """Handles DescribeTopicPartitions."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def describe_topic_partitions(
        self, call: Call, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        """Return topics ordered by name, from the cursor on.

        If the request names no topic, all topics are returned that the client may see.
        """
        image = self._metadata.image
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            return DescribeTopicPartitionsResponse(
                topics=[
                    DescribeTopicPartitionsResponseTopic(
                        error_code=ErrorCode.INVALID_REQUEST, name=topic.name
                    )
                    for topic in request.topics
                ]
            )
        names = {topic.name for topic in request.topics} or set(image.topics)
        left = min(max(request.response_partition_limit, 1), PARTITION_COUNT_MAX)
        response = DescribeTopicPartitionsResponse()
        for name in sorted(names):
            if cursor is not None and name < cursor.topic_name:
                continue
            if not call.may_describe_topic(name, is_logged=bool(request.topics)):
                if request.topics:
                    response.topics.append(_refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                continue
            first = cursor.partition_index if cursor and name == cursor.topic_name else 0
            topic = image.topics.get(name)
            if topic is None:
                response.topics.append(_missing(name))
                continue
            if not left:
                response.next_cursor = Cursor(topic_name=name, partition_index=first)
                break
            page = _page(topic, image, call, first, left)
            response.topics.append(page)
            left -= len(page.partitions)
            reached = first + len(page.partitions)
            if reached < len(topic.partitions):
                response.next_cursor = Cursor(topic_name=name, partition_index=reached)
                break
        return response


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except ApiError as error:
        code = error.code
    return _refused(name, code)


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _page(
    topic: TopicImage, image: MetadataImage, call: Call, first: int, count_max: int
) -> DescribeTopicPartitionsResponseTopic:
    """Return the part of one topic's partitions that is on the page.

    The lists of eligible leaders stay empty, because every eligible leader is in sync here. Null
    would cause an error in Java clients.
    """
    page = DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=operation_bits(
            call.session.rights, AclResource.TOPIC, topic.name
        ),
    )
    for index, partition in list(enumerate(topic.partitions))[first : first + count_max]:
        code = leader_refusal(image, call.listener_name, partition.leader)
        page.partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=code,
                partition_index=index,
                leader_id=NO_NODE if code else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.in_sync_replicas),
                offline_replicas=offline_replicas(image, call.listener_name, partition),
            )
        )
    return page
