"""The answer to a follower's fetch, built partition by partition.

Room: fetch. Pure. All fields of an answer except its records have the values of the moment at which
the answer is built.
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
    """An answer that is being built."""

    __slots__ = ("_topics", "response", "size_bytes")

    def __init__(self, session_id: int) -> None:
        self.response = FetchResponse(session_id=session_id)
        self.size_bytes = 0
        """Size of the records."""
        self._topics: dict[Uuid, FetchableTopicResponse] = {}

    @property
    def is_empty(self) -> bool:
        """True if no partition has been added."""
        return not self._topics

    def add(self, topic_id: Uuid, data: PartitionData) -> None:
        """Add the answer of one partition."""
        topic = self._topics.get(topic_id)
        if topic is None:
            topic = self._topics[topic_id] = FetchableTopicResponse(topic_id=topic_id)
            self.response.responses.append(topic)
        topic.partitions.append(data)
        self.size_bytes += len(data.records or b"")


def partition_data(index: int, replica: Replica | None, code: ErrorCode) -> PartitionData:
    """Return one partition's answer without records. Errors contain the log start offset too."""
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=NO_OFFSET if replica is None else replica.state.high_watermark,
        log_start_offset=NO_OFFSET if replica is None else replica.log.log_start_offset,
        records=b"",
    )


def refused_data(replica: Replica, heard: FetchVerdict) -> PartitionData:
    """Return the error for one partition, with the point to which the follower must truncate."""
    data = partition_data(replica.index, replica, heard.code)
    if heard.diverging is not None:
        data.diverging_epoch = EpochEndOffset(
            epoch=heard.diverging.epoch, end_offset=heard.diverging.end_offset
        )
    return data
