"""The active controller of one epoch: its decisions, and the requests that wait for them.

This module is pure. Controller requests are decided one after the other, against the image that
includes all earlier decisions, committed or not. Each decision is replayed on that image before its
records are written, so a decision that cannot be replayed never reaches a disk. One decision is one
batch. A reply is sent when the image has reached the end of the decision's batch. An answer without
records can depend on uncommitted decisions, so the answer waits for these decisions too. A client's
wait has a deadline. A decision has no deadline: it stays in the queue until it is committed,
undone, or lost with the epoch.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from broker.controller.controller import Controller, ControllerInput, FromBrokers
from broker.controller.features import FeatureUpdate, birth_level, refuse_newer, refuse_order
from broker.metadata.features import METADATA_VERSION
from broker.metadata.image import MetadataDelta, MetadataImage
from broker.metadata.records import FeatureLevelRecord, MetadataRecord, encode_record
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
)
from protocol.messages.features import UpdateFeaturesRequest
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from protocol.messages.voters import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch

ORDER_TIMEOUT_MS = 30_000
"""The longest time for which a client waits for its controller request.

The request is carried out even if the wait ends.
"""

BATCH_BYTES_MAX = 1 << 20
"""The largest size in bytes of the batch that a client's request can cause.

The batch of a broker's request has as many records as the broker has partitions, and is never
refused. This does no harm, because a follower's fetch returns its first batch whole, whatever the
size.
"""


@dataclass(frozen=True, slots=True)
class OrderWaiter:
    """The caller that waits for a controller request.

    The controller calls exactly one of the two callbacks, once.
    """

    reply: Callable[[Any], None]
    refused: Callable[[ApiError], None]
    host: str | None = None
    """The client's host; None if the request comes from a broker and not from a client."""
    user: str | None = None
    """The user whose rights are checked; None if the client may do everything."""


def patience_ms(
    order: ControllerInput
    | DescribeQuorumRequest
    | UpdateFeaturesRequest
    | AddRaftVoterRequest
    | RemoveRaftVoterRequest
    | UpdateRaftVoterRequest,
) -> int:
    """Return the time for which the controller keeps a request: its own timeout, up to
    `ORDER_TIMEOUT_MS`.

    A timeout of 0 means that the request has no timeout. librdkafka sends 0 by default, and Kafka
    decides the request in this case too.
    """
    if isinstance(order, FeatureUpdate):
        order = order.request
    match order:
        case (
            CreateTopicsRequest()
            | DeleteTopicsRequest()
            | CreatePartitionsRequest()
            | ElectLeadersRequest()
            | AlterPartitionReassignmentsRequest()
            | UpdateFeaturesRequest()
            | AddRaftVoterRequest()
        ) if order.timeout_ms > 0:
            return min(order.timeout_ms, ORDER_TIMEOUT_MS)
    return ORDER_TIMEOUT_MS


@dataclass(slots=True)
class PendingDecision:
    """One decision in the queue.

    It is committed once the committed image reaches `image.end_offset`.
    """

    image: MetadataImage
    reply: Any
    waiter: OrderWaiter | None
    """The caller that waits; None after a timeout, and for a decision that no request caused."""
    host: str | None
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class OrderLimits:
    """The largest numbers of controller requests in the queue, for all hosts together and for each
    host."""

    pending_max: int
    pending_max_per_host: int


class ActiveController:
    """The controller of one epoch. It begins to decide when its image includes all records of
    earlier epochs."""

    def __init__(self, controller: Controller, limits: OrderLimits, image: MetadataImage) -> None:
        self._controller = controller
        self._limits = limits
        self._image = image
        """The committed image."""
        self._line: deque[PendingDecision] = deque()
        self._waiting_of: Counter[str] = Counter()
        """The number of controller requests in the queue, by host."""

    def begin(self, end_offset: int, now_ms: int) -> bytes | None:
        """Return the first batch to propose, if the log has no metadata level yet.

        A new cluster begins at the newest level. A log that has a level keeps it until an
        UpdateFeatures request changes it. `now_ms` is wall time, because it is written into the
        records.
        """
        if METADATA_VERSION in self._image.features:
            return None
        level = birth_level(self._image)
        record = FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)
        return self._decided([record], None, None, end_offset, now_ms, 0, is_limited=False)

    def decide(
        self,
        order: ControllerInput,
        waiter: OrderWaiter,
        end_offset: int,
        now_ms: int,
        monotonic_ms: int,
    ) -> bytes | None:
        """Decide one request and return the batch to append at `end_offset`, the log's end; None if
        the decision has no records.

        The waiter's callback can run before this method returns. Raises ImpossibleRecord, which
        means a bug in the controller.
        """
        is_limited = not isinstance(order, FromBrokers)
        if is_limited and self._is_full(waiter.host):
            waiter.refused(
                ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "too many controller requests are waiting: try again later",
                )
            )
            return None
        try:
            refuse_order(order, self._newest)
            outcome = self._controller.handle(
                order, self._base(end_offset), now_ms, waiter.host, waiter.user
            )
            refuse_newer(outcome.records, self._newest)
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
        """Undo and refuse all decisions above `end_offset`, because their batches could not be
        written."""
        undone = []
        while self._line and self._line[-1].image.end_offset > end_offset:
            undone.append(self._line.pop())
        for one in reversed(undone):
            self._refuse(one, error)

    def committed(self, image: MetadataImage) -> None:
        """Set the committed image, and answer the requests that waited for it."""
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
                    ErrorCode.REQUEST_TIMED_OUT,
                    "the change was decided, but not committed in time: check whether it was made, "
                    "then try again",
                )
            )

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the time at which the caller must call `expire`; None if no request waits."""
        return min((one.deadline_ms for one in self._line if one.waiter), default=None)

    def lose(self) -> None:
        """Answer all requests with NOT_CONTROLLER, because another epoch has started.

        It is unknown whether the decisions in the queue will be committed.
        """
        line, self._line = self._line, deque()
        for one in line:
            self._refuse(
                one,
                ApiError(ErrorCode.NOT_CONTROLLER, "another controller has taken over: try again"),
            )

    @property
    def _newest(self) -> MetadataImage:
        return self._line[-1].image if self._line else self._image

    def _base(self, end_offset: int) -> MetadataImage:
        """Return the image that includes all decisions, as of the offset of the next batch."""
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
                    f"the request causes {len(records)} records of {len(batch)} bytes, and at most "
                    f"{BATCH_BYTES_MAX} bytes are allowed: split the request",
                )
            )
            return None
        self._stand(
            PendingDecision(image, reply, waiter, waiter.host if waiter else None, deadline_ms)
        )
        return bytes(batch)

    def _is_full(self, host: str | None) -> bool:
        # A connection has only one controller request at a time. But the decision stays in the
        # queue when the connection ends, so clients that reconnect again and again could fill a
        # queue without a limit.
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
