"""Appends the batches of Produce requests in order of arrival, and answers when they are
acknowledged.

`append` validates each batch (`batch_validator`) and stages it. The session calls `settle` after
every read from its socket. `settle` writes each changed log once. It then answers each request, or
parks it (`pending`) until its batches are acknowledged. If the records of a batch must be checked,
`opening` spreads the work over several iterations of the event loop. The batches that the request
appended before are written in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from broker.config import LogConfig
from broker.produce.batch_validator import BatchValidator
from broker.produce.fast_path import ProduceTemplate, QuickProduce
from broker.produce.opening import Openings
from broker.produce.pending import Parking, PartitionAppend, PendingProduce, refuse
from broker.produce.proving import Proving
from broker.purgatory import Purgatory
from broker.replicas.refusals import WriteFailed
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.sessions.call import Call
from broker.storage.errors import DiskError, RecordsUnseen
from broker.storage.outcomes import AppendResult, CheckedRecords
from broker.storage.validation import look_at_once, look_at_records
from broker.world import World
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceResponse,
)
from protocol.security.acl import AclOperation, AclResource
from protocol.wire.records import BatchHeader, read_header

REQUIRED_ACKS = (-1, 0, 1)


class Produces:
    """All Produce requests of the broker, between their arrival and their answer."""

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
        self._dirty: dict[Replica, None] = {}
        """The partitions with batches that are staged but not written."""
        self._now_ms = 0
        """The wall time in milliseconds that the batches get. The quick requests of one read share
        the time of the first of them."""
        self._parking = Parking(waits, world.clock)
        self._openings: Openings[PendingProduce] = Openings(world.soon, world.turn_ns, self.settle)

    @property
    def parked_count(self) -> int:
        """The number of requests that wait for an acknowledgement."""
        return self._parking.count

    def append(self, call: Call, request: ProduceRequest) -> None:
        """Stage the batches of one request. `settle` answers the request later."""
        pending = PendingProduce(call, request)
        call.session.has_staged = True
        if request.transactional_id is None or not self._is_to_be_proven(pending, request):
            self._begin(pending, request)

    def _is_to_be_proven(self, pending: PendingProduce, request: ProduceRequest) -> bool:
        """Return True if a coordinator on another broker must answer before the batches are
        appended.

        In this case the request continues when the answer has come.
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
        """Validate and stage every batch of a request. Yield after each step if records must be
        checked."""
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
        """Check the records of one batch in steps of some milliseconds, and then append the batch.

        Yields after each step.
        """
        wanted: LogConfig | None = config
        while wanted is not None:
            config = wanted
            yield True
            try:
                # Do not keep `data.records` in a local variable, because `copy_batches` can replace
                # it between two steps.
                seen = yield from look_at_records(data.records, config, self._clock.now_ms())
            except ApiError as error:
                refuse(answer, error)
                return
            self._now_ms = self._clock.now_ms()
            # Check the records again if the topic's settings have changed in the meantime.
            wanted = self._append_one(pending, topic, data, answer, seen)

    def _append_one(
        self,
        pending: PendingProduce,
        topic: str,
        data: PartitionProduceData,
        answer: PartitionProduceResponse,
        seen: CheckedRecords | None = None,
    ) -> LogConfig | None:
        """Stage or refuse one batch. Return the log's settings if the records must be checked
        first."""
        batch = data.records
        try:
            _refuse_unauthorised(pending, topic)
            if pending.required_acks not in REQUIRED_ACKS:
                raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
            if pending.has_two_producers:
                raise ApiError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    "the request has transactional batches of two producers",
                )
            replica = self._validator.admit(pending, topic, data.index)
            if not batch:
                raise ApiError(
                    ErrorCode.INVALID_RECORD, "the request has no record batch for this partition"
                )
            header = read_header(batch)
            appended = self._validator.append(pending, replica, batch, header, self._now_ms, seen)
        except RecordsUnseen:
            return replica.log.config
        except (ApiError, WireError) as error:
            refuse(answer, error)
            self._validator.note_refusal(topic, data.index, batch, answer.error_code)
            return None
        if not appended.is_duplicate:
            self._dirty[replica] = None
        answer.base_offset = appended.base_offset
        answer.log_append_time_ms = appended.log_append_time_ms
        answer.log_start_offset = replica.log.log_start_offset
        pending.appended.append(PartitionAppend(pending, replica, answer, appended.last_offset + 1))
        return None

    def append_quick(
        self, template: ProduceTemplate, batch: memoryview, header: BatchHeader
    ) -> tuple[Replica, AppendResult]:
        """Stage the batch of a quick request. Return its partition and the result of the append.

        Raises ApiError, WireError or RecordsUnseen before anything has changed.
        """
        if not self._staged:
            self._now_ms = self._clock.now_ms()
        replica = self._validator.admit(template, template.topic, template.index)
        seen = None
        if not template.is_trusted:
            seen = look_at_once(batch, header, replica.log.config, self._now_ms)
        appended = self._validator.append(template, replica, batch, header, self._now_ms, seen)
        if not appended.is_duplicate:
            self._dirty[replica] = None
        return replica, appended

    def stage(self, produce: QuickProduce) -> None:
        """Add a quick request with a staged batch. `settle` answers or parks it."""
        self._staged.append(produce)

    def settle(self) -> None:
        """Write the staged batches, one write for each log, and answer or park every request."""
        staged, self._staged = self._staged, []
        dirty, self._dirty = self._dirty, {}
        failed: dict[Replica, DiskError] = {}
        now_ms = self._clock.now_ms()
        for replica in dirty:
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
            # A request that needs several iterations of the loop can have written other batches to
            # this log before.
            if error is None or one.end_offset <= one.replica.log.log_end_offset:
                kept.append(one)
                continue
            refuse(one.answer, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        pending.appended = kept


def _refuse_unauthorised(pending: PendingProduce, topic: str) -> None:
    """Raise ApiError if the client may not write to the topic, or not under its transactional id.

    The fast path checks the right in `LoginFastPath`, because most listeners need no check.
    """
    may, transactional_id = pending.call.may, pending.transactional_id
    if transactional_id is not None and not may(
        AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id
    ):
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not may(AclOperation.WRITE, AclResource.TOPIC, topic):
        raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
