"""One attempt to read all partitions of a fetch, and the answer made from it.

Answers contain regions of files instead of bytes, and `real/output` sends these regions. A parked
fetch is attempted several times. So an attempt changes nothing outside before `finish` is called to
send its answer.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from broker.config import BROKER_LISTENER, InForce
from broker.metrics.metrics import Metrics
from broker.replicas.replica import READ_COMMITTED, Replica
from broker.replicas.replicas import Replicas
from broker.replication.fetch_session import (
    FULL_EPOCH,
    CachedPartition,
    FetchSession,
    FetchSessions,
)
from broker.sessions.call import Call
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.log import Log
from broker.storage.outcomes import ReadResult
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.security.acl import AclOperation, AclResource
from protocol.wire.records import iterate_batches

logger = logging.getLogger(__name__)

ZSTD = "zstd"
STORAGE_ERROR_SINCE = 6
ZSTD_SINCE = 10
"""The first Fetch version whose clients support zstd (KIP-110)."""

LISTED_BEYOND_MAX = 100
"""The number of aborted transactions above which an answer lists only those that begin before its
last batch ends."""


@dataclass(frozen=True, slots=True)
class ReadingPorts:
    """The objects that a `FetchReading` uses."""

    replicas: Replicas
    metrics: Metrics
    settings: InForce
    sessions: FetchSessions


class FetchReading:
    """One attempt to read all partitions of a fetch."""

    __slots__ = ("_bytes_max", "_call", "_found", "_has_error", "_is_behind", "_left_bytes",
                 "_may_read", "_ports", "_readable_bytes", "_session", "_size_bytes",
                 "partitions", "request", "response")  # fmt: skip

    def __init__(
        self, ports: ReadingPorts, call: Call, request: FetchRequest, session: FetchSession | None
    ) -> None:
        """Read the partitions. If `session` is None, read and answer every partition of the
        request."""
        self.request = request
        self.response = FetchResponse()
        self.partitions: list[Replica] = []
        self._ports = ports
        self._call = call
        self._session = session
        self._size_bytes = 0
        self._readable_bytes = 0
        self._is_behind = False
        self._found: list[tuple[Replica, int]] = []
        self._bytes_max = min(request.max_bytes, ports.settings.config.fetch_max_bytes)
        if (charge := call.slot.charge) is not None:
            quota_bytes = charge.fetch_bytes_max(call.session, call.client_id)
            self._bytes_max = int(min(self._bytes_max, quota_bytes))
        self._left_bytes = self._bytes_max
        self._has_error = False
        self._may_read = ports.replicas.place.may_read
        if session is None:
            self._read_all()
        else:
            self._read_changed(session)

    def _read_all(self) -> None:
        for topic in self.request.topics:
            answer = FetchableTopicResponse(topic=topic.topic)
            for asked in topic.partitions:
                answer.partitions.append(self._read(topic.topic, asked))
            self.response.responses.append(answer)

    def _read_changed(self, session: FetchSession) -> None:
        """Read the partitions of the session, and answer only those that have changed since the
        last answer."""
        topics: dict[str, FetchableTopicResponse] = {}
        for cached in session.partitions.values():
            if self._is_unchanged(cached):
                continue
            answer = self._read(cached.topic, cached.asked)
            if cached.is_news(answer):
                topic = topics.get(cached.topic)
                if topic is None:
                    topic = topics[cached.topic] = FetchableTopicResponse(topic=cached.topic)
                    self.response.responses.append(topic)
                topic.partitions.append(answer)

    def _is_unchanged(self, cached: CachedPartition) -> bool:
        """Return True if the partition is unchanged since the last answer, so that it need not be
        read."""
        asked = cached.asked
        partition = self._ports.replicas.get(cached.topic, asked.partition)
        if partition is None or self.request.replica_id >= 0 or asked.last_fetched_epoch >= 0:
            return False
        if not self._call.may(AclOperation.READ, AclResource.TOPIC, cached.topic):
            return False
        if not self._may_read:
            # Read the partition, because the answer must contain the error.
            return False
        log = partition.log
        is_unchanged = (
            log.high_watermark == cached.high_watermark
            and log.log_start_offset == cached.log_start_offset
            and asked.current_leader_epoch in (-1, partition.leader_epoch)
            and partition.readable_end(self.request.isolation_level) <= asked.fetch_offset
            and asked.fetch_offset <= log.log_end_offset
        )
        if is_unchanged:
            self.partitions.append(partition)
        return is_unchanged

    def finish(self, now_ms: int) -> FetchResponse:
        """Return the answer to send. Count its bytes, and record in the session what the client
        knows now."""
        call, session = self._call, self._session
        charge = call.slot.charge
        if charge and charge.holds_back(call.session, call.client_id, self._size_bytes):
            # The session keeps what the client knows, so the next answer has the same data.
            return FetchResponse(session_id=0 if session is None else session.session_id)
        self._ports.metrics.bytes_out += self._size_bytes
        for partition, size_bytes in self._found:
            partition.bytes_out += size_bytes
        answers = [
            (topic.topic, part) for topic in self.response.responses for part in topic.partitions
        ]
        if session is not None:
            self.response.session_id = session.session_id
            for name, part in answers:
                session.told(name, part)
        elif self.request.session_epoch == FULL_EPOCH:
            self.response.session_id = self._ports.sessions.create(
                self.request.topics, answers, now_ms, self._call.session.rights.user
            )
        return self.response

    def is_enough(self) -> bool:
        """Return True if the answer can be sent before the fetch's maximum wait has passed.

        An answer has whole batches of one segment per partition, so it can be smaller than
        `min_bytes` although there is enough data. As in Kafka, this method adds up the readable
        bytes of all partitions, each at most up to its requested size. A client that has not read a
        closed segment to its end does not wait.
        """
        wanted_bytes = min(self.request.min_bytes, self._bytes_max)
        return (
            max(self._size_bytes, self._readable_bytes) >= wanted_bytes
            or self._is_behind
            or self._has_error
            or not self.partitions
        )

    def _read(self, topic: str, asked: FetchPartition) -> PartitionData:
        answer = PartitionData(
            partition_index=asked.partition, high_watermark=-1, records=b"",
            aborted_transactions=[] if self.request.isolation_level == READ_COMMITTED else None,
        )  # fmt: skip
        try:
            if self.request.replica_id >= 0 and self._call.listener_name != BROKER_LISTENER:
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            if not self._call.may(AclOperation.READ, AclResource.TOPIC, topic):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            partition = self._ports.replicas.find(
                topic, asked.partition, asked.current_leader_epoch
            )
            if not self._may_read:
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if self._call.version < ZSTD_SINCE and partition.log.config.compression_type == ZSTD:
                raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            self._read_log(partition, asked, answer)
            self.partitions.append(partition)
        except ApiError as error:
            self._has_error = True
            answer.error_code = self._code(error.code)
        except (DiskError, CorruptionError, WireError) as error:
            self._ports.metrics.warnings.warn(logger, "fetch failed", topic=topic, error=error)
            self._ports.replicas.read_failed(partition, error)
            self._has_error = True
            answer.error_code = self._code(ErrorCode.KAFKA_STORAGE_ERROR)
        return answer

    def _code(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._call.version < STORAGE_ERROR_SINCE:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return code

    def _read_log(self, partition: Replica, asked: FetchPartition, answer: PartitionData) -> None:
        log = partition.log
        if asked.last_fetched_epoch >= 0 and self._diverges(partition, asked, answer):
            self._has_error = True
        else:
            max_bytes = min(asked.partition_max_bytes, self._left_bytes)
            found = log.read(
                asked.fetch_offset,
                max(max_bytes, 0),
                partition.readable_end(self.request.isolation_level),
                min_one_batch=self._size_bytes == 0,
            )
            self._readable_bytes += min(found.readable_bytes, asked.partition_max_bytes)
            self._is_behind |= found.ends_with_segment
            if found.region is not None:
                answer.records = found.region
                self._size_bytes += found.size_bytes
                self._found.append((partition, found.size_bytes))
                self._left_bytes -= found.size_bytes
                if self.request.isolation_level == READ_COMMITTED:
                    answer.aborted_transactions = aborted_in(log, asked.fetch_offset, found)
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.log_start_offset

    def _diverges(self, partition: Replica, asked: FetchPartition, answer: PartitionData) -> bool:
        """Return True if the client's log diverges from this log before the fetch offset.

        The answer then gets the epoch and the end offset from which the client must continue.
        """
        epoch, end_offset = partition.end_offset_for_epoch(asked.last_fetched_epoch)
        if epoch < 0:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == asked.last_fetched_epoch and end_offset >= asked.fetch_offset:
            return False
        answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True


def aborted_in(log: Log, start_offset: int, read: ReadResult) -> list[AbortedTransaction]:
    """Return the aborted transactions in an answer, which a read-committed consumer must skip.

    The answer ends at the latest with its segment. Transactions that begin after its last batch do
    no harm. But a long list of them would be repeated in every answer from this segment.
    """
    end_offset = min(read.limit_offset, log.last_stable_offset)
    found = log.aborted_transactions(start_offset, end_offset)
    if len(found) > LISTED_BEYOND_MAX and read.region is not None:
        for header, _ in iterate_batches(read.region.read()):
            end_offset = header.last_offset + 1
        found = [one for one in found if one.first_offset < end_offset]
    return [
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in found
    ]
