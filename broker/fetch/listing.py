"""Answers ListOffsets: the ends of logs at once, timestamps after a search in a queue.

The search for a timestamp decompresses a batch. A small batch can be large when it is decompressed,
and a request can name thousands of partitions. So the searches of all connections are in one queue.
Each iteration of the event loop works on the queue for `TURN_NS_MAX`, one partition per request in
rotation. All other requests are served in between. Put any work that must decompress batches into
this queue, and not into a handler.

A request with a replica id is answered like a request of a consumer, as in Kafka. A development
version of kafka-python sends such requests. Only Fetch distinguishes followers, because they read
uncommitted data.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.sessions.call import Call
from broker.storage.errors import CorruptionError, DiskError
from broker.world import Soon
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.security.acl import AclOperation, AclResource
from protocol.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    TopicPartition,
)

TURN_NS_MAX = 20_000_000
"""The time in nanoseconds after which no more search begins in one iteration of the event loop."""

MAX_TIMESTAMP_SINCE = 7
"""The first version with the special timestamp -3, the record with the largest timestamp. No
supported version has a special timestamp below -3."""

LEADER_EPOCH_SINCE = 4

NOT_AVAILABLE_SINCE = 5
"""The first version whose clients know OFFSET_NOT_AVAILABLE."""

_ENDS = (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP)


class Listing:
    """One ListOffsets request, and the partitions that must still be searched."""

    def __init__(self, replicas: Replicas, call: Call, request: ListOffsetsRequest) -> None:
        """Answer the partitions that need no search, and put the others into `_searches`."""
        self.call = call
        self.response = ListOffsetsResponse()
        self._replicas = replicas
        self._request = request
        self._searches: deque[tuple[str, ListOffsetsPartition, ListOffsetsPartitionResponse]] = (
            deque()
        )
        named = Counter(
            TopicPartition(topic.name, partition.partition_index)
            for topic in request.topics
            for partition in topic.partitions
        )
        for topic in request.topics:
            answer = ListOffsetsTopicResponse(name=topic.name)
            for asked in topic.partitions:
                one = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
                answer.partitions.append(one)
                if named[TopicPartition(topic.name, asked.partition_index)] > 1:
                    one.error_code = ErrorCode.INVALID_REQUEST
                elif asked.timestamp in _ENDS:
                    self._answer(topic.name, asked, one)
                else:
                    self._searches.append((topic.name, asked, one))
            self.response.topics.append(answer)

    @property
    def is_done(self) -> bool:
        """True if the answer is complete or the session is closed."""
        return not self._searches or self.call.session.is_closed

    def search_one(self) -> None:
        """Search in the next partition. Send the answer after the last one."""
        self._answer(*self._searches.popleft())
        if not self._searches:
            self.call.answer(self.response)

    def _answer(
        self, topic: str, asked: ListOffsetsPartition, answer: ListOffsetsPartitionResponse
    ) -> None:
        try:
            self._list_one(topic, asked, answer)
        except ApiError as error:
            answer.error_code = error.code
        except (DiskError, CorruptionError, WireError) as error:
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            if (partition := self._replicas.get(topic, asked.partition_index)) is not None:
                self._replicas.read_failed(partition, error)

    def _list_one(
        self, topic: str, asked: ListOffsetsPartition, answer: ListOffsetsPartitionResponse
    ) -> None:
        version = self.call.version
        if not self.call.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = self._replicas.find_readable(
            topic, asked.partition_index, asked.current_leader_epoch
        )
        log = partition.log
        limit_offset = partition.readable_end(self._request.isolation_level)
        timestamp = asked.timestamp
        leader_epoch = NO_LEADER_EPOCH
        if timestamp == LATEST_TIMESTAMP:
            self._refuse_unknown_end(partition)
            answer.offset = limit_offset
            leader_epoch = partition.epoch_at(limit_offset - 1)
        elif timestamp == EARLIEST_TIMESTAMP:
            answer.offset = log.log_start_offset
            leader_epoch = partition.epoch_at(log.log_start_offset)
        elif timestamp >= 0 or (timestamp == MAX_TIMESTAMP and version >= MAX_TIMESTAMP_SINCE):
            found = (
                log.max_timestamp_record(limit_offset)
                if timestamp == MAX_TIMESTAMP
                else log.offset_for_timestamp(timestamp, limit_offset)
            )
            if found is None:
                self._refuse_unknown_end(partition)
                answer.offset, answer.timestamp = NO_OFFSET, NO_TIMESTAMP
                return
            answer.offset, answer.timestamp = found.offset, found.timestamp_ms
            leader_epoch = found.leader_epoch
        else:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"found timestamp {timestamp}, which this version of ListOffsets does not support",
            )
        if version >= LEADER_EPOCH_SINCE:
            answer.leader_epoch = leader_epoch

    def _refuse_unknown_end(self, partition: Replica) -> None:
        """Raise ApiError while the previous leader can have committed records that this leader does
        not yet know to be committed, because the returned end could then be lower than an earlier
        one (KIP-207)."""
        if partition.state.is_high_watermark_floor:
            is_known = self.call.version >= NOT_AVAILABLE_SINCE
            raise ApiError(
                ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE
            )


class Listings:
    """The queue of all ListOffsets requests that need a search."""

    def __init__(self, replicas: Replicas, soon: Soon, turn_ns: Callable[[], int]) -> None:
        self._replicas = replicas
        self._soon = soon
        self._turn_ns = turn_ns
        self._queue: deque[Listing] = deque()

    def start(self, call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse | None:
        """Return the answer; None if a search is needed, which sends the answer later."""
        listing = Listing(self._replicas, call, request)
        if listing.is_done:
            return listing.response
        self._queue.append(listing)
        if len(self._queue) == 1:
            self._soon(self._turn)
        return None

    def _turn(self) -> None:
        """Search for `TURN_NS_MAX`. The next iteration of the event loop continues."""
        queue = self._queue
        end_ns = self._turn_ns() + TURN_NS_MAX
        while True:
            listing = queue[0]
            if not listing.is_done:
                listing.call.session.attempt(listing.search_one)
            queue.popleft()
            if not listing.is_done:
                queue.append(listing)
            if not queue:
                return
            if self._turn_ns() > end_ns:
                self._soon(self._turn)
                return
