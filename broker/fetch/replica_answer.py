"""The answer to a follower's fetch, which is built partition by partition.

This module is pure. All fields of an answer except its records have their values at the moment at
which the answer is built.
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


class ReplicaFetchAnswer:
    """An answer to which partitions can be added."""

    __slots__ = ("_topics", "response", "size_bytes")

    def __init__(self, session_id: int) -> None:
        self.response = FetchResponse(session_id=session_id)
        self.size_bytes = 0
        """The size of the records in the answer."""
        self._topics: dict[Uuid, FetchableTopicResponse] = {}

    @property
    def is_empty(self) -> bool:
        """True if no partition has been added."""
        return not self._topics

    def add(self, topic_id: Uuid, data: PartitionData) -> None:
        """Add the answer for one partition."""
        topic = self._topics.get(topic_id)
        if topic is None:
            topic = self._topics[topic_id] = FetchableTopicResponse(topic_id=topic_id)
            self.response.responses.append(topic)
        topic.partitions.append(data)
        self.size_bytes += len(data.records or b"")


def partition_data(index: int, replica: Replica | None, code: ErrorCode) -> PartitionData:
    """Return the answer for one partition without records. An error has the log start offset
    too."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=NO_OFFSET if replica is None else replica.state.high_watermark,
        log_start_offset=NO_OFFSET if replica is None else replica.log.log_start_offset,
        records=b"",
    )


def refused_data(replica: Replica, heard: FetchVerdict) -> PartitionData:
    """Return the error for one partition, or the offset to which the follower must truncate its
    log."""
    data = partition_data(replica.index, replica, heard.code)
    if heard.diverging is not None:
        data.diverging_epoch = EpochEndOffset(
            epoch=heard.diverging.epoch, end_offset=heard.diverging.end_offset
        )
    return data
