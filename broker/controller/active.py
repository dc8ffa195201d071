"""The active controller of one epoch: what it has decided, and who waits for it.

Floor: controller. Pure. Orders are decided one after the other against the image that includes
everything decided before (speculation), and replayed before anything is written: what cannot be
replayed never reaches a disk. One decision is one batch. A reply leaves when the image has reached
the end of its batch; also an answer without records may rest on what is not committed yet, and
waits for it. A client's wait has a deadline, a decision has none: what was proposed stays in line
until it is committed, taken back or lost with the epoch.
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
"""How long whoever has given an order waits at most; it is carried out all the same."""

BATCH_BYTES_MAX = 1 << 20
"""Of one decision that a client asks for. What brokers cannot do without has as many records as
they have partitions, and is never refused: a follower's fetch brings its first batch whole."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """Who has given an order. One of the two is called, once."""

    reply: Callable[[Any], None]
    refused: Callable[[ApiError], None]
    host: str | None = None
    """None for the node itself."""


def patience_ms(order: ControllerInput | DescribeQuorumRequest) -> int:
    """How long whoever has given this order waits: the time that the request states, within ours.

    None, or 0, is no time to be out of: librdkafka states it by default, and Kafka decides.
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
class Decided:
    """One decision in line: in force once the image reaches `image.end_offset`."""

    image: MetadataImage
    reply: Any
    waiter: Waiter | None
    """None once it has been told that the time is up, and for what nobody has asked for."""
    host: str | None
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Limits:
    """How many orders may be in line, of all hosts and of one."""

    pending_max: int
    pending_max_per_host: int


class ActiveController:
    """Decides in one epoch, from the moment its image holds all of the epochs before."""

    def __init__(self, controller: Controller, limits: Limits, image: MetadataImage) -> None:
        self._controller = controller
        self._limits = limits
        self._image = image
        """In force."""
        self._line: deque[Decided] = deque()
        self._waiting_of: Counter[str] = Counter()
        """Host -> how many decisions in line it has asked for."""

    def begin(self, end_offset: int, now_ms: int) -> bytes | None:
        """The batch to propose first, if the log lacks the level of what is written from here on.

        `now_ms` is wall time, as everywhere in what is written.
        """
        if self._image.features.get(METADATA_VERSION, 0) >= METADATA_LEVEL:
            return None
        record = FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_LEVEL)
        return self._decided([record], None, None, end_offset, now_ms, 0, is_limited=False)

    def decide(
        self,
        order: ControllerInput,
        waiter: Waiter,
        end_offset: int,
        now_ms: int,
        monotonic_ms: int,
    ) -> bytes | None:
        """The batch to propose at `end_offset`, the log's end; None where nothing is written.

        The waiter may be answered before this returns. ImpossibleRecord for a fault of ours.
        """
        is_limited = not isinstance(order, FromBrokers)
        if is_limited and self._is_full(waiter.host):
            waiter.refused(ApiError(ErrorCode.REQUEST_TIMED_OUT, "too many orders wait; try again"))
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
            self._stand(Decided(self._newest, outcome.reply, waiter, waiter.host, deadline_ms))
        else:
            waiter.reply(outcome.reply)
        return None

    def unwritten(self, end_offset: int, error: ApiError) -> None:
        """The log ends there: what was decided above it is undone, and refused."""
        undone = []
        while self._line and self._line[-1].image.end_offset > end_offset:
            undone.append(self._line.pop())
        for one in reversed(undone):
            self._refuse(one, error)

    def committed(self, image: MetadataImage) -> None:
        """The image has moved: answer whoever waited for that."""
        self._image = image
        while self._line and self._line[0].image.end_offset <= self._image.end_offset:
            one = self._line.popleft()
            self._leave(one.host)
            if one.waiter is not None:
                one.waiter.reply(one.reply)

    def expire(self, monotonic_ms: int) -> None:
        """Tell whoever has waited for too long; what was decided stays in line."""
        due = [one for one in self._line if one.waiter and one.deadline_ms <= monotonic_ms]
        for one in due:
            waiter, one.waiter = one.waiter, None
            assert waiter is not None
            waiter.refused(
                ApiError(ErrorCode.REQUEST_TIMED_OUT, "decided, and not in force in time")
            )

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `expire`."""
        return min((one.deadline_ms for one in self._line if one.waiter), default=None)

    def lose(self) -> None:
        """Another epoch begins: what is in line may be committed or not, nobody here will know."""
        line, self._line = self._line, deque()
        for one in line:
            self._refuse(
                one, ApiError(ErrorCode.NOT_CONTROLLER, "another controller has taken over")
            )

    @property
    def _newest(self) -> MetadataImage:
        return self._line[-1].image if self._line else self._image

    def _base(self, end_offset: int) -> MetadataImage:
        """The image with all that is decided, as of where the next batch will stand."""
        newest = self._newest
        assert newest.end_offset <= end_offset
        return replace(newest, end_offset=end_offset)

    def _decided(
        self,
        records: Sequence[MetadataRecord],
        reply: Any,
        waiter: Waiter | None,
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
                    f"{BATCH_BYTES_MAX} are written at a time: ask for less at once",
                )
            )
            return None
        self._stand(Decided(image, reply, waiter, waiter.host if waiter else None, deadline_ms))
        return bytes(batch)

    def _is_full(self, host: str | None) -> bool:
        # A connection has one order under way, but what is decided stays in line when its
        # connection ends, and folders are made one after the other.
        if len(self._line) >= self._limits.pending_max:
            return True
        return host is not None and self._waiting_of[host] >= self._limits.pending_max_per_host

    def _stand(self, one: Decided) -> None:
        self._line.append(one)
        if one.host is not None:
            self._waiting_of[one.host] += 1

    def _leave(self, host: str | None) -> None:
        if host is not None:
            self._waiting_of[host] -= 1
            if not self._waiting_of[host]:
                del self._waiting_of[host]

    def _refuse(self, one: Decided, error: ApiError) -> None:
        self._leave(one.host)
        if one.waiter is not None:
            one.waiter.refused(error)
