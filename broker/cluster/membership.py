"""A broker's place in its cluster, as the broker itself sees it.

Floor: cluster. Pure. A broker registers with the active controller, once for each process and again
with the same incarnation wherever a controller may not know its connection: that costs nothing and
gives the same epoch. From then on it sends heartbeats, every `HEARTBEAT_MS` and at once when it has
something else to say. What has become of it, it takes from the replayed metadata alone: answers
only say that it was heard, and that it may stop.

`may_read` is the barrier before old data. A leader that stood still, or was cut off, may have been
deposed without knowing it. It may answer reads only for `READ_LEASE_MS` from the *sending* of a
heartbeat that was answered while it was in service, once it has replayed all that the controller
had decided by then. After a stall of its own, or a fence, what was answered before counts no more.

All times are monotonic ms. Events come as calls, what they lead to goes out as effects, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from broker.cluster.held_id import RETRY_MS_MAX, HeldId
from broker.cluster.membership_effects import (
    Ask,
    Effect,
    Fenced,
    MayStop,
    Refused,
    Registered,
    Unfenced,
)
from broker.controller.liveness import SESSION_TIMEOUT_MS
from broker.metadata.image import BrokerImage
from protocol.errors import ErrorCode
from protocol.messages.membership import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    DamagedTopic,
)
from protocol.types import NO_LEADER_EPOCH, NO_NODE, TopicPartition, uuid_to_base64

HEARTBEAT_MS = 2_000
"""Kafka's `broker.heartbeat.interval.ms`."""

STOP_HEARTBEAT_MS = 200
"""Between heartbeats of a broker that waits to be let go."""

STOP_PATIENCE_MS = 3_000
"""How long a broker that wants to stop waits for an answer before it goes without: so long nobody
has had the controller, or it cannot be reached."""

READ_LEASE_MS = SESSION_TIMEOUT_MS // 2
"""How long reads may be answered after the sending of a heartbeat that was answered."""

ANSWER_TIMEOUT_MS = READ_LEASE_MS
"""How long an answer of the controller is waited for."""

RETRY_MS_MIN = 20
"""Before a request is made again that was not answered as it should; doubled each time."""

FINAL = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REQUEST})
"""Refusals of a registration that waiting does not change."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """The request under way."""

    number: int
    sent_ms: int
    news: int
    """How much there was to say when it left."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """A heartbeat that was answered."""

    sent_ms: int
    end_offset: int
    """How far to replay before it counts."""


def damaged_topics(partitions: Iterable[TopicPartition]) -> list[DamagedTopic]:
    """How a registration and a heartbeat name damaged logs."""
    topics: dict[str, DamagedTopic] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, DamagedTopic(name=topic)).partitions.append(partition)
    return list(topics.values())


class Membership:
    """One process of a broker, until it ends or is refused."""

    def __init__(self, request: BrokerRegistrationRequest) -> None:
        """`request`: its registration."""
        self._request = request
        self._controller = (NO_NODE, NO_LEADER_EPOCH)
        self._is_known_there = False
        """Whether the controller knows this process's connection."""
        self._broker_epoch: int | None = None
        self._own: BrokerImage | None = None
        """What is registered under the id, as of the image."""
        self._replayed_end = 0
        self._is_registered = False
        self._is_fenced = True
        self._is_ready = False
        self._damaged: frozenset[TopicPartition] = frozenset()
        """Whose logs were found damaged since the start."""
        self._wants_stop = False
        self._stop_heard_ms = 0
        """When the controller was last heard of since the broker wants to stop."""
        self._others_count = 0
        """How many others are in service, by the image."""
        self._may_stop = False
        self._is_over = False
        self._news = 0
        """Rises whenever there is something to say."""
        self._asked: _Asked | None = None
        self._number = 0
        self._due_ms: int | None = None
        """When to ask next; None while there is nobody to be asked."""
        self._wait_ms = RETRY_MS_MIN
        self._held_id = HeldId()
        self._stopping_known = 0
        self._heard: list[_Heard] = []
        self._counts_from_ms = 0
        """What was sent before that opens no barrier."""
        self._lease_ms: int | None = None
        """When the heartbeat was sent by which reads may be answered; None: by none."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        if self._is_over:
            return None
        deadlines = [] if self._asked is not None or self._due_ms is None else [self._due_ms]
        if self._is_waiting_to_stop:
            deadlines.append(self._stop_heard_ms + STOP_PATIENCE_MS)
        return min(deadlines, default=None)

    @property
    def broker_epoch(self) -> int | None:
        """Under which this process is registered; None before it is."""
        return self._broker_epoch

    def may_read(self, now_ms: int) -> bool:
        """Whether what this broker holds as leader may be told to readers."""
        return self._lease_ms is not None and now_ms - self._lease_ms < READ_LEASE_MS

    # What happens.

    def controller(self, node_id: int, epoch: int, now_ms: int) -> Sequence[Effect]:
        """Who leads the quorum from here on; NO_NODE if nobody is known to."""
        if (node_id, epoch) == self._controller:
            return ()
        self._controller = (node_id, epoch)
        self._is_known_there = False
        # Whoever was asked before may answer what he likes.
        self._asked = None
        self._held_id.forget()
        self._wait_ms = RETRY_MS_MIN
        self._due_ms = None if node_id == NO_NODE else now_ms
        return self.tick(now_ms)

    def link_lost(self, node_id: int, now_ms: int) -> Sequence[Effect]:
        """The link to a node has ended: the controller there must hear soon who still lives."""
        if node_id != self._controller[0]:
            return ()
        self._is_known_there = False
        return self._say(now_ms)

    def replayed(
        self,
        end_offset: int,
        own: BrokerImage | None,
        others: Iterable[BrokerImage],
        now_ms: int,
    ) -> Sequence[Effect]:
        """The image has moved. `own` is what it has under this id, `others` all that it has under
        other ids: of those, who is about to stop waits until all have heard of it."""
        self._replayed_end, self._own = end_offset, own
        in_service = [one for one in others if not one.is_fenced]
        stopping_count = sum(one.is_stopping for one in in_service)
        self._others_count = len(in_service) - stopping_count
        self._open()
        effects = list(self._look(now_ms))
        is_awaited = stopping_count > self._stopping_known and self._is_known_there
        self._stopping_known = stopping_count
        if self._wants_stop:
            effects += self._let_go_alone()
        return [*effects, *self._say(now_ms)] if is_awaited and not self._is_over else effects

    def ready(self, now_ms: int) -> Sequence[Effect]:
        """The broker can serve: it wants to be in service."""
        self._is_ready = True
        return self._say(now_ms)

    def stop(self, now_ms: int) -> Sequence[Effect]:
        """The broker wants to stop, once nobody counts on it: `MayStop` follows, perhaps at once.

        It comes when the controller says so, when there is nobody left to take over, and when no
        controller has been heard of for `STOP_PATIENCE_MS`.
        """
        self._wants_stop = True
        self._stop_heard_ms = now_ms
        return self._let_go_alone() or self._say(now_ms)

    def damaged(self, partitions: Iterable[TopicPartition], now_ms: int) -> Sequence[Effect]:
        """Whose logs are known to be damaged by now: others should lead them.

        Each heartbeat says so, for one day another may be in sync who is not now.
        """
        before, self._damaged = self._damaged, frozenset(partitions)
        return self._say(now_ms) if self._damaged - before else ()

    def stalled(self, now_ms: int) -> Sequence[Effect]:
        """This process stood still until now: nothing it knew before is sure."""
        self._close(now_ms)
        return self._say(now_ms)

    def tick(self, now_ms: int) -> Sequence[Effect]:
        """The deadline has come."""
        if self._is_waiting_to_stop and now_ms >= self._stop_heard_ms + STOP_PATIENCE_MS:
            return self._let_go()
        if self._due_ms is None or now_ms < self._due_ms or self._asked or self._is_over:
            return ()
        message = self._heartbeat() if self._is_known_there else self._request
        self._number += 1
        self._asked = _Asked(self._number, now_ms, self._news)
        return (Ask(self._number, self._controller[0], message),)

    def answered(self, number: int, answer: Any, now_ms: int) -> Sequence[Effect]:
        """A request has been answered, with an error or without."""
        asked = self._asked
        if asked is None or asked.number != number:
            return ()
        self._asked = None
        code = ErrorCode.of(answer.error_code)
        if isinstance(answer, BrokerRegistrationResponse):
            return self._registered(answer, code, now_ms)
        assert isinstance(answer, BrokerHeartbeatResponse)
        return self._answered(answer, code, asked, now_ms)

    def failed(self, number: int, is_late: bool, now_ms: int) -> Sequence[Effect]:
        """A request has not been answered; `is_late`: the link stands all the same."""
        if self._asked is None or self._asked.number != number:
            return ()
        self._asked = None
        self._is_known_there = self._is_known_there and is_late
        return self._later(now_ms)

    # Registering.

    def _registered(
        self, answer: BrokerRegistrationResponse, code: ErrorCode, now_ms: int
    ) -> Sequence[Effect]:
        if code is ErrorCode.NONE:
            if self._broker_epoch not in (None, answer.broker_epoch):
                return self._taken_out()
            self._broker_epoch = answer.broker_epoch
            self._is_known_there = True
            self._held_id.forget()
            self._wait_ms, self._due_ms = RETRY_MS_MIN, now_ms
            return [*self._look(now_ms), *self.tick(now_ms)]
        text = answer.error_message or code.name
        if code in FINAL:
            return self._refuse(text)
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            is_over = self._held_id.said(now_ms)
            # Whoever was registered before has been replaced by the one that holds the id.
            if is_over or self._broker_epoch is not None:
                return self._refuse(text)
        return self._later(now_ms)

    def _look(self, now_ms: int) -> Sequence[Effect]:
        """Take what has become of this broker from the image."""
        own, broker_epoch = self._own, self._broker_epoch
        if self._is_over or broker_epoch is None:
            return ()
        if own is None or own.broker_epoch < broker_epoch:
            return self._taken_out() if self._is_registered else ()
        if own.broker_epoch > broker_epoch:
            return self._replaced()
        effects: list[Effect] = []
        has_news = not self._is_registered
        if has_news:
            self._is_registered = True
            effects.append(Registered(broker_epoch))
        if own.is_fenced != self._is_fenced:
            self._is_fenced = own.is_fenced
            effects.append(Fenced() if own.is_fenced else Unfenced())
            if own.is_fenced:
                self._close(now_ms)
                has_news = True
        return [*effects, *self._say(now_ms)] if has_news else effects

    def _taken_out(self) -> Sequence[Effect]:
        return self._refuse(
            f"broker {self._request.broker_id} was taken out of the cluster while it ran under "
            f"epoch {self._broker_epoch}; it must start anew"
        )

    def _replaced(self) -> Sequence[Effect]:
        return self._refuse(
            f"the registration of broker {self._request.broker_id}, incarnation "
            f"{uuid_to_base64(self._request.incarnation_id)}, under epoch {self._broker_epoch} is "
            "over: another process has registered under its id, or it was taken out of the "
            "cluster. Only one process may run under an id"
        )

    def _refuse(self, text: str) -> Sequence[Effect]:
        self._is_over = True
        self._lease_ms = None
        self._heard.clear()
        return (Refused(text),)

    # Heartbeats.

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        assert self._broker_epoch is not None
        return BrokerHeartbeatRequest(
            broker_id=self._request.broker_id,
            broker_epoch=self._broker_epoch,
            current_metadata_offset=self._replayed_end - 1,
            want_fence=not self._is_ready,
            want_shut_down=self._wants_stop,
            damaged=damaged_topics(self._damaged),
        )

    def _answered(
        self, answer: BrokerHeartbeatResponse, code: ErrorCode, asked: _Asked, now_ms: int
    ) -> Sequence[Effect]:
        if code is ErrorCode.STALE_BROKER_EPOCH:
            return self._replaced()
        if code is not ErrorCode.NONE:
            self._is_known_there = code is not ErrorCode.NOT_CONTROLLER
            return self._later(now_ms)
        self._wait_ms = RETRY_MS_MIN
        if not answer.is_fenced and asked.sent_ms >= self._counts_from_ms:
            self._heard.append(_Heard(asked.sent_ms, answer.metadata_end_offset))
            self._open()
        interval_ms = STOP_HEARTBEAT_MS if self._is_waiting_to_stop else HEARTBEAT_MS
        self._due_ms = now_ms if asked.news != self._news else asked.sent_ms + interval_ms
        self._stop_heard_ms = now_ms
        effects = self._let_go() if answer.should_shut_down else ()
        return [*effects, *self.tick(now_ms)]

    def _say(self, now_ms: int) -> Sequence[Effect]:
        """There is something to say, so ask at once, or behind the answer that is under way."""
        self._news += 1
        if self._controller[0] == NO_NODE:
            return ()
        self._due_ms = now_ms
        return self.tick(now_ms)

    def _later(self, now_ms: int) -> Sequence[Effect]:
        self._due_ms = now_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, RETRY_MS_MAX)
        return ()

    # Stopping.

    @property
    def _is_waiting_to_stop(self) -> bool:
        return self._wants_stop and not self._may_stop

    def _let_go(self) -> Sequence[Effect]:
        if self._may_stop or self._is_over:
            return ()
        self._may_stop = True
        return (MayStop(),)

    def _let_go_alone(self) -> Sequence[Effect]:
        """Go without being told so, if nobody counts on this broker or can take over from it."""
        is_out = self._own is None or self._own.is_fenced or not self._is_registered
        return self._let_go() if is_out or self._others_count == 0 else ()

    # The barrier.

    def _open(self) -> None:
        """Let those heartbeats count whose controller knew nothing that is not replayed here."""
        while self._heard and self._heard[0].end_offset <= self._replayed_end:
            self._lease_ms = self._heard.pop(0).sent_ms

    def _close(self, now_ms: int) -> None:
        self._lease_ms = None
        self._heard.clear()
        self._counts_from_ms = now_ms
