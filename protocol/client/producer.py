"""The producer: appends records and returns acknowledgements; idempotent by default.

It uses the pure `producer_core`. This module creates futures and sets their results.
`producer_room` makes callers wait for buffer space, and `producer_sender` sends requests. A broker
that restarts or dies delays records, but never loses, duplicates or reorders them.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from protocol.background import report_failure
from protocol.client.cluster import Cluster
from protocol.client.errors import ClientClosed, ClientError, TransactionFailed
from protocol.client.group import OffsetAndMetadata
from protocol.client.group_steps import GroupMembership
from protocol.client.pending import (
    BatchDelivered,
    BatchFailed,
    Effect,
    PendingBatch,
    SequenceRestarted,
    record_bytes_bound,
)
from protocol.client.producer_core import ProducerCore
from protocol.client.producer_hooks import (
    OutgoingRecord,
    ProducerHooks,
    checked_partition,
    checked_topic,
)
from protocol.client.producer_outcomes import (
    BatchMetadata,
    DeliveryCallback,
    RecordMetadata,
    settle_delivered,
    settle_failed,
    tell_when_done,
)
from protocol.client.producer_partitions import ProducerPartitions
from protocol.client.producer_room import ProducerRoom
from protocol.client.producer_sender import ProducerSender
from protocol.client.producer_settings import ProducerSettings
from protocol.client.transaction_core import TransactionCore
from protocol.client.transactions import TransactionRequests
from protocol.errors import ApiError
from protocol.log import fields
from protocol.types import TopicPartition
from protocol.wire.compression import Codec
from protocol.wire.record import Headers

__all__ = ["BatchMetadata", "Producer", "RecordMetadata"]

RENEWAL_CHECK_MS = 10_000

logger = logging.getLogger(__name__)


class Producer:
    """Sends records and batches to one cluster. The settings are those of `ProducerSettings`.

    Futures of records that cannot be delivered fail with ApiError (a permanent refusal of the
    broker), DeliveryTimedOut, RecordTooLarge or ClientClosed.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        required_acks: int = -1,
        idempotent: bool = True,
        compression: str = "none",
        linger_ms: int = 5,
        batch_bytes: int = 65_536,
        buffer_bytes: int = 32 << 20,
        max_in_flight: int = 5,
        delivery_timeout_ms: int | None = None,
        request_bytes_max: int = 8 << 20,
        unknown_topic_timeout_ms: int = 60_000,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        hooks: ProducerHooks | None = None,
    ) -> None:
        self.settings = ProducerSettings(
            required_acks=required_acks,
            idempotent=idempotent,
            compression=Codec.named(compression),
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            request_bytes_max=request_bytes_max,
            max_in_flight=max_in_flight,
            delivery_timeout_ms=delivery_timeout_ms,
            unknown_topic_timeout_ms=unknown_topic_timeout_ms,
            request_timeout_ms=cluster.request_timeout_ms,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
        )
        self._cluster = cluster
        self._hooks = hooks or ProducerHooks()
        self._core = ProducerCore(self.settings, cluster.rng)
        self._partitions = ProducerPartitions(cluster, self._core, self._hooks.partitioner)
        self._transactions = (
            TransactionRequests(cluster, self._core, TransactionCore())
            if transactional_id
            else None
        )
        self._sender = ProducerSender(cluster, self._core, self._perform, self._transactions)
        self._room = ProducerRoom(self._core, self._sender.wake, self._check_open)
        self._task: asyncio.Task[None] | None = None
        self._renewal_check_at_ms = 0
        self._ended: ClientError | None = ClientClosed("the producer was not started")

    async def start(self) -> None:
        """Start to send. The producer id is requested when the first record is queued."""
        self._ended = None
        self._task = asyncio.create_task(self._sender.run())
        self._task.add_done_callback(self._task_ended)

    # --- for callers --------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
        on_delivery: DeliveryCallback | None = None,
    ) -> "asyncio.Future[RecordMetadata]":
        """Queue one record, and return a future for its result. Wait while the buffer is full.

        Key and value are bytes or None unless there are serializers. Without `partition` the
        partitioner decides: by default by the key as in Java, and without a key by the open batch.
        `on_delivery` and the interceptors also get the result. Raises TypeError or ValueError for
        values that cannot be encoded, RecordTooLarge, ClientClosed, and in a transaction
        TransactionFailed or ProducerFenced. Raises ApiError or BrokerUnreachable if the topic's
        partitions stay unknown for the request time-out.
        """
        outgoing = OutgoingRecord(topic, value, key, partition, timestamp_ms, headers)
        future, _ = await self._enqueue(outgoing, on_delivery)
        return future

    async def send_and_wait(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send one record without lingering, and return its offset.

        Raises the errors of its future.
        """
        outgoing = OutgoingRecord(topic, value, key, partition, timestamp_ms, headers)
        future, batch = await self._enqueue(outgoing, None)
        batch.closed = True
        self._sender.wake()
        return await future

    async def send_batch(
        self, topic: str, partition: int, batch: bytearray, record_count: int
    ) -> "asyncio.Future[BatchMetadata]":
        """Queue an encoded batch after the partition's queued records. Wait while the buffer is
        full.

        The producer writes its ids into `batch`, so the caller must not change it until the future
        is done. A batch that the broker finds too large is not split; it fails with ApiError
        MESSAGE_TOO_LARGE. Raises the errors of `send`.
        """
        tp = checked_partition(checked_topic(topic), partition)
        if not isinstance(batch, bytearray):
            raise TypeError(f"the batch is {type(batch).__name__}, expected bytearray")
        transaction = self._transaction
        await self._room.wait(len(batch))
        try:
            self._join_transaction(tp, transaction)
            future: asyncio.Future[BatchMetadata] = asyncio.get_running_loop().create_future()
            self._core.append_batch(tp, batch, record_count, future, self._cluster.now_ms())
        finally:
            self._room.let_in()
        self._queued(topic)
        return future

    async def flush(self) -> None:
        """Send all queued records at once, and return when each of them has a result, good or
        bad."""
        await self._room.flush()

    async def close(self, timeout_ms: int | None = None) -> None:
        """Flush (for at most `timeout_ms`) and stop. Remaining records fail with ClientClosed.

        A transaction that is still open is aborted.
        """
        try:
            if self._ended is None:
                async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                    await self._abort_what_is_open()
                    await self.flush()
        except TimeoutError:
            logger.warning(
                "producer closed before all records were sent",
                extra=fields(bytes=self.buffered_bytes),
            )
        finally:
            self._end(ClientClosed("the producer was closed"))
            if self._task is not None:
                self._task.cancel()
                await asyncio.gather(self._task, return_exceptions=True)
            await self._sender.release()

    # --- transactions -------------------------------------------------------------------------

    async def init_transactions(self, timeout_ms: int | None = None) -> None:
        """Take over the transactional id. Call this once, before the first transaction.

        An older producer with this id is fenced, and its open transaction is completed or aborted.
        The call can be repeated after a time-out.
        """
        self._check_open()
        await self._transactional.initialize(timeout_ms)

    def begin_transaction(self) -> None:
        """Start a transaction that includes all records sent from now on."""
        self._check_open()
        self._transactional.core.begin()

    async def send_offsets_to_transaction(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_id: str,
        membership: GroupMembership | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit these offsets of a group together with the records.

        `membership` is the membership of the consumer. With it, the coordinator refuses a member
        that was replaced in the meantime. Raises TransactionFailed or ProducerFenced.
        """
        self._check_open()
        await self._transactional.add_offsets(offsets, group_id, membership, timeout_ms)

    async def commit_transaction(self, timeout_ms: int | None = None) -> None:
        """Flush, and make the whole transaction visible at once.

        Raises TransactionFailed if a part of it failed; then call `abort_transaction`. After a
        time-out or a lost connection the outcome is unknown: commit again, and do not abort.
        Without `timeout_ms` the flush is limited by the delivery time-out, and the commit request
        by the request time-out.
        """
        self._check_open()
        transactional = self._transactional
        transactional.core.begin_commit()
        left_ms = await self._room.flush_within(timeout_ms, self._cluster.now_ms)
        transactional.core.begin_commit()
        await transactional.end(True, left_ms)

    async def abort_transaction(self, timeout_ms: int | None = None) -> None:
        """Abort the transaction. Unsent records fail with TransactionFailed, sent records stay
        hidden.

        The call can be repeated after a time-out.
        """
        self._check_open()
        transactional = self._transactional
        transactional.core.begin_abort()
        self._perform(())
        left_ms = await self._room.flush_within(timeout_ms, self._cluster.now_ms)
        await transactional.end(False, left_ms)

    async def _abort_what_is_open(self) -> None:
        if self._transactions is None or not self._transactions.core.is_open:
            return
        try:
            await self.abort_transaction()
        except (ApiError, ClientError) as error:
            # The coordinator aborts the transaction when its time-out has passed.
            logger.warning(
                "could not abort the open transaction; its time-out will abort it",
                extra=fields(error=error),
            )

    @property
    def _transactional(self) -> TransactionRequests:
        if self._transactions is None:
            raise ValueError("the producer has no transactional_id, so it has no transactions")
        return self._transactions

    @property
    def _transaction(self) -> int:
        """The number of the last started transaction; 0 without transactions."""
        return 0 if self._transactions is None else self._transactions.core.number

    def _join_transaction(self, tp: TopicPartition, number: int) -> None:
        if self._transactions is not None:
            self._transactions.core.join(tp, number)

    @property
    def buffered_bytes(self) -> int:
        """The size of all records that are queued or in flight."""
        return self._core.buffered_bytes

    # --- records ------------------------------------------------------------------------------

    async def _enqueue(
        self, outgoing: OutgoingRecord, on_delivery: DeliveryCallback | None
    ) -> "tuple[asyncio.Future[RecordMetadata], PendingBatch]":
        transaction = self._transaction
        outgoing = self._hooks.intercepted(outgoing)
        timestamp_ms = outgoing.timestamp_ms
        if timestamp_ms is None:
            timestamp_ms = time.time_ns() // 1_000_000
        record = self._hooks.record(outgoing, timestamp_ms)
        topic = checked_topic(outgoing.topic)
        size_bytes = record_bytes_bound(record)
        tp = None
        if outgoing.partition is not None:
            tp = checked_partition(topic, outgoing.partition)
        else:
            await self._partitions.learn(topic)
        await self._room.wait(size_bytes)
        try:
            # Do not await from here on, so that the choice of the partition stays valid.
            if tp is None:
                tp = self._partitions.choose(topic, record.key, size_bytes)
            self._join_transaction(tp, transaction)
            future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
            self._hooks.tell_when_done(future)
            if on_delivery is not None:
                tell_when_done(future, on_delivery)
            token = (future, record.timestamp_ms)
            batch = self._core.append(tp, record, token, self._cluster.now_ms())
        finally:
            self._room.let_in()
        self._queued(topic)
        return future, batch

    def _check_open(self) -> None:
        if self._ended is not None:
            raise type(self._ended)(*self._ended.args)

    def _queued(self, topic: str) -> None:
        self._sender.wake()
        now_ms = self._cluster.now_ms()
        if now_ms >= self._renewal_check_at_ms:
            self._renewal_check_at_ms = now_ms + RENEWAL_CHECK_MS
            self._cluster.renew_if_aged((topic,))

    # --- outcomes -----------------------------------------------------------------------------

    def _perform(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, BatchDelivered):
                settle_delivered(effect)
            elif isinstance(effect, BatchFailed):
                self._fail_transaction(effect)
                settle_failed(effect)
            elif isinstance(effect, SequenceRestarted):
                logger.warning(
                    "the broker refused the sequence numbers of a partition, so they restart at 0",
                    extra=fields(partition=effect.tp, reason=effect.code.name),
                )
        transactions = self._transactions
        if transactions is not None and transactions.core.drops_waiting and self._core.is_waiting:
            error = TransactionFailed("the transaction of these records is aborted")
            error.__cause__ = transactions.core.failure
            self._perform(self._core.fail_waiting(error))
            return
        self._room.settle()

    def _fail_transaction(self, effect: BatchFailed) -> None:
        if self._transactions is not None:
            was_sent = effect.batch.attempts > 0
            self._transactions.core.fail(effect.error, was_sent=was_sent)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(ClientError(f"the producer failed: {error!r}"))
            report_failure(task, "producer failed")

    def _end(self, error: ClientError) -> None:
        if self._ended is not None:
            return
        self._ended = error
        self._sender.stop()
        self._room.end(error)
        # This also ends waiting flushes, because all records have an outcome now.
        self._perform(self._core.fail_all(error))
