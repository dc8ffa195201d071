"""The active controller of one epoch: its decisions, and the requests that wait for them.

This module is pure. Orders are decided one after the other, against the image that includes all
earlier decisions, committed or not. Each decision is replayed on that image before anything is
written, so a decision that cannot be replayed never reaches a disk. One decision is one batch. A
reply is sent when the image has reached the end of its batch. An answer without records can depend
on uncommitted decisions, so it waits for them too. A client's wait has a deadline. A decision has
none: it stays in the queue until it is committed, undone, or lost with the epoch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.controller.controller import Controller, ControllerInput, FromBrokers
from broker.metadata.features import METADATA_LEVEL, METADATA_VERSION
from broker.metadata.image import MetadataDelta, MetadataImage
from broker.metadata.records import FeatureLevelRecord, MetadataRecord, encode_record
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elections import ElectLeadersRequest
from protocol.messages.features import UpdateFeaturesRequest
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from protocol.messages.voters import DescribeQuorumRequest
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch

ORDER_TIMEOUT_MS = 30_000
"""How long a client waits for its order at most. The order is carried out even if the wait ends."""

BATCH_BYTES_MAX = 1 << 20
"""The limit of one decision for a client.

A decision for brokers has as many records as they have partitions, and is never refused. A
follower's fetch returns its first batch whole, whatever its size.
"""


@dataclass(frozen=True, slots=True)
class OrderWaiter:
    """The caller that waits for an order. Exactly one of the two callbacks is called, once."""

    reply: Callable[[Any], None]
    refused: Callable[[ApiError], None]
    host: str | None = None
    """The client's host; None for the broker itself."""


def patience_ms(order: ControllerInput | DescribeQuorumRequest) -> int:
    """Return how long to wait for an order: the time-out in the request, up to `ORDER_TIMEOUT_MS`.

    0 means no time-out of its own: librdkafka sends it by default, and Kafka decides the order then
    too.
    """
    match order:
        case (
            CreateTopicsRequest()
            | DeleteTopicsRequest()
            | CreatePartitionsRequest()
            | ElectLeadersRequest()
            | UpdateFeaturesRequest()
        ) if order.timeout_ms > 0:
            return min(order.timeout_ms, ORDER_TIMEOUT_MS)
    return ORDER_TIMEOUT_MS


@dataclass(slots=True)
class PendingDecision:
    """One decision in the queue. It is in force once the image reaches `image.end_offset`."""

    image: MetadataImage
    reply: Any
    waiter: OrderWaiter | None
    """None after a time-out, and for a decision without a request."""
    host: str | None
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class OrderLimits:
    """The numbers of orders that can be in the queue, for all hosts together and for each host."""

    pending_max: int
    pending_max_per_host: int


class ActiveController:
    """Decides in one epoch, from the moment its image includes everything from earlier epochs."""

    def __init__(self, controller: Controller, limits: OrderLimits, image: MetadataImage) -> None:
        self._controller = controller
        self._limits = limits
        self._image = image
        """The image in force."""
        self._line: deque[PendingDecision] = deque()
        self._waiting_of: Counter[str] = Counter()
        """By host: how many of its orders are in the queue."""

    def begin(self, end_offset: int, now_ms: int) -> bytes | None:
        """Return the first batch to propose, if the log does not have this version's metadata level
        yet.

        `now_ms` is wall time, as in all records.
        """
        if self._image.features.get(METADATA_VERSION, 0) >= METADATA_LEVEL:
            return None
        record = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_LEVEL)
        return self._decided([record], None, None, end_offset, now_ms, 0, is_limited=False)

    def decide(
        self,
        order: ControllerInput,
        waiter: OrderWaiter,
        end_offset: int,
        now_ms: int,
        monotonic_ms: int,
    ) -> bytes | None:
        """Return the batch to propose at `end_offset`, the log's end; None if nothing must be
        written.

        The waiter can be answered before this returns. Raises ImpossibleRecord, which means a bug
        in the controller.
        """
        is_limited = not isinstance(order, FromBrokers)
        if is_limited and self._is_full(waiter.host):
            waiter.refused(
                ApiError(ErrorCode.REQUEST_TIMED_OUT, "too many orders are waiting; try again")
            )
            return None
        try:
            outcome = self._controller.handle(order, self._base(end_offset), now_ms)
        except ApiError as error:
            waiter.refused(error)
            return None
        deadline_ms = monotonic_ms + patience_ms(order)
        if outcome.records:
            return self._decided(
                outcome.records,
                outcome.reply,
                waiter,
                end_offset,
                now_ms,
                deadline_ms,
                is_limited=is_limited,
            )
        if self._line:
            self._stand(
                PendingDecision(self._newest, outcome.reply, waiter, waiter.host, deadline_ms)
            )
        else:
            waiter.reply(outcome.reply)
        return None

    def unwritten(self, end_offset: int, error: ApiError) -> None:
        """The log ends at `end_offset`: undo and refuse all decisions above it."""
        undone = []
        while self._line and self._line[-1].image.end_offset > end_offset:
            undone.append(self._line.pop())
        for one in reversed(undone):
            self._refuse(one, error)

    def committed(self, image: MetadataImage) -> None:
        """Note the image in force, and answer the requests that waited for it."""
        self._image = image
        while self._line and self._line[0].image.end_offset <= self._image.end_offset:
            one = self._line.popleft()
            self._leave(one.host)
            if one.waiter is not None:
                one.waiter.reply(one.reply)

    def expire(self, monotonic_ms: int) -> None:
        """Answer requests that have waited too long. Their decisions stay in the queue."""
        due = [one for one in self._line if one.waiter and one.deadline_ms <= monotonic_ms]
        for one in due:
            waiter, one.waiter = one.waiter, None
            assert waiter is not None
            waiter.refused(
                ApiError(
                    ErrorCode.REQUEST_TIMED_OUT, "the change was decided but not in force in time"
                )
            )

    @property
    def next_deadline_ms(self) -> int | None:
        """The time to call `expire`."""
        return min((one.deadline_ms for one in self._line if one.waiter), default=None)

    def lose(self) -> None:
        """Another epoch started. It is unknown whether the decisions in the queue are committed."""
        line, self._line = self._line, deque()
        for one in line:
            self._refuse(
                one, ApiError(ErrorCode.NOT_CONTROLLER, "another controller has taken over")
            )

    @property
    def _newest(self) -> MetadataImage:
        return self._line[-1].image if self._line else self._image

    def _base(self, end_offset: int) -> MetadataImage:
        """Return the image with all decisions, as of the offset of the next batch."""
        newest = self._newest
        assert newest.end_offset <= end_offset
        return replace(newest, end_offset=end_offset)

    def _decided(
        self,
        records: Sequence[MetadataRecord],
        reply: Any,
        waiter: OrderWaiter | None,
        end_offset: int,
        now_ms: int,
        deadline_ms: int,
        *,
        is_limited: bool,
    ) -> bytes | None:
        image = MetadataDelta(self._newest).replay_all(records).image(end_offset + len(records))
        batch = build_batch([NewRecord(None, encode_record(one), now_ms) for one in records])
        if is_limited and len(batch) > BATCH_BYTES_MAX:
            assert waiter is not None
            waiter.refused(
                ApiError(
                    ErrorCode.POLICY_VIOLATION,
                    f"{len(records)} records in one order take {len(batch)} bytes, at most "
                    f"{BATCH_BYTES_MAX} are allowed: ask for less in one request",
                )
            )
            return None
        self._stand(
            PendingDecision(image, reply, waiter, waiter.host if waiter else None, deadline_ms)
        )
        return bytes(batch)

    def _is_full(self, host: str | None) -> bool:
        # A connection has only one order at a time, but its decision stays in the queue when the
        # connection ends. So clients that reconnect again and again could fill the queue, unless it
        # has a limit.
        if len(self._line) >= self._limits.pending_max:
            return True
        return host is not None and self._waiting_of[host] >= self._limits.pending_max_per_host

    def _stand(self, one: PendingDecision) -> None:
        self._line.append(one)
        if one.host is not None:
            self._waiting_of[one.host] += 1

    def _leave(self, host: str | None) -> None:
        if host is not None:
            self._waiting_of[host] -= 1
            if not self._waiting_of[host]:
                del self._waiting_of[host]

    def _refuse(self, one: PendingDecision, error: ApiError) -> None:
        self._leave(one.host)
        if one.waiter is not None:
            one.waiter.refused(error)
