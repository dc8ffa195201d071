"""A broker's membership in its cluster, as the broker itself sees it.

This module is pure: events come in as calls, and effects go out in order. A broker registers with
the active controller once per process. It registers again, with the same incarnation id, when a
controller possibly does not know its connection. It then gets the same broker epoch. After that it
sends a heartbeat every `HEARTBEAT_MS`, and at once when it has something to report. It learns only
from the replayed metadata whether it is fenced.

`may_read` prevents reads of old data. A leader that was stopped or disconnected for a while can
have been deposed without knowing it. After an answered heartbeat it may answer reads for
`READ_LEASE_MS`, counted from the *sending* of the heartbeat. The broker must have been in service,
and must have replayed everything that the controller had decided when it answered. After a stall of
the broker, or after a fence, earlier answers no longer allow reads. All times are monotonic
milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from broker.cluster.held_id import RETRY_MS_MAX, HeldId
from broker.cluster.membership_effects import (
    BrokerFenced,
    BrokerRefused,
    BrokerRegistered,
    BrokerUnfenced,
    Effect,
    MayStop,
    SendRequest,
)
from broker.controller.liveness import SESSION_TIMEOUT_MS
from broker.metadata.broker_image import BrokerImage
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
"""The default of Kafka's `broker.heartbeat.interval.ms`."""

STOP_HEARTBEAT_MS = 200
"""The heartbeat interval of a broker that waits for permission to stop."""

STOP_PATIENCE_MS = 3_000
"""The longest time for which a broker that wants to stop waits for an answer of the controller."""

READ_LEASE_MS = SESSION_TIMEOUT_MS // 2
"""The time after the sending of an answered heartbeat in which the broker may answer reads."""

ANSWER_TIMEOUT_MS = READ_LEASE_MS
"""The time for which the broker waits for an answer of the controller."""

RETRY_MS_MIN = 20
"""The first wait before a failed request is repeated. The wait doubles each time."""

FINAL = frozenset(
    {ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION}
)
"""The errors of a registration that the broker does not retry."""


@dataclass(frozen=True, slots=True)
class _PendingRequest:
    """The request whose answer this broker waits for."""

    number: int
    sent_ms: int
    reports: int


@dataclass(frozen=True, slots=True)
class _AnsweredHeartbeat:
    """An answered heartbeat, which can allow reads."""

    sent_ms: int
    end_offset: int
    """The offset up to which the metadata must be replayed before this heartbeat allows reads."""


def damaged_topics(partitions: Iterable[TopicPartition]) -> list[DamagedTopic]:
    """Return damaged logs in the form that registrations and heartbeats use."""
    topics: dict[str, DamagedTopic] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, DamagedTopic(name=topic)).partitions.append(partition)
    return list(topics.values())


class BrokerMembership:
    """The membership of one broker process, until the process ends or is refused."""

    def __init__(self, request: BrokerRegistrationRequest) -> None:
        self._request = request
        self._controller = (NO_NODE, NO_LEADER_EPOCH)
        self._is_known_there = False
        """True if the controller knows the connection of this process."""
        self._broker_epoch: int | None = None
        self._own: BrokerImage | None = None
        self._replayed_end = 0
        self._is_registered = False
        self._is_fenced = True
        self._is_ready = False
        self._damaged: frozenset[TopicPartition] = frozenset()
        """The partitions whose logs were found damaged since the start."""
        self._wants_stop = False
        self._stop_heard_ms = 0
        """The time of the controller's last answer, since this broker has asked to stop."""
        self.has_others = False
        """True if another broker is in service and does not stop."""
        self._may_stop = False
        self._is_over = False
        self._reports = 0
        """A number that rises when there is something to report to the controller."""
        self._pending: _PendingRequest | None = None
        self._number = 0
        self._due_ms: int | None = None
        """The time to send the next request; None while there is no controller."""
        self._wait_ms = RETRY_MS_MIN
        self._held_id = HeldId()
        self._stopping_known = 0
        self._heartbeats: list[_AnsweredHeartbeat] = []
        self._counts_from_ms = 0
        self._lease_ms: int | None = None
        """The time at which the heartbeat that allows reads was sent; None without such a
        heartbeat."""

    @property
    def next_deadline_ms(self) -> int | None:
        """The time to call `tick`; None if no request is due."""
        if self._is_over:
            return None
        deadlines = [] if self._pending is not None or self._due_ms is None else [self._due_ms]
        if self._is_waiting_to_stop:
            deadlines.append(self._stop_heard_ms + STOP_PATIENCE_MS)
        return min(deadlines, default=None)

    @property
    def broker_epoch(self) -> int | None:
        """The broker epoch of this process; None before it is registered."""
        return self._broker_epoch

    def may_read(self, now_ms: int) -> bool:
        """Return True if this broker, as a leader, may answer reads now."""
        return self._lease_ms is not None and now_ms - self._lease_ms < READ_LEASE_MS

    # Events.

    def controller(self, node_id: int, epoch: int, now_ms: int) -> Sequence[Effect]:
        """Handle a change of the quorum's leader. `node_id` is NO_NODE if the leader is unknown."""
        if (node_id, epoch) == self._controller:
            return ()
        self._controller = (node_id, epoch)
        self._is_known_there = False
        # Ignore a later answer of the previous controller.
        self._pending = None
        self._held_id.forget()
        self._wait_ms = RETRY_MS_MIN
        self._due_ms = None if node_id == NO_NODE else now_ms
        return self.tick(now_ms)

    def link_lost(self, node_id: int, now_ms: int) -> Sequence[Effect]:
        """Handle an ended link. If it led to the controller, send a heartbeat on a new link, to
        show that this broker is alive."""
        if node_id != self._controller[0]:
            return ()
        self._is_known_there = False
        return self._report(now_ms)

    def replayed(
        self,
        end_offset: int,
        own: BrokerImage | None,
        others: Iterable[BrokerImage],
        now_ms: int,
    ) -> Sequence[Effect]:
        """Handle a changed image. Send a heartbeat at once if another broker in the image wants to
        stop.

        That broker waits until all other brokers have replayed the record of its request. `own` is
        this broker's registration in the image.
        """
        self._replayed_end, self._own = end_offset, own
        in_service = [one for one in others if not one.is_fenced]
        stopping_count = sum(one.is_stopping for one in in_service)
        self.has_others = len(in_service) > stopping_count
        self._allow_reads()
        effects = list(self._compare(now_ms))
        is_awaited = stopping_count > self._stopping_known and self._is_known_there
        self._stopping_known = stopping_count
        if self._wants_stop:
            effects += self._permit_stop_alone()
        return [*effects, *self._report(now_ms)] if is_awaited and not self._is_over else effects

    def ready(self, now_ms: int) -> Sequence[Effect]:
        """Ask to be unfenced, because the broker can serve."""
        self._is_ready = True
        return self._report(now_ms)

    def stop(self, now_ms: int) -> Sequence[Effect]:
        """Ask for permission to stop. The effect `MayStop` follows, possibly from this call.

        The broker may stop when the controller permits it, when no other broker can take over, or
        when the controller has not answered for `STOP_PATIENCE_MS`.
        """
        self._wants_stop = True
        self._stop_heard_ms = now_ms
        return self._permit_stop_alone() or self._report(now_ms)

    def damaged(self, partitions: Iterable[TopicPartition], now_ms: int) -> Sequence[Effect]:
        """Report the partitions with damaged logs, so that other brokers lead them.

        Every heartbeat repeats the report, because another replica can join the in-sync replicas
        later.
        """
        before, self._damaged = self._damaged, frozenset(partitions)
        return self._report(now_ms) if self._damaged - before else ()

    def stalled(self, now_ms: int) -> Sequence[Effect]:
        """Handle a stall of this process: earlier answers no longer allow reads."""
        self._forbid_reads(now_ms)
        return self._report(now_ms)

    def tick(self, now_ms: int) -> Sequence[Effect]:
        """Send the request that is due, or stop if the controller has not answered for too long."""
        if self._is_waiting_to_stop and now_ms >= self._stop_heard_ms + STOP_PATIENCE_MS:
            return self._permit_stop()
        if self._due_ms is None or now_ms < self._due_ms or self._pending or self._is_over:
            return ()
        message = self._heartbeat() if self._is_known_there else self._request
        self._number += 1
        self._pending = _PendingRequest(self._number, now_ms, self._reports)
        return (SendRequest(self._number, self._controller[0], message),)

    def answered(self, number: int, answer: Any, now_ms: int) -> Sequence[Effect]:
        """Handle the answer to a request, with or without an error."""
        asked = self._pending
        if asked is None or asked.number != number:
            return ()
        self._pending = None
        code = ErrorCode.of(answer.error_code)
        if isinstance(answer, BrokerRegistrationResponse):
            return self._registered(answer, code, now_ms)
        assert isinstance(answer, BrokerHeartbeatResponse)
        return self._answered(answer, code, asked, now_ms)

    def failed(self, number: int, is_late: bool, now_ms: int) -> Sequence[Effect]:
        """Handle a request without an answer. `is_late` means that it timed out on an open link."""
        if self._pending is None or self._pending.number != number:
            return ()
        self._pending = None
        self._is_known_there = self._is_known_there and is_late
        return self._later(now_ms)

    # Registration.

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
            return [*self._compare(now_ms), *self.tick(now_ms)]
        text = answer.error_message or code.name
        if code in FINAL:
            return self._refuse(text)
        if code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            is_over = self._held_id.said(now_ms)
            # The broker has an epoch, so it was registered before. The process that has the id now
            # has replaced it.
            if is_over or self._broker_epoch is not None:
                return self._refuse(text)
        return self._later(now_ms)

    def _compare(self, now_ms: int) -> Sequence[Effect]:
        """Compare this broker's registration in the image with its state, and report changes."""
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
            effects.append(BrokerRegistered(broker_epoch))
        if own.is_fenced != self._is_fenced:
            self._is_fenced = own.is_fenced
            effects.append(BrokerFenced() if own.is_fenced else BrokerUnfenced())
            if own.is_fenced:
                self._forbid_reads(now_ms)
                has_news = True
        return [*effects, *self._report(now_ms)] if has_news else effects

    def _taken_out(self) -> Sequence[Effect]:
        return self._refuse(
            f"broker {self._request.broker_id} was taken out of the cluster while it ran under "
            f"epoch {self._broker_epoch}; restart it"
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
        self._heartbeats.clear()
        return (BrokerRefused(text),)

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
        self, answer: BrokerHeartbeatResponse, code: ErrorCode, asked: _PendingRequest, now_ms: int
    ) -> Sequence[Effect]:
        if code is ErrorCode.STALE_BROKER_EPOCH:
            return self._replaced()
        if code is not ErrorCode.NONE:
            self._is_known_there = code is not ErrorCode.NOT_CONTROLLER
            return self._later(now_ms)
        self._wait_ms = RETRY_MS_MIN
        if not answer.is_fenced and asked.sent_ms >= self._counts_from_ms:
            self._heartbeats.append(_AnsweredHeartbeat(asked.sent_ms, answer.metadata_end_offset))
            self._allow_reads()
        interval_ms = STOP_HEARTBEAT_MS if self._is_waiting_to_stop else HEARTBEAT_MS
        self._due_ms = now_ms if asked.reports != self._reports else asked.sent_ms + interval_ms
        self._stop_heard_ms = now_ms
        effects = self._permit_stop() if answer.should_shut_down else ()
        return [*effects, *self.tick(now_ms)]

    def _report(self, now_ms: int) -> Sequence[Effect]:
        """Send a heartbeat with news at once, or after the answer to the current request."""
        self._reports += 1
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

    def _permit_stop(self) -> Sequence[Effect]:
        if self._may_stop or self._is_over:
            return ()
        self._may_stop = True
        return (MayStop(),)

    def _permit_stop_alone(self) -> Sequence[Effect]:
        """Stop without permission if the broker is out of service or no other broker can take
        over."""
        is_out = self._own is None or self._own.is_fenced or not self._is_registered
        return self._permit_stop() if is_out or not self.has_others else ()

    # The permission to answer reads.

    def _allow_reads(self) -> None:
        """Let answered heartbeats allow reads, if this broker has replayed all that the controller
        had decided when it answered."""
        while self._heartbeats and self._heartbeats[0].end_offset <= self._replayed_end:
            self._lease_ms = self._heartbeats.pop(0).sent_ms

    def _forbid_reads(self, now_ms: int) -> None:
        self._lease_ms = None
        self._heartbeats.clear()
        self._counts_from_ms = now_ms
