"""The controller's side of membership: closed connections, probes, and the times at which brokers
are fenced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from broker.cluster.lived import TURN_MS
from broker.cluster.liveness_driver import OWN_LINK, RETRY_MS, LivenessDriver
from broker.cluster.probes import VerdictCallback
from broker.controller.active import OrderWaiter
from broker.controller.liveness import (
    SESSION_TIMEOUT_MS,
    DeadBroker,
    Heartbeat,
    decide_heartbeat,
)
from broker.controller.registration import Registration
from broker.controller.suspicion import RECONNECT_MS, ProbeVerdict
from broker.quorum.voters import ReplicaKey
from broker.world import Address
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import (
    BrokerHeartbeatRequest,
    BrokerRegistrationResponse,
)
from tests.sim.world import SimWorld
from tests.unit.broker.controller.kit import (
    CLUSTER,
    CONFIG,
    NODES,
    ONE,
    THREE,
    TWO,
    disk,
    image_of,
    incarnation,
    partition,
    registration,
)


class Decisions:
    """A double of the controller: it decides heartbeats, and the test answers all other orders."""

    def __init__(self) -> None:
        self.keeper: Any = None
        self.orders: list[tuple[Any, OrderWaiter]] = []
        self.image = image_of(partition())

    def add_listener(self, listener: Any) -> None:
        self.keeper = listener

    def submit(self, order: Any, waiter: OrderWaiter) -> None:
        if isinstance(order, Heartbeat):
            try:
                waiter.reply(decide_heartbeat(order, self.image, CONFIG).reply)
            except ApiError as error:
                waiter.refused(error)
        self.orders.append((order, waiter))

    @property
    def dead(self) -> list[int]:
        return [order.node_id for order, _ in self.orders if isinstance(order, DeadBroker)]


class Tried:
    """A double of the probes: it records their targets, and the test sets the results."""

    def __init__(self) -> None:
        self.under_way: list[tuple[Address | None, VerdictCallback]] = []

    def start(self, address: Address | None, told: VerdictCallback) -> None:
        self.under_way.append((address, told))


class Connected:
    """A connection of another broker."""

    def __init__(self) -> None:
        self.has_ended = False
        self._told: list[Callable[[], None]] = []

    def on_end(self, told: Callable[[], None]) -> None:
        self._told.append(told)

    def end(self) -> None:
        self.has_ended = True
        for told in self._told:
            told()


class Scene:
    """The controller runs on broker 1. All three brokers are in service, and brokers 2 and 3 are
    connected."""

    def __init__(self, voters: tuple[int, ...] = NODES) -> None:
        self.world = SimWorld("liveness")
        self.decisions = Decisions()
        self.tried = Tried()
        controller: Any = self.decisions
        probes: Any = self.tried
        self.driver = LivenessDriver(
            ONE,
            CLUSTER,
            controller,
            lambda: [ReplicaKey(one, disk(one)) for one in voters],
            probes,
            self.world,
        )
        brokers = {
            node_id: replace(broker, listeners={"BROKER": (f"b{node_id}", 9094)})
            for node_id, broker in self.decisions.image.brokers.items()
        }
        self.image = self.decisions.image = replace(self.decisions.image, brokers=brokers)
        self.connections = {TWO: Connected(), THREE: Connected()}
        self.refused: list[ErrorCode] = []
        self.replies: list[Any] = []

    def begin(self) -> None:
        self.driver.began(self.image, None)
        for node_id in NODES:
            self.beat(node_id)
        self.decisions.orders.clear()
        self.tried.under_way.clear()

    @property
    def waiter(self) -> OrderWaiter:
        return OrderWaiter(self.replies.append, lambda error: self.refused.append(error.code))

    def beat(self, node_id: int) -> None:
        broker_epoch = self.image.brokers[node_id].broker_epoch
        request = BrokerHeartbeatRequest(broker_id=node_id, broker_epoch=broker_epoch)
        self.driver.heartbeat(request, self.connections.get(node_id), self.waiter)


def test_nobody_is_heard_while_another_node_decides() -> None:
    scene = Scene()
    scene.beat(TWO)
    scene.driver.register(registration(TWO), scene.connections[TWO], scene.waiter)
    assert scene.refused == [ErrorCode.NOT_CONTROLLER] * 2
    scene.begin()
    scene.driver.lost()
    scene.beat(ONE)
    assert scene.refused[2:] == [ErrorCode.NOT_CONTROLLER]
    scene.world.run_for(2 * SESSION_TIMEOUT_MS)
    assert scene.decisions.dead == []


def test_a_controller_that_begins_probes_all_others_its_predecessor_first() -> None:
    scene = Scene()
    scene.driver.began(scene.image, THREE)
    assert [address for address, _ in scene.tried.under_way] == [
        Address("b3", 9094),
        Address("b2", 9094),
    ]


def test_a_connection_that_ends_asks_for_a_probe_of_the_registered_address() -> None:
    scene = Scene()
    scene.begin()
    scene.connections[TWO].end()
    ((address, told),) = scene.tried.under_way
    assert address == Address("b2", 9094)
    assert scene.decisions.dead == []
    told(ProbeVerdict.REFUSED)
    assert scene.decisions.dead == [TWO]


def test_without_a_verdict_there_is_half_a_second() -> None:
    scene = Scene()
    scene.begin()
    scene.connections[TWO].end()
    scene.world.run_for(RECONNECT_MS - 1)
    assert scene.decisions.dead == []
    scene.world.run_for(1)
    assert scene.decisions.dead == [TWO]


def test_the_verdict_of_a_former_time_fences_nobody() -> None:
    scene = Scene()
    scene.begin()
    scene.connections[TWO].end()
    ((_, told),) = scene.tried.under_way
    scene.driver.lost()
    scene.driver.began(scene.image, None)
    told(ProbeVerdict.REFUSED)
    assert scene.decisions.dead == []


def test_what_is_left_in_the_socket_of_one_that_is_gone_is_no_sign_of_life() -> None:
    scene = Scene()
    scene.begin()
    scene.connections[TWO].end()
    scene.beat(TWO)
    assert scene.refused == [ErrorCode.NETWORK_EXCEPTION]
    scene.world.run_for(RECONNECT_MS)
    assert scene.decisions.dead == [TWO]


def test_what_the_controller_has_slept_is_held_against_nobody() -> None:
    scene = Scene()
    scene.begin()
    scene.world.run_for(1_000)
    scene.world.clock.advance(60_000)
    # Only TURN_MS of the 60 s stall count for the sessions, because the driver's next turn was due
    # after that time.
    scene.world.run_for(SESSION_TIMEOUT_MS - 1_000 - TURN_MS - 1)
    assert scene.decisions.dead == []
    scene.world.run_for(1)
    assert scene.decisions.dead == [ONE, TWO, THREE]


def test_after_a_sleep_what_has_come_is_read_before_anybody_is_judged() -> None:
    scene = Scene()
    scene.begin()
    scene.world.run_for(SESSION_TIMEOUT_MS - 100)
    # The process stalls for 60 s, so by the clock every session is over when it wakes.
    scene.world.clock.advance(60_000)
    # The process notices the stall in one turn of the loop, and reads the heartbeats of the stall
    # in the next turn.
    for node_id in (ONE, TWO):
        scene.world.later(0, partial(scene.beat, node_id))
    scene.world.run_for(SESSION_TIMEOUT_MS - 1)
    assert scene.decisions.dead == [THREE]


def test_the_node_of_the_controller_is_judged_like_the_others() -> None:
    scene = Scene()
    scene.begin()
    for _ in range(8):
        scene.world.run_for(2_000)
        scene.beat(TWO)
        scene.beat(THREE)
    assert scene.decisions.dead == [ONE]


def test_a_fence_that_the_disk_refuses_is_tried_again_unless_the_broker_is_back() -> None:
    scene = Scene()
    scene.begin()
    scene.connections[TWO].end()
    scene.connections[THREE].end()
    for _, told in scene.tried.under_way:
        told(ProbeVerdict.REFUSED)
    assert scene.decisions.dead == [TWO, THREE]
    for _, waiter in list(scene.decisions.orders):
        waiter.refused(ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
    scene.connections[THREE] = Connected()
    scene.beat(THREE)
    scene.world.run_for(RETRY_MS - 10)
    assert scene.decisions.dead == [TWO, THREE]
    scene.world.run_for(20)
    assert scene.decisions.dead == [TWO, THREE, TWO]
    # The refusal says that this node is not the controller any more, so the order is not repeated.
    scene.decisions.orders[-1][1].refused(ApiError(ErrorCode.NOT_CONTROLLER))
    scene.world.run_for(2 * RETRY_MS)
    assert len(scene.decisions.dead) == 3


def test_a_heartbeat_must_be_committed_where_another_node_may_have_been_elected() -> None:
    for voters, must_commit in ((NODES, True), ((ONE,), False)):
        scene = Scene(voters)
        scene.driver.began(scene.image, None)
        scene.beat(ONE)
        ((order, _),) = scene.decisions.orders
        assert (order.must_commit, order.link) == (must_commit, OWN_LINK)


def test_a_registration_is_judged_by_who_lives_and_counts_as_connected_once_it_is_in_force() -> (
    None
):
    scene = Scene()
    scene.begin()
    connection = Connected()
    scene.driver.register(registration(TWO), connection, scene.waiter)
    order, waiter = scene.decisions.orders[-1]
    assert isinstance(order, Registration) and order.facts is not None
    assert (order.facts.is_live, order.facts.voter_directory) == (True, disk(TWO))
    waiter.refused(ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    scene.connections[TWO].end()
    scene.world.run_for(RECONNECT_MS)
    scene.driver.register(registration(TWO), connection, scene.waiter)
    order, waiter = scene.decisions.orders[-1]
    assert not order.facts.is_live
    brokers = dict(scene.image.brokers)
    brokers[TWO] = replace(
        brokers[TWO], incarnation_id=incarnation(TWO, 1), broker_epoch=77, is_fenced=True
    )
    scene.driver.moved(replace(scene.image, brokers=brokers))
    waiter.reply(BrokerRegistrationResponse(broker_epoch=77))
    assert scene.replies[-1].broker_epoch == 77
    scene.world.run_for(RECONNECT_MS)
    scene.driver.register(registration(TWO, life=2), Connected(), scene.waiter)
    assert scene.decisions.orders[-1][0].facts.is_live
    connection.end()
    assert scene.tried.under_way[-1][0] == Address("b2", 9094)


def test_who_asks_while_another_is_being_registered_under_its_id_asks_again() -> None:
    """The last request of a killed process can be read after its successor's request, in the same
    turn of the loop. The controller refuses that request until the successor's registration is
    decided."""
    scene = Scene()
    scene.begin()
    scene.connections[TWO].end()
    scene.world.run_for(RECONNECT_MS)
    scene.decisions.orders.clear()
    scene.driver.register(registration(TWO, life=2), Connected(), scene.waiter)
    ((_, waiter),) = scene.decisions.orders
    scene.driver.register(registration(TWO, life=1), Connected(), scene.waiter)
    assert scene.refused == [ErrorCode.REQUEST_TIMED_OUT]
    assert len(scene.decisions.orders) == 1
    waiter.refused(ApiError(ErrorCode.KAFKA_STORAGE_ERROR))
    scene.driver.register(registration(TWO, life=1), Connected(), scene.waiter)
    assert len(scene.decisions.orders) == 2
