"""The sending part of a producer: finds leaders, sends requests, passes answers to the core.

One task sleeps until something can be sent; requests are futures. Each kind of slow work (a
connection, metadata, a producer id) runs in a helper task, so that a problem with one broker does
not delay the others.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any

from protocol.background import report_failure
from protocol.client.cluster import Cluster
from protocol.client.connection import Connection
from protocol.client.errors import (
    ClientError,
    UnsupportedVersion,
    is_transient,
    raise_for,
)
from protocol.client.pending import Effect, PendingBatch
from protocol.client.producer_core import ProducerCore
from protocol.client.transactions import TransactionRequests
from protocol.errors import ApiError, ErrorCode
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from protocol.types import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from protocol.wire.records import build_batch, stamp_producer

NO_TRANSACTION_TIMEOUT_MS = 2**31 - 1


class ProducerSender:
    """Sends the batches that the core has ready.

    Calls `perform` with the effects of the answers.
    """

    def __init__(
        self,
        cluster: Cluster,
        core: ProducerCore,
        perform: Callable[[Iterable[Effect]], None],
        transactions: TransactionRequests | None = None,
    ) -> None:
        self._cluster = cluster
        self._core = core
        self._settings = core.settings
        self._purpose = cluster.new_purpose("produce")
        self._perform = perform
        self._transactions = transactions
        self._wake = asyncio.Event()
        self._in_flight: dict[int, int] = defaultdict(int)
        self._leaderless: set[TopicPartition] = set()
        self._helpers: dict[object, asyncio.Task[None]] = {}
        self._is_stopped = False

    def wake(self) -> None:
        """Check again what can be sent."""
        self._wake.set()

    async def run(self) -> None:
        """Send until the task is cancelled. Any other exception is a bug."""
        try:
            while True:
                self._wake.clear()
                now_ms = self._cluster.now_ms()
                self._perform(self._core.expire(now_ms))
                self._send_ready(now_ms)
                deadline = self._core.next_deadline_ms(now_ms)
                delay_s = None if deadline is None else (deadline - now_ms) / 1000
                try:
                    async with asyncio.timeout(delay_s):
                        await self._wake.wait()
                except TimeoutError:
                    continue
        finally:
            self.stop()

    def stop(self) -> None:
        """Stop reporting answers to the core. The caller fails the remaining batches."""
        self._is_stopped = True
        for helper in self._helpers.values():
            helper.cancel()

    async def release(self) -> None:
        """Close the connections of this sender."""
        await self._cluster.release(self._purpose)

    # --- sending ------------------------------------------------------------------------------

    def _send_ready(self, now_ms: int) -> None:
        transactions = self._transactions
        if transactions is not None:
            if transactions.core.joining:
                self._help("transaction", self._join_transaction)
        elif self._core.needs_producer_id and not self._core.is_empty:
            self._help("producer id", self._find_producer_id)
        current = self._cluster.current
        by_leader: dict[int, list[TopicPartition]] = defaultdict(list)
        for tp in self._core.ready(now_ms):
            leader = current.leader(tp)
            # Batches expire even if their partition is not in the transaction, because a missing
            # partition is never added.
            if leader is None:
                self._leaderless.add(tp)
            elif transactions is None or transactions.core.may_send(tp):
                by_leader[leader].append(tp)
        if self._leaderless:
            self._help("leaders", self._find_leaders)
        for node_id, tps in by_leader.items():
            connection = self._cluster.ready_connection(node_id, self._purpose)
            if connection is None:
                self._help(node_id, partial(self._connect, node_id))
                continue
            while self._in_flight[node_id] < self._settings.max_in_flight:
                if self._settings.required_acks == 0 and not connection.is_writable:
                    self._help(node_id, connection.wait_writable)
                    break
                batches = self._core.drain(tps, now_ms, self._settings.request_bytes_max)
                if not batches:
                    break
                self._send(node_id, connection, batches, now_ms)

    def _send(
        self, node_id: int, connection: Connection, batches: list[PendingBatch], now_ms: int
    ) -> None:
        request = self._request(batches)
        answered = self._settings.required_acks != 0
        try:
            if answered:
                future = connection.send(request, timeout_ms=self._settings.request_timeout_ms)
            else:
                connection.send_unanswered(request)
        except UnsupportedVersion as error:
            for batch in batches:
                code = ErrorCode.UNSUPPORTED_VERSION
                self._perform(self._core.on_refused(batch, code, str(error), now_ms))
            return
        except ClientError:
            for batch in batches:
                self._core.on_unsent(batch, now_ms)
            return
        if answered:
            self._in_flight[node_id] += 1
            future.add_done_callback(partial(self._on_answer, node_id, batches))
            return
        for batch in batches:
            self._perform(self._core.on_delivered(batch, NO_OFFSET, NO_TIMESTAMP))

    def _request(self, batches: Sequence[PendingBatch]) -> ProduceRequest:
        by_topic: dict[str, list[PartitionProduceData]] = defaultdict(list)
        for batch in batches:
            by_topic[batch.tp.topic].append(
                PartitionProduceData(index=batch.tp.partition, records=self._encode(batch))
            )
        return ProduceRequest(
            transactional_id=self._settings.transactional_id,
            acks=self._settings.required_acks,
            # The broker's time-out must pass first. Otherwise its answer comes after our own
            # time-out.
            timeout_ms=self._settings.request_timeout_ms // 2,
            topic_data=[
                TopicProduceData(name=name, partition_data=data) for name, data in by_topic.items()
            ],
        )

    def _encode(self, batch: PendingBatch) -> bytearray:
        if batch.payload is None:
            return build_batch(
                batch.records,
                codec=self._settings.compression,
                producer_id=batch.producer_id,
                producer_epoch=batch.producer_epoch,
                base_sequence=batch.base_sequence,
                is_transactional=self._settings.is_transactional,
            )
        stamp_producer(
            batch.payload,
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            is_transactional=self._settings.is_transactional,
        )
        return batch.payload

    # --- answers ------------------------------------------------------------------------------

    def _on_answer(
        self, node_id: int, batches: list[PendingBatch], future: "asyncio.Future[ProduceResponse]"
    ) -> None:
        self._in_flight[node_id] -= 1
        self.wake()
        error = None if future.cancelled() else future.exception()
        if self._is_stopped:
            return
        now_ms = self._cluster.now_ms()
        if future.cancelled() or error is not None:
            self._cluster.forget_node(node_id)
            for batch in batches:
                self._core.on_connection_lost(batch, now_ms)
            return
        outcomes = {
            (topic.name, partition.index): partition
            for topic in future.result().responses
            for partition in topic.partition_responses
        }
        for batch in batches:
            outcome = outcomes.get(batch.tp)
            if outcome is None:
                self._core.on_connection_lost(batch, now_ms)
                continue
            if not outcome.error_code:
                self._perform(
                    self._core.on_delivered(batch, outcome.base_offset, outcome.log_append_time_ms)
                )
                continue
            code = ErrorCode.of(outcome.error_code)
            if code.refreshes_metadata:
                self._cluster.forget_leader(batch.tp)
            self._perform(self._core.on_refused(batch, code, outcome.error_message or "", now_ms))

    # --- helpers ------------------------------------------------------------------------------

    def _help(self, name: object, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run `work` in a task unless it is running already. Check what to send afterwards."""
        if name in self._helpers:
            return
        task = asyncio.create_task(work())
        self._helpers[name] = task

        def ended(task: "asyncio.Task[None]") -> None:
            del self._helpers[name]
            self.wake()
            if not task.cancelled() and (error := task.exception()) is not None:
                # This is a bug in the client. Fail the waiting batches with it, because nothing
                # else would report it.
                self._perform(self._core.fail_waiting(ClientError(f"producer failed: {error!r}")))
                report_failure(task, "producer failed")

        task.add_done_callback(ended)

    async def _connect(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id, self._purpose)
        except ClientError:
            # The leaderships of this broker are already forgotten, so the next check finds the new
            # leaders.
            return

    async def _find_leaders(self) -> None:
        tps, self._leaderless = self._leaderless, set()
        try:
            current = await self._cluster.metadata({tp.topic for tp in tps}, refresh=True)
        except ClientError:
            for tp in tps:
                code = ErrorCode.NETWORK_EXCEPTION
                self._core.on_leader_unknown(tp, code, self._cluster.now_ms())
            return
        now_ms = self._cluster.now_ms()
        for tp in tps:
            if current.leader(tp) is None:
                self._perform(self._core.on_leader_unknown(tp, current.error_of(tp), now_ms))

    async def _join_transaction(self) -> None:
        assert self._transactions is not None
        try:
            await self._transactions.join_partitions()
        except (ApiError, ClientError) as error:
            # Transient errors are retried as long as the transaction continues.
            if not is_transient(error):
                self._transactions.core.fail(error)

    async def _find_producer_id(self) -> None:
        async def attempt(left_ms: int) -> InitProducerIdResponse:
            response: InitProducerIdResponse = await self._cluster.request(
                None,
                InitProducerIdRequest(
                    transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS
                ),
                timeout_ms=left_ms,
            )
            raise_for(response.error_code)
            return response

        try:
            response = await self._cluster.repeat(attempt)
        except (ApiError, ClientError) as error:
            if not is_transient(error):
                self._perform(self._core.fail_waiting(error))
            return
        self._core.set_producer_id(response.producer_id, response.producer_epoch)
