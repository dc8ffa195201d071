"""The answer to a follower's fetch, put together partition by partition.

Floor: fetch. Pure. What an answer says of a log besides its records, it says as of now.
"""

from __future__ import annotations

from broker.replicas.replica import Replica
from broker.replication.follower_session import FetchVerdict
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from protocol.types import NO_OFFSET, Uuid


class Answer:
    """An answer in the making."""

    __slots__ = ("_topics", "response", "size_bytes")

    def __init__(self, session_id: int) -> None:
        self.response = FetchResponse(session_id=session_id)
        self.size_bytes = 0
        """Of records."""
        self._topics: dict[Uuid, FetchableTopicResponse] = {}

    @property
    def is_empty(self) -> bool:
        """Whether it tells nothing."""
        return not self._topics

    def add(self, topic_id: Uuid, data: PartitionData) -> None:
        """It tells this of one partition too."""
        topic = self._topics.get(topic_id)
        if topic is None:
            topic = self._topics[topic_id] = FetchableTopicResponse(topic_id=topic_id)
            self.response.responses.append(topic)
        topic.partitions.append(data)
        self.size_bytes += len(data.records or b"")


def partition_data(index: int, replica: Replica | None, code: ErrorCode) -> PartitionData:
    """One partition's part without records; where its log begins is told with an error too."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=NO_OFFSET if replica is None else replica.state.high_watermark,
        log_start_offset=NO_OFFSET if replica is None else replica.log.log_start_offset,
        records=b"",
    )


def refused_data(replica: Replica, heard: FetchVerdict) -> PartitionData:
    """The part of a partition that refuses, and says where the follower has to cut."""
    data = partition_data(replica.index, replica, heard.code)
    if heard.diverging is not None:
        data.diverging_epoch = EpochEndOffset(
            epoch=heard.diverging.epoch, end_offset=heard.diverging.end_offset
        )
    return data
