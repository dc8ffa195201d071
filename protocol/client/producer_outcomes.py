"""The results of sent records, and the futures that get them.

A batch built by the producer has one token per record: the record's future and timestamp. A batch
encoded by the caller has one future for all of its records.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar, cast

from protocol.client.errors import TransactionFailed
from protocol.client.pending import BatchDelivered, BatchFailed, PendingBatch
from protocol.types import NO_OFFSET

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """The position of one record; `offset` -1 if the broker did not report it (acks 0, a
    duplicate).
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """The position of a batch; `base_offset` -1 if the broker did not report it."""

    topic: str
    partition: int
    base_offset: int
    record_count: int


DeliveryCallback: TypeAlias = Callable[[RecordMetadata | None, BaseException | None], None]


def settle_delivered(effect: BatchDelivered) -> None:
    """Give each future in the batch the position of its record."""
    batch = effect.batch
    topic, partition = batch.tp
    if batch.payload is not None:
        (future,) = batch.tokens
        _set(
            cast("asyncio.Future[BatchMetadata]", future),
            BatchMetadata(topic, partition, effect.base_offset, batch.record_count),
        )
        return
    for index, token in enumerate(batch.tokens):
        future, timestamp_ms = cast("tuple[asyncio.Future[RecordMetadata], int]", token)
        offset = NO_OFFSET if effect.base_offset == NO_OFFSET else effect.base_offset + index
        if effect.log_append_time_ms >= 0:
            timestamp_ms = effect.log_append_time_ms
        _set(future, RecordMetadata(topic, partition, offset, timestamp_ms))


def settle_failed(effect: BatchFailed) -> None:
    """Give each future in the batch a separate exception with the error."""
    error = effect.error
    for future in _futures(effect.batch):
        if not future.done():
            own = type(error)(*error.args)
            own.__cause__ = error.__cause__
            future.set_exception(own)
            if isinstance(error, TransactionFailed):
                # The transaction raises the error as well, so no caller needs to check every
                # record.
                future.exception()


def tell_when_done(future: "asyncio.Future[RecordMetadata]", callback: DeliveryCallback) -> None:
    """Call `callback` with the record's result.

    Its exceptions go to the loop's exception handler.
    """
    future.add_done_callback(partial(_tell, callback))


def _tell(callback: DeliveryCallback, future: "asyncio.Future[RecordMetadata]") -> None:
    if future.cancelled():
        callback(None, asyncio.CancelledError())
        return
    error = future.exception()
    callback(None if error is not None else future.result(), error)


def _futures(batch: PendingBatch) -> "list[asyncio.Future[RecordMetadata | BatchMetadata]]":
    if batch.payload is not None:
        return cast("list[asyncio.Future[RecordMetadata | BatchMetadata]]", batch.tokens)
    tokens = cast("list[tuple[asyncio.Future[RecordMetadata | BatchMetadata], int]]", batch.tokens)
    return [future for future, _ in tokens]


def _set(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)
