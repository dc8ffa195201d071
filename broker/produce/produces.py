"""Produce: batches are appended in order of arrival, written once per read, answered when durable.

Room: produce. `append` validates each batch (`batch_validator`) and stages it. `settle`, called
after every read, writes each changed log once. It then answers the request, or lets it wait
(`pending`) until its batches are acknowledged. If records must be checked, `opening` schedules
that; batches appended before are written in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from broker.config import LogConfig
from broker.produce.batch_validator import BatchValidator
from broker.produce.fast_path import ProduceTemplate, QuickProduce
from broker.produce.opening import Openings
from broker.produce.pending import Parking, PartitionAppend, PendingProduce
from broker.produce.proving import Proving
from broker.produce.refusing import refuse
from broker.purgatory import Purgatory
from broker.replicas.refusals import WriteFailed
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.sessions.call import Call
from broker.storage.errors import DiskError, RecordsUnseen
from broker.storage.outcomes import AppendResult, CheckedRecords
from broker.storage.validation import look_at_records
from broker.world import World
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceResponse,
)
from protocol.wire.records import BatchHeader, read_header

REQUIRED_ACKS = (-1, 0, 1)


class Produces:
    """All Produce requests in progress."""

    def __init__(
        self,
        world: World,
        waits: Purgatory,
        validator: BatchValidator,
        proving: Proving,
        replicas: Replicas,
        write_failed: WriteFailed,
    ) -> None:
        self._clock = world.clock
        self._validator = validator
        self._proving = proving
        self._replicas = replicas
        self._write_failed = write_failed
        self._staged: list[PendingProduce | QuickProduce] = []
        self._now_ms = 0
        """The time of the first quick request of this read, used for all of them."""
        self._parking = Parking(waits, world.clock)
        self._openings: Openings[PendingProduce] = Openings(world.soon, world.turn_ns, self.settle)

    @property
    def parked_count(self) -> int:
        """Number of requests that wait for their acknowledgement."""
        return self._parking.count

    def append(self, call: Call, request: ProduceRequest) -> None:
        """Stage the batches of one request. `settle` answers it."""
        pending = PendingProduce(call, request)
        call.session.has_staged = True
        if request.transactional_id is None or not self._is_to_be_proven(pending, request):
            self._begin(pending, request)

    def _is_to_be_proven(self, pending: PendingProduce, request: ProduceRequest) -> bool:
        """Return True if a coordinator on another broker is asked first; the request then resumes
        later.
        """

        def proven() -> None:
            pending.call.session.attempt(partial(self._begin, pending, request))
            self.settle()

        return self._proving.start(pending, request, proven)

    def _begin(self, pending: PendingProduce, request: ProduceRequest) -> None:
        self._now_ms = self._clock.now_ms()
        steps = self._append_all(pending, request)
        if next(steps, False):
            self._openings.start(pending, request, steps)

    def _append_all(self, pending: PendingProduce, request: ProduceRequest) -> Iterator[bool]:
        """Validate and stage every batch. Yields only if records must be checked."""
        for topic in request.topic_data:
            answer = TopicProduceResponse(name=topic.name)
            pending.response.responses.append(answer)
            for data in topic.partition_data:
                one = PartitionProduceResponse(index=data.index, base_offset=-1)
                answer.partition_responses.append(one)
                config = self._append_one(pending, topic.name, data, one)
                if config is not None:
                    yield from self._look_and_append(pending, topic.name, data, one, config)
        self._staged.append(pending)

    def _look_and_append(
        self,
        pending: PendingProduce,
        topic: str,
        data: PartitionProduceData,
        answer: PartitionProduceResponse,
        config: LogConfig,
    ) -> Iterator[bool]:
        """Check the records of one batch in steps of some milliseconds, and append the batch.
        Yields after each step.
        """
        wanted: LogConfig | None = config
        while wanted is not None:
            config = wanted
            yield True
            try:
                # Do not keep `data.records` in a local variable, because the batch can move between
                # steps.
                seen = yield from look_at_records(data.records, config, self._clock.now_ms())
            except ApiError as error:
                refuse(answer, error)
                return
            self._now_ms = self._clock.now_ms()
            # Repeat if the topic's settings have changed in the meantime.
            wanted = self._append_one(pending, topic, data, answer, seen)

    def _append_one(
        self,
        pending: PendingProduce,
        topic: str,
        data: PartitionProduceData,
        answer: PartitionProduceResponse,
        seen: CheckedRecords | None = None,
    ) -> LogConfig | None:
        """Stage or refuse one batch. Returns the settings if its records must be checked first."""
        batch = data.records
        try:
            if pending.required_acks not in REQUIRED_ACKS:
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
            if pending.has_two_producers:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    "transactional batches of two producers in one request",
                )
            replica = self._validator.admit(pending, topic, data.index)
            if not batch:
                raise ApiError(ErrorCode.INVALID_RECORD, "no record batch")
            header = read_header(batch)
            appended = self._validator.append(pending, replica, batch, header, self._now_ms, seen)
        except RecordsUnseen:
            return replica.log.config
        except (ApiError, WireError) as error:
            refuse(answer, error)
            self._validator.note_refusal(topic, data.index, batch, answer.error_code)
            return None
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.log_append_time_ms
        answer.log_start_offset = replica.log.log_start_offset
        pending.appended.append(PartitionAppend(pending, replica, answer, appended.last_offset + 1))
        return None

    def append_quick(
        self, template: ProduceTemplate, batch: memoryview, header: BatchHeader
    ) -> tuple[Replica, AppendResult]:
        """Stage one batch of a quick request. If an error is raised, nothing has changed."""
        if not self._staged:
            self._now_ms = self._clock.now_ms()
        replica = self._validator.admit(template, template.topic, template.index)
        return replica, self._validator.append(template, replica, batch, header, self._now_ms)

    def stage(self, produce: QuickProduce) -> None:
        """Add a quick request, to be answered or parked when its batch is written."""
        self._staged.append(produce)

    def settle(self) -> None:
        """Write what has been staged, one write per log, and answer or park every request."""
        staged, self._staged = self._staged, []
        failed: dict[Replica, DiskError] = {}
        now_ms = self._clock.now_ms()
        for replica in self._validator.take_dirty():
            try:
                replica.log.write_staged(now_ms)
            except DiskError as error:
                failed[replica] = error
                self._write_failed(replica.topic_partition, error, now_ms)
            else:
                replica.on_written()
        if failed:
            for pending in self._openings.pending:
                self._withdraw(pending, failed)
        for produce in staged:
            if failed:
                pending = produce.as_pending()
                self._withdraw(pending, failed)
                pending.settle(self._parking)
            else:
                produce.settle(self._parking)

    def _withdraw(self, pending: PendingProduce, failed: dict[Replica, DiskError]) -> None:
        kept = []
        for one in pending.appended:
            error = failed.get(one.replica)
            # A request that takes several turns can have written to this log earlier.
            if error is None or one.end_offset <= one.replica.log.log_end_offset:
                kept.append(one)
                continue
            refuse(one.answer, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        pending.appended = kept
