"""Sends requests that change the metadata to the active controller, on this broker or on another
broker.

Clients send these requests to any broker. A broker that is not the active controller forwards them
in an Envelope (KIP-590). The envelope has the client's address and user, because the controller
applies the client's limits and rights. The broker's own requests take the same path. If there is no
active controller, or the asked broker is not the controller, the request waits and is retried.

If the controller dies or is deposed before it answers, the broker does not know whether the request
was carried out. The next controller has replayed everything that was carried out, so the broker
sends the request to it again, as in Kafka. If the request had been carried out, the answer shows it
(for example TOPIC_ALREADY_EXISTS). A request is not repeated if it could change an object that
another client has created in the meantime. Its client gets a timeout error and must check the
result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from broker.cluster.controller_driver import ControllerDriver, Order
from broker.cluster.envelopes import opened_answer, packed
from broker.config import InForce
from broker.controller.active import ORDER_TIMEOUT_MS, OrderWaiter, patience_ms
from broker.controller.outcome import AllocateProducerIds, CreateOwnTopic
from broker.controller.topics import own_topic
from broker.sessions.peers import LinkKind, Peers
from broker.world import End, World
from protocol.errors import ApiError, EncodeError, ErrorCode, WireError
from protocol.messages.membership import EnvelopeResponse, UnregisterBrokerRequest
from protocol.messages.producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.messages.voters import AddRaftVoterRequest, RemoveRaftVoterRequest
from protocol.types import NO_NODE
from protocol.wire.schema import Message

RETRY_MS = 50
"""The wait in milliseconds before a request is retried that no controller could decide."""

NEVER_ASKED = frozenset({End.REFUSED, End.UNREACHABLE, End.UNRESOLVED})
"""The results of connections that were never made, so that the request was not sent."""

NOT_REPEATED = (
    DeleteTopicsRequest,
    UnregisterBrokerRequest,
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
)
"""The requests that are not repeated, because another client can reuse the name or id in the
meantime. A voter that was removed in the meantime must not be added again either."""


@dataclass(slots=True, eq=False)
class _PendingOrder:
    """A request that the controller has not yet answered, with its waiter."""

    order: Order
    waiter: OrderWaiter
    message: Message
    answered: Callable[[Any], None]
    """The function that handles the answer to `message`."""
    deadline_ms: int
    try_number: int = 0
    """The number of the newest attempt. Answers to earlier attempts are ignored."""
    asked_id: int = NO_NODE
    """The node that has the request and has not answered; NO_NODE if there is none."""


class OrderForwarder:
    """This broker's path to the active controller."""

    def __init__(
        self,
        controller: ControllerDriver,
        leader_id: Callable[[], int],
        peers: Peers,
        world: World,
        settings: InForce,
    ) -> None:
        """`leader_id` returns the leader of the quorum as far as this broker knows; else
        NO_NODE."""
        self._controller = controller
        self._leader_id = leader_id
        self._peers = peers
        self._world = world
        self._settings = settings
        self._pending: dict[_PendingOrder, None] = {}

    def submit(self, order: Order, waiter: OrderWaiter) -> None:
        """Submit a request. The waiter is called once, possibly before this method returns."""
        config = self._settings.config
        if len(self._pending) >= config.max_pending_metadata_orders:
            waiter.refused(
                ApiError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "too many requests are waiting for the controller; try again",
                )
            )
            return
        message, answered = self._as_request(order, waiter)
        deadline_ms = self._world.clock.monotonic_ms() + patience_ms(order)
        one = _PendingOrder(order, waiter, message, answered, deadline_ms)
        self._pending[one] = None
        self._try(one)

    def leader_changed(self) -> None:
        """Handle a new leader of the quorum.

        Requests that were sent to the former leader are sent again, because it possibly never
        answers them.
        """
        leader_id = self._leader_id()
        if leader_id != NO_NODE:
            for one in [one for one in self._pending if one.asked_id not in (NO_NODE, leader_id)]:
                self._lost(one)

    def _as_request(
        self, order: Order, waiter: OrderWaiter
    ) -> tuple[Message, Callable[[Any], None]]:
        """Return the message for a request, and the function that handles its answer."""
        match order:
            case CreateOwnTopic(name):

                def made(response: CreateTopicsResponse) -> None:
                    codes = [ErrorCode.of(topic.error_code) for topic in response.topics]
                    code = codes[0] if codes else ErrorCode.UNKNOWN_SERVER_ERROR
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
                # The forwarded version of the request has the names in another field.
                states = [DeleteTopicState(name=name) for name in names]
                newer = DeleteTopicsRequest(topics=states, timeout_ms=order.timeout_ms)
                return newer, waiter.reply
            case Message():
                return order, waiter.reply
        raise AssertionError(
            f"{type(order).__name__} is not a request that brokers forward to the controller"
        )

    def _try(self, one: _PendingOrder) -> None:
        leader_id = self._leader_id()
        if self._world.clock.monotonic_ms() >= one.deadline_ms:
            error = ApiError(
                ErrorCode.REQUEST_TIMED_OUT, "no controller decided the request in time; try again"
            )
            self._refuse(one, error)
        elif self._controller.is_active:
            self._decide_here(one)
        elif leader_id in (NO_NODE, self._settings.config.node_id):
            self._try_later(one)
        elif isinstance(one.message, AllocateProducerIdsRequest):
            self._ask(leader_id, LinkKind.CONTROL, one.message, one, self._answered)
        else:
            self._forward(leader_id, one)

    def _forward(self, leader_id: int, one: _PendingOrder) -> None:
        version = self._peers.version_for(leader_id, one.message.api_key)
        if version is None:
            self._refuse_version(one)
            return
        try:
            envelope = packed(one.message, version, one.waiter.host, one.waiter.user)
        except EncodeError:
            # The request has a field that does not exist in the controller's versions.
            self._refuse_version(one)
            return
        self._ask(leader_id, LinkKind.ORDERS, envelope, one, partial(self._opened, version))

    def _decide_here(self, one: _PendingOrder) -> None:
        def reply(answer: Any) -> None:
            self._end(one)
            one.waiter.reply(answer)

        def refused(error: ApiError) -> None:
            # Another controller became active while the request was waiting for its commit.
            if error.code is ErrorCode.NOT_CONTROLLER:
                self._lost(one)
            else:
                self._refuse(one, error)

        waiter = OrderWaiter(reply, refused, one.waiter.host, one.waiter.user)
        self._controller.submit(one.order, waiter)

    def _ask(
        self,
        leader_id: int,
        kind: LinkKind,
        message: Message,
        one: _PendingOrder,
        answered: Callable[[_PendingOrder, Any], None],
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
            elif end is End.UNSUPPORTED:
                self._refuse_version(one)
            else:
                self._lost(one)

        self._peers.ask(leader_id, kind, message, one.deadline_ms, heard, failed)

    def _opened(self, version: int, one: _PendingOrder, envelope: EnvelopeResponse) -> None:
        try:
            response = opened_answer(envelope, one.message, version)
        except WireError as error:
            text = (
                f"the controller's answer cannot be decoded ({error}); check whether the change"
                " was made"
            )
            self._refuse(one, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, text))
            return
        if response is None:
            self._not_decided(one, ErrorCode.of(envelope.error_code))
        else:
            self._complete(one, response)

    def _answered(self, one: _PendingOrder, response: AllocateProducerIdsResponse) -> None:
        if response.error_code:
            self._not_decided(one, ErrorCode.of(response.error_code))
        else:
            self._complete(one, response)

    def _complete(self, one: _PendingOrder, response: Any) -> None:
        self._end(one)
        one.answered(response)

    def _not_decided(self, one: _PendingOrder, code: ErrorCode) -> None:
        if code in (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE):
            self._try_later(one)
        elif code is ErrorCode.NETWORK_EXCEPTION:
            self._lost(one)
        else:
            self._refuse(one, ApiError(code, "the controller refused the request"))

    def _lost(self, one: _PendingOrder) -> None:
        """Handle a request whose controller was lost before it answered. It is unknown whether the
        request was carried out."""
        if isinstance(one.message, NOT_REPEATED):
            text = "the controller was lost before it answered; check whether the change was made"
            self._refuse(one, ApiError(ErrorCode.REQUEST_TIMED_OUT, text))
        else:
            self._try_later(one)

    def _try_later(self, one: _PendingOrder) -> None:
        # Ignore an answer to this attempt that comes before the next one.
        one.try_number += 1
        one.asked_id = NO_NODE
        self._world.later(RETRY_MS, partial(self._try, one))

    def _refuse_version(self, one: _PendingOrder) -> None:
        text = "this broker and the controller run releases that share no version of this request"
        self._refuse(one, ApiError(ErrorCode.UNSUPPORTED_VERSION, text))

    def _refuse(self, one: _PendingOrder, error: ApiError) -> None:
        self._end(one)
        one.waiter.refused(error)

    def _end(self, one: _PendingOrder) -> None:
        one.try_number += 1
        del self._pending[one]
