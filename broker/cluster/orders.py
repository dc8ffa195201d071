"""Orders for the metadata, given to whichever broker decides: here, or at the active controller.

Floor: cluster. Clients give their orders to any broker. One that is not the controller passes them
on in an Envelope (KIP-590), with the client's address, for limits count there; what it wants itself
it asks for in the same words. While nobody decides, or whoever was asked does not, an order waits
and is tried again.

When its controller is lost behind it, dead or deposed, nobody knows whether it was carried out. The
next controller has replayed all that was, so that one is asked, as by Kafka's brokers: what had
been carried out is refused in words that say so (TOPIC_ALREADY_EXISTS). An order that could hit
what others have made since is not given again: its client is told that the time is up, and looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.cluster.controller_driver import ControllerDriver, Order
from broker.cluster.envelopes import opened_answer, packed
from broker.config import InForce
from broker.controller.active import ORDER_TIMEOUT_MS, Waiter, patience_ms
from broker.controller.outcome import AllocateProducerIds, CreateOwnTopic
from broker.controller.topics import own_topic
from broker.sessions.peers import LinkKind, Peers
from broker.world import End, World
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.membership import EnvelopeResponse, UnregisterBrokerRequest
from protocol.messages.producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.types import NO_NODE
from protocol.wire.schema import Message

RETRY_MS = 50
"""Before an order is tried again that nobody could decide."""

NEVER_ASKED = frozenset({End.REFUSED, End.UNREACHABLE, End.UNRESOLVED})
"""Ends of links that have not stood: what was to go over them has gone nowhere."""

ONCE = (DeleteTopicsRequest, UnregisterBrokerRequest)
"""Orders by a name or an id that may be another's by the time they are given again."""


@dataclass(slots=True, eq=False)
class _Passed:
    """An order as it is passed on, and who waits for it."""

    order: Order
    waiter: Waiter
    message: Message
    answered: Callable[[Any], None]
    """Takes the answer to `message`."""
    deadline_ms: int
    try_number: int = 0
    """Of the newest try: who answers an earlier one is heard no more."""
    asked_id: int = NO_NODE
    """Who has been asked, and may still answer."""


class Orders:
    """This broker's way to the active controller."""

    def __init__(
        self,
        controller: ControllerDriver,
        leader_id: Callable[[], int],
        peers: Peers,
        world: World,
        settings: InForce,
    ) -> None:
        """`leader_id` says who leads the quorum, as far as this broker knows."""
        self._controller = controller
        self._leader_id = leader_id
        self._peers = peers
        self._world = world
        self._settings = settings
        self._passed: dict[_Passed, None] = {}

    def submit(self, order: Order, waiter: Waiter) -> None:
        """Have an order decided; the waiter is called once, perhaps before this returns."""
        config = self._settings.config
        if len(self._passed) >= config.max_pending_metadata_orders:
            waiter.refused(ApiError(ErrorCode.REQUEST_TIMED_OUT, "too many orders wait; try again"))
            return
        message, answered = self._worded(order, waiter)
        deadline_ms = self._world.clock.monotonic_ms() + patience_ms(order)
        one = _Passed(order, waiter, message, answered, deadline_ms)
        self._passed[one] = None
        self._try(one)

    def leader_changed(self) -> None:
        """Another may lead the quorum: who has been asked before may never answer."""
        leader_id = self._leader_id()
        if leader_id != NO_NODE:
            for one in [one for one in self._passed if one.asked_id not in (NO_NODE, leader_id)]:
                self._lost(one)

    def _worded(self, order: Order, waiter: Waiter) -> tuple[Message, Callable[[Any], None]]:
        """An order as a request, and what takes the answer to it."""
        match order:
            case CreateOwnTopic(name):

                def made(response: CreateTopicsResponse) -> None:
                    code = ErrorCode(response.topics[0].error_code)
                    is_there = code is ErrorCode.TOPIC_ALREADY_EXISTS
                    waiter.reply(ErrorCode.NONE if is_there else code)

                topic = own_topic(name, self._settings.config)
                return CreateTopicsRequest(topics=[topic], timeout_ms=ORDER_TIMEOUT_MS), made
            case AllocateProducerIds(node_id, broker_epoch):

                def given(response: AllocateProducerIdsResponse) -> None:
                    first = response.producer_id_start
                    waiter.reply(range(first, first + response.producer_id_len))

                request = AllocateProducerIdsRequest(broker_id=node_id, broker_epoch=broker_epoch)
                return request, given
            case DeleteTopicsRequest(topic_names=[_, *_] as names):
                # The version in which it goes on knows them under another field.
                states = [DeleteTopicState(name=name) for name in names]
                newer = DeleteTopicsRequest(topics=states, timeout_ms=order.timeout_ms)
                return newer, waiter.reply
            case Message():
                return order, waiter.reply
        raise AssertionError(f"{type(order).__name__} is not passed on")

    def _try(self, one: _Passed) -> None:
        leader_id = self._leader_id()
        if self._world.clock.monotonic_ms() >= one.deadline_ms:
            error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "no controller has decided in time")
            self._refuse(one, error)
        elif self._controller.is_active:
            self._decide_here(one)
        elif leader_id in (NO_NODE, self._settings.config.node_id):
            self._try_later(one)
        elif isinstance(one.message, AllocateProducerIdsRequest):
            self._ask(leader_id, LinkKind.CONTROL, one.message, one, self._answered)
        else:
            envelope = packed(one.message, one.waiter.host)
            self._ask(leader_id, LinkKind.ORDERS, envelope, one, self._opened)

    def _decide_here(self, one: _Passed) -> None:
        def reply(answer: Any) -> None:
            self._end(one)
            one.waiter.reply(answer)

        def refused(error: ApiError) -> None:
            # It was in line when another controller took over.
            if error.code is ErrorCode.NOT_CONTROLLER:
                self._lost(one)
            else:
                self._refuse(one, error)

        self._controller.submit(one.order, Waiter(reply, refused, one.waiter.host))

    def _ask(
        self,
        leader_id: int,
        kind: LinkKind,
        message: Message,
        one: _Passed,
        answered: Callable[[_Passed, Any], None],
    ) -> None:
        one.asked_id = leader_id
        number = one.try_number

        def heard(answer: Any) -> None:
            if number == one.try_number:
                answered(one, answer)

        def failed(end: End) -> None:
            if number != one.try_number:
                return
            if end in NEVER_ASKED:
                self._try_later(one)
            else:
                self._lost(one)

        version = ApiKey(message.api_key).valid_versions[-1]
        self._peers.ask(leader_id, kind, message, version, one.deadline_ms, heard, failed)

    def _opened(self, one: _Passed, envelope: EnvelopeResponse) -> None:
        response = opened_answer(envelope, one.message)
        if response is None:
            self._not_decided(one, ErrorCode(envelope.error_code))
        else:
            self._told(one, response)

    def _answered(self, one: _Passed, response: AllocateProducerIdsResponse) -> None:
        if response.error_code:
            self._not_decided(one, ErrorCode(response.error_code))
        else:
            self._told(one, response)

    def _told(self, one: _Passed, response: Any) -> None:
        self._end(one)
        one.answered(response)

    def _not_decided(self, one: _Passed, code: ErrorCode) -> None:
        if code in (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE):
            self._try_later(one)
        elif code is ErrorCode.NETWORK_EXCEPTION:
            self._lost(one)
        else:
            self._refuse(one, ApiError(code, "the controller has refused it"))

    def _lost(self, one: _Passed) -> None:
        """Whoever was asked will not say whether it is done."""
        if isinstance(one.message, ONCE):
            text = "the controller was lost before it answered: it may be done, or not"
            self._refuse(one, ApiError(ErrorCode.REQUEST_TIMED_OUT, text))
        else:
            self._try_later(one)

    def _try_later(self, one: _Passed) -> None:
        # An answer that comes before the next try is not waited for.
        one.try_number += 1
        one.asked_id = NO_NODE
        self._world.later(RETRY_MS, partial(self._try, one))

    def _refuse(self, one: _Passed, error: ApiError) -> None:
        self._end(one)
        one.waiter.refused(error)

    def _end(self, one: _Passed) -> None:
        one.try_number += 1
        del self._passed[one]
