"""Fetch: answered at once when there is enough, parked until there is, or until its time is up.

Floor: server. Answers hold regions of files, never bytes; `output` sends them. There are no fetch
sessions: every answer names session 0, which tells a client to ask in full each time. A parked
fetch keeps everything behind it on its connection waiting; so when another kind of request comes
in behind it, it is completed early, but not before it has waited a little, or an idle consumer
that interleaves requests would fetch in a circle.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.purgatory import Parked, Purgatory
from broker.server.connection import Call
from broker.server.replica_manager import READ_COMMITTED, READ_UNCOMMITTED, Partition
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.log import Log
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from broker.server.services import Services

logger = logging.getLogger(__name__)

EARLY_AFTER_MS = 5
"""The least time a fetch stays parked before another request may end its wait."""

ISOLATION_LEVELS = (READ_UNCOMMITTED, READ_COMMITTED)

Awaited = tuple[Partition, int]
"""A partition read at one isolation level: its readable end is what a parked fetch waits for."""

END_OF_TIME_MS = 2**63
BROKER_LISTENER = "BROKER"
STORAGE_ERROR_SINCE = 6


class ParkedFetch:
    """A fetch that waits for data."""

    __slots__ = (
        "call",
        "deadline_ms",
        "entry",
        "is_hastened",
        "parked_ms",
        "request",
        "thresholds",
    )

    def __init__(self, call: Call, request: FetchRequest, parked_ms: int) -> None:
        self.call = call
        self.request = request
        self.parked_ms = parked_ms
        self.deadline_ms = parked_ms + request.max_wait_ms
        self.is_hastened = False
        self.thresholds: list[tuple[Awaited, int]] = []
        self.entry: Parked[Awaited, ParkedFetch] | None = None


class Fetches:
    """All Fetch requests under way."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._parked: Purgatory[Awaited, ParkedFetch] = Purgatory()

    def start(self, call: Call, request: FetchRequest) -> FetchResponse | None:
        """The answer, or None when the fetch has been parked."""
        if request.session_epoch > 0:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        reading = Reading(self._services, call, request)
        if request.max_wait_ms <= 0 or reading.is_enough():
            reading.count()
            return reading.response
        now_ms = self._services.clock.monotonic_ms()
        self._park(ParkedFetch(call, request, now_ms), reading)
        return None

    def _park(self, parked: ParkedFetch, reading: Reading) -> None:
        parked.call.connection.parked_fetch = parked
        is_committed = parked.request.isolation_level == READ_COMMITTED
        isolation_level = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        # Any record beyond what is readable now is worth another look.
        parked.thresholds = [
            ((partition, isolation_level), partition.readable_end(isolation_level) + 1)
            for partition in reading.partitions
        ]
        self._enter(parked)

    def _enter(self, parked: ParkedFetch) -> None:
        parked.entry = self._parked.park(
            parked, parked.thresholds, parked.deadline_ms, wants_all=False
        )
        self._services.timer.wake_by(parked.deadline_ms)

    def advanced(self, partition: Partition) -> None:
        """The partition's high watermark has moved: look again at the fetches that wait for it."""
        for isolation_level in ISOLATION_LEVELS:
            end_offset = partition.readable_end(isolation_level)
            for parked in self._parked.release((partition, isolation_level), end_offset):
                reading = Reading(self._services, parked.call, parked.request)
                if reading.is_enough():
                    self._complete(parked, reading)
                else:
                    self._park(parked, reading)

    def gone(self, partition: Partition) -> None:
        """The partition is not served here any more: its fetchers learn so."""
        for isolation_level in ISOLATION_LEVELS:
            for parked in self._parked.release_all((partition, isolation_level)):
                self._complete(parked, Reading(self._services, parked.call, parked.request))

    def expire(self, now_ms: int) -> None:
        """Answer the fetches whose time is up with what there is."""
        for parked in self._parked.expire(now_ms):
            if parked.is_hastened:
                self._services.metrics.fetch_completed_early()
            self._complete(parked, Reading(self._services, parked.call, parked.request))

    @property
    def parked_count(self) -> int:
        """Requests that wait for data."""
        return len(self._parked)

    @property
    def next_deadline_ms(self) -> int | None:
        return self._parked.next_deadline_ms

    def hasten(self, parked: ParkedFetch) -> None:
        """Another request waits behind this fetch: end its wait soon."""
        if parked.is_hastened or parked.call.listener_name == BROKER_LISTENER:
            return
        now_ms = self._services.clock.monotonic_ms()
        deadline_ms = max(now_ms, parked.parked_ms + EARLY_AFTER_MS)
        if deadline_ms < parked.deadline_ms:
            parked.is_hastened = True
            parked.deadline_ms = deadline_ms
            self.forget(parked)
            self._enter(parked)

    def forget(self, parked: ParkedFetch) -> None:
        """Its connection is gone."""
        if parked.entry is not None:
            self._parked.remove(parked.entry)

    def complete_all(self) -> None:
        """The broker stops: answer every fetch with what there is."""
        for parked in self._parked.expire(END_OF_TIME_MS):
            self._complete(parked, Reading(self._services, parked.call, parked.request))

    def _complete(self, parked: ParkedFetch, reading: Reading) -> None:
        parked.call.connection.parked_fetch = None
        reading.count()
        parked.call.answer(reading.response)


class Reading:
    """One look at everything a fetch asks for."""

    __slots__ = ("_call", "_found", "_has_error", "_left_bytes", "_services", "_size_bytes",
                 "partitions", "request", "response")  # fmt: skip

    def __init__(self, services: Services, call: Call, request: FetchRequest) -> None:
        self.request = request
        self.response = FetchResponse()
        self.partitions: list[Partition] = []
        self._services = services
        self._call = call
        self._size_bytes = 0
        self._found: list[tuple[Partition, int]] = []
        self._left_bytes = min(request.max_bytes, services.config.fetch_max_bytes)
        self._has_error = False
        for topic in request.topics:
            answer = FetchableTopicResponse(topic=topic.topic)
            for asked in topic.partitions:
                answer.partitions.append(self._read(topic.topic, asked))
            self.response.responses.append(answer)

    def count(self) -> None:
        """The answer leaves: count what it carries."""
        self._services.metrics.fetched(self._size_bytes)
        for partition, size_bytes in self._found:
            partition.bytes_out += size_bytes

    def is_enough(self) -> bool:
        """Whether the answer may leave before the fetch's time is up."""
        return self._size_bytes >= self.request.min_bytes or self._has_error or not self.partitions

    def _read(self, topic: str, asked: FetchPartition) -> PartitionData:
        answer = PartitionData(
            partition_index=asked.partition, high_watermark=-1, records=b"",
            aborted_transactions=[] if self.request.isolation_level == READ_COMMITTED else None,
        )  # fmt: skip
        try:
            if self.request.replica_id >= 0 and self._call.listener_name != BROKER_LISTENER:
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            partition = self._services.replicas.find(topic, asked.partition)
            partition.check_epoch(asked.current_leader_epoch)
            self._read_log(partition, asked, answer)
            self.partitions.append(partition)
        except ApiError as error:
            self._has_error = True
            answer.error_code = self._code(error.code)
        except (DiskError, CorruptionError) as error:
            logger.warning("fetch failed", extra=fields(topic=topic, error=error))
            self._has_error = True
            answer.error_code = self._code(ErrorCode.KAFKA_STORAGE_ERROR)
        return answer

    def _code(self, code: ErrorCode) -> ErrorCode:
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self._call.version < STORAGE_ERROR_SINCE:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return code

    def _read_log(self, partition: Partition, asked: FetchPartition, answer: PartitionData) -> None:
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
            if found.region is not None:
                answer.records = found.region
                self._size_bytes += found.size_bytes
                self._found.append((partition, found.size_bytes))
                self._left_bytes -= found.size_bytes
                if self.request.isolation_level == READ_COMMITTED:
                    answer.aborted_transactions = aborted_in(log, asked.fetch_offset)
        answer.high_watermark = log.high_watermark
        answer.last_stable_offset = log.last_stable_offset
        answer.log_start_offset = log.log_start_offset

    def _diverges(self, partition: Partition, asked: FetchPartition, answer: PartitionData) -> bool:
        """Whether what the client has read last is not what our log holds there."""
        epoch, end_offset = partition.log.end_offset_for_epoch(asked.last_fetched_epoch)
        if epoch < 0:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == asked.last_fetched_epoch and end_offset >= asked.fetch_offset:
            return False
        answer.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True


def aborted_in(log: Log, start_offset: int) -> list[AbortedTransaction]:
    """What a reader of committed data must skip in the batches from an offset on.

    One answer ends with its segment at the latest; transactions listed beyond its last batch do a
    client no harm.
    """
    end_offset = min(log.segments.at(start_offset).next_offset, log.last_stable_offset)
    return [
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in log.aborted_transactions(start_offset, end_offset)
    ]
