"""Orders for the metadata, given to whichever broker decides: here, or at the active controller.

Floor: cluster. Clients give their orders to any broker. One that is not the controller passes them
on in an Envelope (KIP-590), with the client's address, for limits count there; what it wants itself
it asks for in the same words. While nobody decides, or whoever was asked does not, an order waits
and is tried again. When the link breaks behind it nobody knows whether it was carried out: the
client is told that the time is up, as Kafka does, and looks or asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Any

from broker.cluster.controller_driver import ControllerDriver, Order
from broker.config import InForce
from broker.controller.active import ORDER_TIMEOUT_MS, Waiter
from broker.controller.outcome import AllocateProducerIds, CreateOwnTopic
from broker.controller.topics import own_topic
from broker.sessions.peers import LinkKind, Peers
from broker.world import End, World
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey, response_class
from protocol.messages.headers import decode_response_header, encode_request
from protocol.messages.membership import EnvelopeRequest, EnvelopeResponse
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

SIZE_BYTES = 4
"""Before each frame stands its size, which an envelope says itself."""

NEVER_ASKED = frozenset({End.REFUSED, End.UNREACHABLE, End.UNRESOLVED})
"""Ends of links that have not stood: what was to go over them has gone nowhere."""


@dataclass(slots=True)
class _Passed:
    """An order as it is passed on, and who waits for it."""

    order: Order
    waiter: Waiter
    message: Message
    answered: Callable[[Any], None]
    """Takes the answer to `message`."""
    deadline_ms: int


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
        self._passed_count = 0

    def submit(self, order: Order, waiter: Waiter) -> None:
        """Have an order decided; the waiter is called once, perhaps before this returns."""
        if self._controller.is_active:
            self._controller.submit(order, waiter)
            return
        config = self._settings.config
        if self._passed_count >= config.max_pending_metadata_orders:
            waiter.refused(ApiError(ErrorCode.REQUEST_TIMED_OUT, "too many orders wait; try again"))
            return
        message, answered = self._worded(order, waiter)
        deadline_ms = self._world.clock.monotonic_ms() + ORDER_TIMEOUT_MS
        self._passed_count += 1
        self._try(_Passed(order, waiter, message, answered, deadline_ms))

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
        if self._controller.is_active:
            self._passed_count -= 1
            self._controller.submit(one.order, one.waiter)
        elif self._world.clock.monotonic_ms() >= one.deadline_ms:
            self._refuse(one, ErrorCode.REQUEST_TIMED_OUT, "no controller has decided in time")
        elif leader_id in (NO_NODE, self._settings.config.node_id):
            self._try_later(one)
        elif isinstance(one.message, AllocateProducerIdsRequest):
            self._ask(leader_id, LinkKind.CONTROL, one.message, one, partial(self._answered, one))
        else:
            self._ask(
                leader_id,
                LinkKind.ORDERS,
                _envelope(one.message, one.waiter.host),
                one,
                partial(self._opened, one),
            )

    def _ask(
        self,
        leader_id: int,
        kind: LinkKind,
        message: Message,
        one: _Passed,
        answered: Callable[[Any], None],
    ) -> None:
        version = ApiKey(message.api_key).valid_versions[-1]
        self._peers.ask(
            leader_id, kind, message, version, one.deadline_ms, answered, partial(self._failed, one)
        )

    def _opened(self, one: _Passed, envelope: EnvelopeResponse) -> None:
        if envelope.error_code or envelope.response_data is None:
            self._not_decided(one, ErrorCode(envelope.error_code))
            return
        key = ApiKey(one.message.api_key)
        version = key.valid_versions[-1]
        frame = bytes(envelope.response_data)
        _, position = decode_response_header(frame, key, version)
        response, _ = response_class(key).decode(frame, version, position)
        self._passed_count -= 1
        one.answered(response)

    def _answered(self, one: _Passed, response: AllocateProducerIdsResponse) -> None:
        if response.error_code:
            self._not_decided(one, ErrorCode(response.error_code))
        else:
            self._passed_count -= 1
            one.answered(response)

    def _not_decided(self, one: _Passed, code: ErrorCode) -> None:
        if code in (ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE):
            self._try_later(one)
        else:
            self._refuse(one, code, "the controller has refused it")

    def _failed(self, one: _Passed, end: End) -> None:
        if end in NEVER_ASKED:
            self._try_later(one)
        else:
            self._refuse(
                one,
                ErrorCode.REQUEST_TIMED_OUT,
                "the controller was lost before it answered: it may be done, or not",
            )

    def _try_later(self, one: _Passed) -> None:
        self._world.later(RETRY_MS, partial(self._try, one))

    def _refuse(self, one: _Passed, code: ErrorCode, text: str) -> None:
        self._passed_count -= 1
        one.waiter.refused(ApiError(code, text))


def _envelope(message: Message, host: str | None) -> EnvelopeRequest:
    version = ApiKey(message.api_key).valid_versions[-1]
    frame = encode_request(message, version, 0, None)
    return EnvelopeRequest(request_data=frame[SIZE_BYTES:], client_host_address=_packed(host))


def _packed(host: str | None) -> bytes:
    """The address of a client, empty for this broker's own wishes."""
    if host is None:
        return b""
    try:
        return ip_address(host).packed
    except ValueError:
        # A name, of a listener on which no IP addresses are seen.
        return host.encode()
