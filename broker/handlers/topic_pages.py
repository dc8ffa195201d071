"""DescribeTopicPartitions: the partitions of topics, page by page (KIP-966)."""

from __future__ import annotations

from broker.cluster.metadata import Metadata
from broker.handlers.cluster import TOPIC_OPERATIONS
from broker.handlers.reachable import leader_refusal, offline_replicas
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.names import check_topic_name
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.metadata import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from protocol.types import NO_NODE

PARTITION_COUNT_MAX = 2_000
"""The most partitions of one page, whatever the client asks for."""


class TopicPageHandlers:
    """Topics described page by page."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def describe_topic_partitions(
        self, call: Call, request: DescribeTopicPartitionsRequest
    ) -> DescribeTopicPartitionsResponse:
        """Return topics ordered by name, from the cursor on; all topics if none is named."""
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
            first = cursor.partition_index if cursor and name == cursor.topic_name else 0
            topic = image.topics.get(name)
            if topic is None:
                response.topics.append(_missing(name))
                continue
            if not left:
                response.next_cursor = Cursor(topic_name=name, partition_index=first)
                break
            page = _page(topic, image, call.listener_name, first, left)
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
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _page(
    topic: TopicImage, image: MetadataImage, listener: str, first: int, count_max: int
) -> DescribeTopicPartitionsResponseTopic:
    """Return a part of one topic's partitions.

    The lists of eligible leaders stay empty, because every eligible leader is in sync here. Null
    would break Java clients.
    """
    page = DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
    for index, partition in list(enumerate(topic.partitions))[first : first + count_max]:
        code = leader_refusal(image, listener, partition.leader)
        page.partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=code,
                partition_index=index,
                leader_id=NO_NODE if code else partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.in_sync_replicas),
                offline_replicas=offline_replicas(image, listener, partition),
            )
        )
    return page
