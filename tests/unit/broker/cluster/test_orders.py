"""Orders that are forwarded to the active controller."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.cluster.orders import RETRY_MS, OrderForwarder
from broker.config import InForce
from broker.controller.active import ORDER_TIMEOUT_MS, OrderWaiter
from broker.controller.outcome import AllocateProducerIds, CreateOwnTopic
from broker.metadata.image import OFFSETS_TOPIC
from broker.sessions.peers import LinkKind
from broker.world import End
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import FORWARDED, ApiKey, request_class
from protocol.messages.headers import decode_request_header, encode_response
from protocol.messages.membership import EnvelopeResponse
from protocol.messages.producer_ids import AllocateProducerIdsResponse
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from protocol.types import NO_NODE
from protocol.wire.schema import Struct
from tests.sim.world import SimWorld
from tests.unit.storage.kit import broker_config

ORDER = DeleteTopicsRequest(topic_names=["t"])
MAKING = CreateTopicsRequest(topics=[CreatableTopic(name="t", configs=[])])
MADE = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", configs=[])])
LATER_CODE = 999
"""An error code of a later release."""


class Scene:
    """Broker 1, which forwards orders to broker 2, and the results of the orders."""

    def __init__(self, **settings: object) -> None:
        self.world = SimWorld(1)
        self.leader_id = 2
        self.is_active = False
        self.is_deposed = False
        """True if this broker is deposed before the order is committed."""
        self.decided: list[Any] = []
        self.asked: list[SimpleNamespace] = []
        self.told: list[Any] = []
        config = broker_config({key.replace("_", "."): one for key, one in settings.items()})
        controller: Any = self
        self.versions: dict[int, int | None] = {key: one[-1] for key, one in FORWARDED.items()}
        """The version of each order that the controller understands; None if there is none."""
        peers: Any = SimpleNamespace(
            ask=self._ask, version_for=lambda node_id, key: self.versions[key]
        )
        self.orders = OrderForwarder(
            controller, lambda: self.leader_id, peers, self.world, InForce(config)
        )

    def submit(self, order: Any, waiter: OrderWaiter) -> None:
        """Decide an order on this broker, as its own active controller. A deposed controller
        refuses the order."""
        self.decided.append(order)
        if self.is_deposed:
            self.is_active = False
            waiter.refused(ApiError(ErrorCode.NOT_CONTROLLER))
        else:
            waiter.reply("decided here")

    def _ask(self, node_id: int, kind: LinkKind, message: Any, *rest: Any) -> None:
        answered, failed = rest[-2:]
        self.asked.append(
            SimpleNamespace(
                node_id=node_id, kind=kind, message=message, answered=answered, failed=failed
            )
        )

    def give(self, order: Any, host: str | None = "10.1.2.3") -> None:
        def refused(error: ApiError) -> None:
            self.told.append(error.code)

        self.orders.submit(order, OrderWaiter(self.told.append, refused, host))

    def answer(self, response: Any, key: ApiKey) -> None:
        version = self.versions[key]
        assert version is not None
        frame = encode_response(response, version, 0, key)
        self.asked.pop().answered(EnvelopeResponse(response_data=frame[4:]))


def unwrapped(envelope: Any) -> Any:
    """Return the request that is inside an envelope."""
    header, position = decode_request_header(envelope.request_data)
    cls = request_class(header.request_api_key)
    return cls.decode(envelope.request_data, header.request_api_version, position)[0]


def test_an_order_goes_in_an_envelope_with_its_clients_address() -> None:
    scene = Scene()
    scene.give(ORDER)
    (asked,) = scene.asked
    assert (asked.node_id, asked.kind) == (2, LinkKind.ORDERS)
    assert asked.message.client_host_address == bytes([10, 1, 2, 3])
    assert [state.name for state in unwrapped(asked.message).topics] == ["t"]
    scene.answer(DeleteTopicsResponse(), ApiKey.DELETE_TOPICS)
    assert scene.told == [DeleteTopicsResponse()]


def test_an_order_is_forwarded_in_a_version_that_the_controller_understands() -> None:
    scene = Scene()
    scene.versions[ApiKey.CREATE_TOPICS] = 6
    scene.give(MAKING)
    header, _ = decode_request_header(scene.asked[0].message.request_data)
    assert header.request_api_version == 6
    scene.answer(MADE, ApiKey.CREATE_TOPICS)
    assert scene.told == [MADE]


def test_an_order_that_the_controller_does_not_understand_is_refused() -> None:
    scene = Scene()
    # Version 5 of DeleteTopics has no field for what the order names.
    for version in (None, 5):
        scene.told.clear()
        scene.versions[ApiKey.DELETE_TOPICS] = version
        scene.give(ORDER)
        assert (scene.asked, scene.told) == ([], [ErrorCode.UNSUPPORTED_VERSION])
    # The brokers have no common version of Envelope or AllocateProducerIds.
    scene.versions[ApiKey.DELETE_TOPICS] = 6
    for order in (ORDER, AllocateProducerIds(1, 5)):
        scene.told.clear()
        scene.give(order)
        scene.asked.pop().failed(End.UNSUPPORTED)
        assert scene.told == [ErrorCode.UNSUPPORTED_VERSION]
    # The controller was replaced by another release after it was asked for its versions.
    scene.told.clear()
    scene.give(ORDER)
    scene.asked.pop().answered(EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
    assert scene.told == [ErrorCode.UNSUPPORTED_VERSION]
    scene.world.run_for(ORDER_TIMEOUT_MS)
    assert scene.asked == []


@pytest.mark.parametrize(
    "envelope",
    [
        EnvelopeResponse(error_code=LATER_CODE),
        EnvelopeResponse(response_data=b""),
        EnvelopeResponse(response_data=b"\0\0\0\0\0\xff"),
    ],
    ids=["unknown-code", "empty", "cut"],
)
def test_an_answer_that_cannot_be_understood_refuses_only_its_order(
    envelope: EnvelopeResponse,
) -> None:
    """An error in a callback of a link would end the broker."""
    scene = Scene()
    scene.give(ORDER)
    scene.asked.pop().answered(envelope)
    assert scene.told == [ErrorCode.UNKNOWN_SERVER_ERROR]
    scene.world.run_for(ORDER_TIMEOUT_MS)
    assert (scene.asked, scene.told) == ([], [ErrorCode.UNKNOWN_SERVER_ERROR])


def test_own_orders_take_an_unknown_error_code_too() -> None:
    scene = Scene()
    scene.give(AllocateProducerIds(1, 5))
    scene.asked.pop().answered(AllocateProducerIdsResponse(error_code=LATER_CODE))
    scene.give(CreateOwnTopic(OFFSETS_TOPIC))
    result = CreatableTopicResult(name=OFFSETS_TOPIC, error_code=LATER_CODE, configs=[])
    scene.answer(CreateTopicsResponse(topics=[result]), ApiKey.CREATE_TOPICS)
    assert scene.told == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


def test_an_answer_without_the_topic_refuses_its_creation() -> None:
    """An error in a callback of a link would end the broker."""
    scene = Scene()
    scene.give(CreateOwnTopic(OFFSETS_TOPIC))
    scene.answer(CreateTopicsResponse(topics=[]), ApiKey.CREATE_TOPICS)
    assert scene.told == [ErrorCode.UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize("key", FORWARDED, ids=lambda key: key.name)
def test_no_order_loses_a_field_in_its_envelope(key: ApiKey) -> None:
    """Clients can use older versions than the envelope does, so no field of an older version may be
    lost."""
    old = fields_before(request_class(key), FORWARDED[key][0])
    # `OrderForwarder` and `handlers/quorum` translate these two fields to fields of the last
    # version.
    assert old <= {"topic_names", "allow_downgrade"}, "no field of an older version is forgotten"


def fields_before(cls: type[Struct], version: int) -> set[str]:
    """Return the names of all fields of a request, at any depth, that end before this version."""
    found = {field.name for field in cls.fields if field.until < version}
    for field in cls.fields:
        if isinstance(field.element, type) and issubclass(field.element, Struct):
            found |= fields_before(field.element, version)
    return found


def test_an_order_waits_while_nobody_decides_and_is_then_decided_here() -> None:
    scene = Scene()
    scene.leader_id = NO_NODE
    scene.give(ORDER)
    scene.world.run_for(10 * RETRY_MS)
    assert (scene.asked, scene.told) == ([], [])
    scene.is_active = True
    scene.world.run_for(RETRY_MS)
    assert (scene.decided, scene.told) == ([ORDER], ["decided here"])


def test_nobody_waits_for_ever() -> None:
    scene = Scene()
    scene.leader_id = NO_NODE
    scene.give(ORDER)
    scene.world.run_for(ORDER_TIMEOUT_MS + RETRY_MS)
    assert scene.told == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(("asked_ms", "waited_ms"), [(4_000, 4_000), (90_000, ORDER_TIMEOUT_MS)])
def test_an_order_waits_no_longer_than_its_client(asked_ms: int, waited_ms: int) -> None:
    scene = Scene()
    scene.leader_id = NO_NODE
    scene.give(CreateTopicsRequest(topics=MAKING.topics, timeout_ms=asked_ms))
    scene.world.run_for(waited_ms - RETRY_MS)
    assert scene.told == []
    scene.world.run_for(2 * RETRY_MS)
    assert scene.told == [ErrorCode.REQUEST_TIMED_OUT]


def test_an_order_of_no_time_at_all_is_decided_all_the_same() -> None:
    """librdkafka sends a timeout of 0 by default, and Kafka decides such requests."""
    scene = Scene()
    scene.leader_id = NO_NODE
    scene.give(CreateTopicsRequest(topics=MAKING.topics, timeout_ms=0))
    scene.world.run_for(10 * RETRY_MS)
    scene.is_active = True
    scene.world.run_for(RETRY_MS)
    assert scene.told == ["decided here"]


@pytest.mark.parametrize("end", [End.REFUSED, End.UNREACHABLE, End.UNRESOLVED])
def test_what_has_gone_nowhere_is_passed_on_again(end: End) -> None:
    scene = Scene()
    scene.give(ORDER)
    scene.asked.pop().failed(end)
    scene.leader_id = 3
    scene.world.run_for(RETRY_MS)
    assert [asked.node_id for asked in scene.asked] == [3]
    assert scene.told == []


@pytest.mark.parametrize("end", [End.RESET, End.EOF, End.TIMED_OUT, End.CLOSED])
def test_what_may_have_been_done_is_given_to_the_next_controller(end: End) -> None:
    """As in Kafka, the order is sent again to the next controller. If the order was committed, that
    controller has replayed it and answers accordingly."""
    scene = Scene()
    scene.give(MAKING)
    scene.asked.pop().failed(end)
    scene.leader_id = 3
    scene.world.run_for(RETRY_MS)
    assert ([asked.node_id for asked in scene.asked], scene.told) == ([3], [])
    scene.answer(MADE, ApiKey.CREATE_TOPICS)
    assert scene.told == [MADE]


def test_an_order_in_line_when_its_controller_is_replaced_is_given_to_the_next() -> None:
    scene = Scene()
    scene.give(MAKING)
    scene.asked.pop().answered(EnvelopeResponse(error_code=ErrorCode.NETWORK_EXCEPTION))
    scene.world.run_for(RETRY_MS)
    assert (len(scene.asked), scene.told) == (1, [])


def test_a_controller_that_answers_no_more_is_not_waited_for_once_another_leads() -> None:
    scene = Scene()
    scene.give(MAKING)
    frozen = scene.asked.pop()
    scene.leader_id = NO_NODE
    scene.orders.leader_changed()
    scene.world.run_for(RETRY_MS)
    assert not scene.asked, "it may answer yet"
    scene.leader_id = 3
    scene.orders.leader_changed()
    scene.world.run_for(RETRY_MS)
    assert [asked.node_id for asked in scene.asked] == [3]
    # Broker 3 has the order, so the late response of the frozen controller and the end of its
    # connection are ignored.
    frozen.answered(EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))
    frozen.failed(End.RESET)
    scene.answer(MADE, ApiKey.CREATE_TOPICS)
    scene.orders.leader_changed()
    scene.world.run_for(ORDER_TIMEOUT_MS)
    assert (scene.asked, scene.told) == ([], [MADE])


def test_an_order_in_line_here_when_another_takes_over_is_given_to_that_one() -> None:
    scene = Scene()
    scene.is_active = scene.is_deposed = True
    scene.give(MAKING)
    assert (scene.decided, scene.told) == ([MAKING], [])
    scene.leader_id = 3
    scene.world.run_for(RETRY_MS)
    assert [asked.node_id for asked in scene.asked] == [3]
    scene.answer(MADE, ApiKey.CREATE_TOPICS)
    assert scene.told == [MADE]


@pytest.mark.parametrize("end", [End.RESET, End.EOF, End.TIMED_OUT, End.CLOSED])
def test_what_could_hit_a_namesake_is_not_given_again(end: End) -> None:
    scene = Scene()
    scene.give(ORDER)
    scene.asked.pop().failed(end)
    scene.world.run_for(ORDER_TIMEOUT_MS)
    assert (scene.asked, scene.told) == ([], [ErrorCode.REQUEST_TIMED_OUT])


def test_whoever_does_not_decide_is_asked_again_and_other_refusals_are_handed_on() -> None:
    scene = Scene()
    scene.give(ORDER)
    scene.asked.pop().answered(EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
    scene.world.run_for(RETRY_MS)
    scene.asked.pop().answered(EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))
    scene.world.run_for(ORDER_TIMEOUT_MS)
    assert (scene.asked, scene.told) == ([], [ErrorCode.INVALID_REQUEST])


def test_no_more_orders_wait_than_are_allowed() -> None:
    scene = Scene(max_pending_metadata_orders=3)
    for _ in range(4):
        scene.give(ORDER)
    assert len(scene.asked) == 3
    assert scene.told == [ErrorCode.REQUEST_TIMED_OUT]
    scene.answer(DeleteTopicsResponse(), ApiKey.DELETE_TOPICS)
    scene.give(ORDER)
    assert len(scene.asked) == 3


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (ErrorCode.NONE, ErrorCode.NONE),
        (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE),
        (ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_topic_of_the_brokers_own_is_asked_for_with_its_settings(
    code: ErrorCode, told: ErrorCode
) -> None:
    scene = Scene()
    scene.give(CreateOwnTopic(OFFSETS_TOPIC), None)
    envelope = scene.asked[0].message
    assert envelope.client_host_address == b""
    (topic,) = unwrapped(envelope).topics
    assert {one.name: one.value for one in topic.configs}["cleanup.policy"] == "compact"
    response = CreateTopicsResponse(
        topics=[CreatableTopicResult(name=OFFSETS_TOPIC, error_code=code, configs=[])]
    )
    scene.answer(response, ApiKey.CREATE_TOPICS)
    assert scene.told == [told]


def test_producer_ids_are_asked_for_as_such() -> None:
    scene = Scene()
    scene.give(AllocateProducerIds(1, 7), None)
    (asked,) = scene.asked
    assert (asked.kind, asked.message.broker_id, asked.message.broker_epoch) == (
        LinkKind.CONTROL, 1, 7,
    )  # fmt: skip
    asked.answered(AllocateProducerIdsResponse(producer_id_start=5_000, producer_id_len=1_000))
    assert scene.told == [range(5_000, 6_000)]
