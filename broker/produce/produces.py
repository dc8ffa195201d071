"""Produce: batches appended in order of arrival, written once per read, answered when durable.

Floor: produce. `append` judges and stages; `settle`, called at the end of every read, writes each
touched log once and then answers or parks. With acks=1 and acks=-1 alike the answer waits until the
high watermark has passed the batches; with `flush=interval` that is at once. Where records have to
be looked at, `opening` says when that goes on; what was appended before is written meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from broker.alarm import Alarm
from broker.config import InForce, LogConfig
from broker.metrics.metrics import Metrics
from broker.produce.opening import Openings
from broker.produce.parked import ParkedProduce
from broker.produce.short import Lane, QuickProduce
from broker.produce.verification import TRANSACTIONAL, Verifier, refuse_outsider
from broker.purgatory import Purgatory
from broker.replicas.refusals import WriteFailed
from broker.replicas.replica_manager import Partition, ReplicaManager
from broker.sessions.call import Call
from broker.storage.errors import DiskError, InvalidRecords, RecordsUnseen
from broker.storage.outcomes import Appended, Seen
from broker.storage.producer_state import Awaited, note_refused
from broker.storage.validation import CODEC_BITS, look_at_records
from broker.world import World
from protocol.errors import ApiError, BufferUnderflow, ErrorCode, UnsupportedMagic, WireError
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceResponse,
)
from protocol.wire.compression import Codec
from protocol.wire.records import BatchHeader, read_header

logger = logging.getLogger(__name__)

REQUIRED_ACKS = (-1, 0, 1)

ZSTD = int(Codec.ZSTD)
ZSTD_SINCE = 7
"""The first version of Produce whose clients know zstd (KIP-110)."""

SYNC_MS_MIN = 1_000
"""What a Produce gives the sync at least. A client's time-out is meant for followers, and Kafka,
which waits for none on one replica, takes 0 and -1; refused, the client would send it again."""

REFUSED_MAX = 10_000
"""Partitions whose refusals are remembered."""


class Produces:
    """All Produce requests under way."""

    def __init__(
        self,
        settings: InForce,
        world: World,
        alarm: Alarm,
        metrics: Metrics,
        replicas: ReplicaManager,
        verifier: Verifier,
        write_failed: WriteFailed,
    ) -> None:
        self._clock = world.clock
        self._alarm = alarm
        self._metrics = metrics
        self._replicas = replicas
        self._verifier = verifier
        self._write_failed = write_failed
        self._batch_records_max = settings.config.max_batch_records
        self._staged: list[ParkedProduce | QuickProduce] = []
        self._now_ms = 0
        """The time of the first short request of this read, which is that of the others."""
        self._dirty: dict[Partition, None] = {}
        self._refused_first: dict[tuple[str, int], Awaited] = {}
        """Of partitions that could not be made yet, what they have refused."""
        self._parked: Purgatory[Partition, ParkedProduce | QuickProduce] = Purgatory()
        self._openings: Openings[ParkedProduce] = Openings(world.soon, world.turn_ns, self.settle)

    def append(self, call: Call, request: ProduceRequest) -> None:
        """Stage the batches of one request; the answer follows by `settle`."""
        parked = ParkedProduce(call, request)
        self._now_ms = self._clock.now_ms()
        call.session.has_staged = True
        steps = self._append_all(parked, request)
        if next(steps, False):
            self._openings.start(parked, request, steps)

    def _append_all(self, parked: ParkedProduce, request: ProduceRequest) -> Iterator[bool]:
        """Judge and stage every batch; steps only where records have to be looked at."""
        for topic in request.topic_data:
            answer = TopicProduceResponse(name=topic.name)
            parked.response.responses.append(answer)
            for data in topic.partition_data:
                one = PartitionProduceResponse(index=data.index, base_offset=-1)
                answer.partition_responses.append(one)
                config = self._append_one(parked, topic.name, data, one)
                if config is not None:
                    yield from self._look_and_append(parked, topic.name, data, one, config)
        self._staged.append(parked)

    def _look_and_append(
        self,
        parked: ParkedProduce,
        topic: str,
        data: PartitionProduceData,
        answer: PartitionProduceResponse,
        config: LogConfig,
    ) -> Iterator[bool]:
        """The same for one batch whose records have to be looked at, step by step."""
        wanted: LogConfig | None = config
        while wanted is not None:
            config = wanted
            yield True
            try:
                # Not in a name of ours: the batch may lie elsewhere when this goes on.
                seen = yield from look_at_records(data.records, config, self._clock.now_ms())
            except ApiError as error:
                refuse(answer, error)
                return
            self._now_ms = self._clock.now_ms()
            # Once more if the topic's settings have changed meanwhile.
            wanted = self._append_one(parked, topic, data, answer, seen)

    def _append_one(
        self,
        parked: ParkedProduce,
        topic: str,
        data: PartitionProduceData,
        answer: PartitionProduceResponse,
        seen: Seen | None = None,
    ) -> LogConfig | None:
        """Stage one batch or refuse it; or say under which settings its records must be seen."""
        try:
            if parked.required_acks not in REQUIRED_ACKS:
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
            if parked.has_two_producers:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    "transactional batches of two producers in one request",
                )
            partition = self._replicas.find(topic, data.index)
            if self._refused_first:
                self._hand_over(partition)
            if partition.is_internal:
                raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
            log = partition.log
            if parked.required_acks == -1 and log.config.min_insync_replicas > 1:
                raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "the partition has one replica")
            batch = data.records
            if not batch:
                raise ApiError(ErrorCode.INVALID_RECORD, "no record batch")
            header = read_header(batch)
            if header.record_count > self._batch_records_max:
                raise ApiError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"{header.record_count} records; max.batch.records is "
                    f"{self._batch_records_max}",
                )
            if header.attributes & CODEC_BITS == ZSTD and parked.call.version < ZSTD_SINCE:
                raise ApiError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd in an old Produce")
            if header.attributes & TRANSACTIONAL:
                refuse_outsider(self._verifier, parked.transactional_id, header, partition)
            appended = log.append(batch, header, partition.leader_epoch, self._now_ms, seen)
        except RecordsUnseen:
            return log.config
        except (ApiError, WireError) as error:
            refuse(answer, error)
            if answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                self._note_refused((topic, data.index), data.records)
            return None
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.log_append_time_ms
        answer.log_start_offset = log.log_start_offset
        parked.appended.append((partition, answer, appended.last_offset + 1))
        if not appended.is_duplicate:
            self._dirty[partition] = None
            self._metrics.appended(len(batch))
            partition.bytes_in += len(batch)
        return None

    def _note_refused(self, place: tuple[str, int], batch: memoryview | None) -> None:
        """A partition that could not be made yet has refused a producer's batch: when it is there,
        nothing of that producer may be taken before this."""
        try:
            header = read_header(batch) if batch else None
        except WireError:
            return
        if header is None or header.producer_id < 0:
            return
        if place not in self._refused_first and len(self._refused_first) >= REFUSED_MAX:
            return
        first = self._refused_first.setdefault(place, {})
        note_refused(first, header.producer_id, header.producer_epoch, header.base_sequence)

    def _hand_over(self, partition: Partition) -> None:
        first = self._refused_first.pop((partition.topic, partition.index), {})
        for producer_id, (producer_epoch, sequence) in first.items():
            partition.log.producer_state.await_first(producer_id, producer_epoch, sequence)

    def topics_removed(self, names: set[str]) -> None:
        """What a topic's partitions have refused is no matter of its namesake's."""
        for place in [one for one in self._refused_first if one[0] in names]:
            del self._refused_first[place]

    def append_quick(
        self, lane: Lane, batch: memoryview, header: BatchHeader
    ) -> tuple[Partition, Appended] | None:
        """Stage one batch for the short way; None, or an error, before anything has changed."""
        partition = self._replicas.get(lane.topic, lane.index)
        if partition is None or partition.is_internal:
            return None
        if self._refused_first and (lane.topic, lane.index) in self._refused_first:
            return None
        if header.attributes & CODEC_BITS == ZSTD and lane.version < ZSTD_SINCE:
            return None
        log = partition.log
        if header.record_count > self._batch_records_max or (
            lane.required_acks == -1 and log.config.min_insync_replicas > 1
        ):
            return None
        if not self._staged:
            self._now_ms = self._clock.now_ms()
        appended = log.append(batch, header, partition.leader_epoch, self._now_ms)
        if not appended.is_duplicate:
            self._dirty[partition] = None
            size_bytes = len(batch)
            self._metrics.appended(size_bytes)
            partition.bytes_in += size_bytes
        return partition, appended

    def stage(self, produce: QuickProduce) -> None:
        """Answer it, or park it, when its batch is written."""
        self._staged.append(produce)

    def settle(self) -> None:
        """Write what has been staged, one write per log, and answer or park every request."""
        staged, self._staged = self._staged, []
        dirty, self._dirty = self._dirty, {}
        failed: dict[Partition, DiskError] = {}
        now_ms = self._clock.now_ms()
        for partition in dirty:
            try:
                partition.log.write_staged(now_ms)
            except DiskError as error:
                failed[partition] = error
                self._write_failed(partition.topic_partition, error, now_ms)
            else:
                self._replicas.written(partition)
        if failed:
            for parked in self._openings.parked:
                self._withdraw(parked, failed)
        for produce in staged:
            if failed:
                parked = produce.as_parked()
                self._withdraw(parked, failed)
                self._answer_or_park(parked)
            else:
                self._answer_or_park(produce)

    def _withdraw(self, parked: ParkedProduce, failed: dict[Partition, DiskError]) -> None:
        kept = []
        for entry in parked.appended:
            partition, answer, end_offset = entry
            error = failed.get(partition)
            # A request that takes turns may have written there before.
            if error is None or end_offset <= partition.log.log_end_offset:
                kept.append(entry)
                continue
            refuse(answer, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        parked.appended = kept

    def _answer_or_park(self, parked: ParkedProduce | QuickProduce) -> None:
        if parked.required_acks == 0:
            self._end_silently(parked.as_parked())
            return
        missing = parked.thresholds()
        if missing:
            now_ms = self._clock.monotonic_ms()
            self._park(parked, missing, now_ms + max(parked.timeout_ms, SYNC_MS_MIN))
        else:
            parked.complete()

    def _park(
        self, parked: ParkedProduce | QuickProduce, missing: dict[Partition, int], deadline_ms: int
    ) -> None:
        parked.deadline_ms = deadline_ms
        self._parked.park(parked, missing.items(), deadline_ms, wants_all=True)
        self._alarm.wake_by(deadline_ms)

    def _end_silently(self, parked: ParkedProduce) -> None:
        for topic in parked.response.responses:
            for answer in topic.partition_responses:
                if answer.error_code:
                    code = ErrorCode(answer.error_code).name
                    parked.call.hang_up(f"produce without acks refused: {topic.name}: {code}")
                    return
        parked.call.answer_nothing()

    def advanced(self, partition: Partition) -> None:
        """The partition's high watermark has moved: release what waited for that."""
        if not self._parked.is_awaiting:
            return
        for parked in self._parked.release(partition, partition.log.high_watermark):
            parked.complete()

    def gone(self, partition: Partition) -> None:
        """The partition is not served here any more; what a request wrote elsewhere goes on."""
        for one in self._parked.release_all(partition):
            deadline_ms = one.deadline_ms
            parked = one.as_parked()
            self._refuse(parked, {partition}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            missing = parked.thresholds()
            if missing:
                self._park(parked, missing, deadline_ms)
            else:
                parked.complete()
        for unfinished in self._openings.parked:
            self._refuse(unfinished, {partition}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def expire(self, now_ms: int) -> None:
        """Answer what has waited for its whole time; the data stays in the log."""
        for one in self._parked.expire(now_ms):
            parked = one.as_parked()
            self._refuse(parked, parked.thresholds().keys(), ErrorCode.REQUEST_TIMED_OUT)
            parked.complete()

    @property
    def parked_count(self) -> int:
        """Requests that wait for the high watermark."""
        return len(self._parked)

    @property
    def next_deadline_ms(self) -> int | None:
        return self._parked.next_deadline_ms

    def _refuse(
        self, parked: ParkedProduce, partitions: Collection[Partition], code: ErrorCode
    ) -> None:
        """Refuse what a request has appended there, and cannot wait for any more."""
        kept = []
        for entry in parked.appended:
            partition, answer, end_offset = entry
            if partition in partitions and partition.log.high_watermark < end_offset:
                refuse(answer, ApiError(code))
            else:
                kept.append(entry)
        parked.appended = kept


def refuse(answer: PartitionProduceResponse, error: ApiError | WireError) -> None:
    """Write a refusal into a partition's part of the answer."""
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
    answer.error_message = error.message if isinstance(error, ApiError) else str(error)
    if isinstance(error, ApiError):
        answer.error_code = error.code
    elif isinstance(error, (UnsupportedMagic, BufferUnderflow)):
        answer.error_code = ErrorCode.INVALID_RECORD
    else:
        answer.error_code = ErrorCode.CORRUPT_MESSAGE
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in error.record_errors
        ]
