"""Runs the active controller's watch over brokers: their connections, probes and deadlines.

The rules are in `controller/liveness`. A `Liveness` exists for each epoch in which this node's
controller is active. Its time is lived time (`lived`), and after a stall of this process the
sockets are read before any broker is declared dead. The controller's own node is a broker like the
others, except that its connection cannot end.

A broker is identified by the connection on which it last registered or sent a heartbeat. A broker
whose connection has ended registers again at once on another connection. Otherwise the controller
would have no connection whose end shows the broker's death, and would notice it only when the
session times out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from typing import Any, Protocol

from broker.cluster.clocks import ClockReadings
from broker.cluster.controller_driver import ControllerDriver
from broker.cluster.lived import LivedAlarm
from broker.cluster.probes import Probes
from broker.config import BROKER_LISTENER
from broker.controller.active import OrderWaiter
from broker.controller.elections import SETTLED_MS, ElectPreferred, electable_preferred
from broker.controller.liveness import BrokerProbe, DeadBroker, Heartbeat, Liveness
from broker.controller.outcome import CompleteReassignments
from broker.controller.registration import Registration
from broker.controller.registration_checks import RegistrationFacts
from broker.controller.suspicion import ProbeVerdict
from broker.metadata.broker_image import BrokerImage
from broker.metadata.image import MetadataImage
from broker.quorum.voters import ReplicaKey
from broker.world import Address, World
from protocol.errors import ApiError, ErrorCode
from protocol.messages.membership import (
    BrokerClock,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)

OWN_LINK = 0
"""The connection number of the controller's own node."""

BALANCE_MS = 5_000
"""The interval in milliseconds at which the controller looks for leaderships to move back to the
preferred replicas."""

RETRY_MS = 250
"""The wait in milliseconds before the controller retries to fence a broker, after the disk rejected
the write."""

BEING_DECIDED = "another registration under this id is being decided; ask again"


class BrokerConnection(Protocol):
    """A connection of another broker. This module only uses its end."""

    @property
    def has_ended(self) -> bool:
        """True if the connection is closed."""

    def on_end(self, told: Callable[[], None]) -> None:
        """Call `told` once, when the connection ends."""


def broker_address(broker: BrokerImage) -> Address | None:
    """Return the address on which a registered broker listens for other brokers; None if it has
    none."""
    address = broker.listeners.get(BROKER_LISTENER)
    return None if address is None else Address(*address)


class LivenessDriver:
    """The watch of one node over all brokers. It has no state while another node is the active
    controller."""

    def __init__(
        self,
        own_id: int,
        cluster_id: str,
        controller: ControllerDriver,
        voters: Callable[[], Iterable[ReplicaKey]],
        probes: Probes,
        world: World,
    ) -> None:
        self._own_id = own_id
        self._cluster_id = cluster_id
        self._controller = controller
        self._voters = voters
        self._probes = probes
        self._world = world
        self._alarm = LivedAlarm(world, self._on_time)
        self._liveness: Liveness | None = None
        self._clocks = ClockReadings()
        self._image = MetadataImage()
        self._numbers = count(OWN_LINK + 1)
        self._links: dict[BrokerConnection, int] = {}
        self._nodes: dict[int, int] = {}
        """The broker that identified itself on each connection."""
        self._unfenced: list[DeadBroker] = []
        self._retry_ms: int | None = None
        self._balance_ms = 0
        """The time at which the controller next looks for leaderships to move."""
        self._complete_ms = 0
        """The time at which the controller next looks for reassignments to complete."""
        controller.add_listener(self)

    @property
    def is_active(self) -> bool:
        """True if this node's controller is active, so that brokers can register here."""
        return self._liveness is not None

    def stop(self) -> None:
        """Stop watching brokers."""
        self.lost()

    # The controller driver calls the following methods.

    def began(self, image: MetadataImage, predecessor: int | None) -> None:
        """Start watching brokers. Give every broker in service a full session, and probe it."""
        self._image = image
        liveness = self._liveness = Liveness(self._own_id)
        self._clocks = ClockReadings()
        self._balance_ms = self._alarm.now_ms + BALANCE_MS
        # A reassignment can be complete without having been ended by the former controller
        # (KAFKA-4214).
        self._complete_ms = self._alarm.now_ms
        for probe in liveness.took_over(image, predecessor, self._alarm.now_ms):
            self._start(probe)
        self._arm()

    def lost(self) -> None:
        """Stop watching brokers, because this node's controller is no longer active."""
        self._liveness = None
        self._unfenced.clear()
        self._retry_ms = None
        self._alarm.set(None)

    def moved(self, image: MetadataImage) -> None:
        """Handle a changed image."""
        self._image = image

    # Requests of brokers. The connection is None for the controller's own node.

    def register(
        self,
        request: BrokerRegistrationRequest,
        connection: BrokerConnection | None,
        waiter: OrderWaiter,
    ) -> None:
        """Decide about a registration. When it is granted, the broker is treated as connected on
        this connection."""
        liveness = self._liveness
        if liveness is None or _is_over(connection):
            waiter.refused(_unheard(connection))
            return
        node_id = request.broker_id
        if not liveness.decides(node_id):
            waiter.refused(ApiError(ErrorCode.REQUEST_TIMED_OUT, BEING_DECIDED))
            return
        link = self._link_of(connection, node_id)
        voter = next((one for one in self._voters() if one.node_id == node_id), None)
        facts = RegistrationFacts(
            self._cluster_id,
            liveness.is_live(node_id, self._alarm.now_ms),
            None if voter is None else voter.directory_id,
        )

        def registered(response: BrokerRegistrationResponse) -> None:
            liveness.decided(node_id)
            if liveness is self._liveness:
                self._registered(request, link, response.broker_epoch)
            waiter.reply(response)

        def refused(error: ApiError) -> None:
            liveness.decided(node_id)
            waiter.refused(error)

        self._controller.submit(
            Registration(request, facts), OrderWaiter(registered, refused, waiter.host)
        )

    def heartbeat(
        self,
        request: BrokerHeartbeatRequest,
        connection: BrokerConnection | None,
        waiter: OrderWaiter,
    ) -> None:
        """Decide about a heartbeat. The answer is sent when a batch is committed that was written
        after the heartbeat came.

        The commit proves that this controller has not been deposed. A deposed controller must not
        keep a broker in service.
        """
        liveness = self._liveness
        if liveness is None or _is_over(connection):
            waiter.refused(_unheard(connection))
            return
        link = self._link_of(connection, request.broker_id)
        must_commit = len(list(self._voters())) > 1
        now_ms = self._alarm.now_ms
        clocks, wall_ms = self._clocks, self._world.clock.now_ms()

        def answered(response: BrokerHeartbeatResponse) -> None:
            clocks.note(request.broker_id, request.sent_at_ms, wall_ms)
            in_service = {one.node_id for one in self._image.brokers.values() if not one.is_fenced}
            response.clocks = [
                BrokerClock(broker_id=node_id, ahead_ms=ahead_ms)
                for node_id, ahead_ms in clocks.of(in_service).items()
            ]
            waiter.reply(response)

        waits = OrderWaiter(answered, waiter.refused, waiter.host)
        self._controller.submit(Heartbeat(request, liveness, link, now_ms, must_commit), waits)
        self._arm()

    def _registered(self, request: BrokerRegistrationRequest, link: int, broker_epoch: int) -> None:
        liveness, broker = self._liveness, self._image.brokers.get(request.broker_id)
        if liveness is None or broker is None or broker.broker_epoch != broker_epoch:
            return
        liveness.registered(broker, self._alarm.now_ms)
        if link == OWN_LINK or link in self._nodes:
            liveness.connected(broker.node_id, broker.incarnation_id, link)
        self._arm()

    def _link_of(self, connection: BrokerConnection | None, node_id: int) -> int:
        if connection is None:
            return OWN_LINK
        link = self._links.get(connection)
        if link is None:
            link = self._links[connection] = next(self._numbers)
            connection.on_end(partial(self._ended, connection))
        self._nodes[link] = node_id
        return link

    def _ended(self, connection: BrokerConnection) -> None:
        link = self._links.pop(connection)
        node_id = self._nodes.pop(link)
        if self._liveness is not None:
            probe = self._liveness.closed(node_id, link, self._alarm.now_ms)
            if probe is not None:
                self._start(probe)
            self._arm()

    def _start(self, probe: BrokerProbe) -> None:
        broker = self._image.brokers.get(probe.node_id)
        address = None if broker is None else broker_address(broker)
        self._probes.start(address, partial(self._probed, self._liveness, probe))

    def _probed(self, liveness: Liveness | None, probe: BrokerProbe, verdict: ProbeVerdict) -> None:
        if liveness is None or liveness is not self._liveness:
            return
        dead = liveness.probed(probe, verdict, self._alarm.now_ms)
        if dead is not None:
            self._fence(dead)
        self._arm()

    def _on_time(self) -> None:
        liveness, now_ms = self._liveness, self._alarm.now_ms
        assert liveness is not None, "the alarm goes with the sessions"
        again: list[DeadBroker] = []
        if self._retry_ms is not None and self._retry_ms <= now_ms:
            self._retry_ms = None
            again, self._unfenced = self._unfenced, []
        for dead in [*liveness.dead(now_ms), *again]:
            # Do not fence a broker that has registered again in the meantime.
            if not liveness.is_live(dead.node_id, now_ms):
                self._fence(dead)
        for probe in liveness.probes_due(now_ms):
            self._start(probe)
        if self._balance_ms <= now_ms:
            self._balance_ms = now_ms + BALANCE_MS
            self._elect_preferred(liveness, now_ms)
        if self._complete_ms <= now_ms:
            self._complete_ms = now_ms + BALANCE_MS
            if self._image.moving:
                self._controller.submit(CompleteReassignments(), OrderWaiter(_nothing, _nothing))
        self._arm()

    def _elect_preferred(self, liveness: Liveness, now_ms: int) -> None:
        settled = frozenset(
            node_id
            for node_id in self._image.brokers
            if liveness.unfenced_for_ms(node_id, now_ms) >= SETTLED_MS
        )
        if any(electable_preferred(self._image, settled)):
            self._controller.submit(ElectPreferred(settled), OrderWaiter(_nothing, _nothing))

    def _fence(self, dead: DeadBroker) -> None:
        def refused(error: ApiError) -> None:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                self._unfenced.append(dead)
                self._retry_ms = self._alarm.now_ms + RETRY_MS

        self._controller.submit(dead, OrderWaiter(_nothing, refused))

    def _arm(self) -> None:
        if self._liveness is None:
            return
        deadlines = (
            self._liveness.next_deadline_ms,
            self._retry_ms,
            self._balance_ms,
            self._complete_ms,
        )
        self._alarm.set(min((one for one in deadlines if one is not None), default=None))


def _is_over(connection: BrokerConnection | None) -> bool:
    return connection is not None and connection.has_ended


def _unheard(connection: BrokerConnection | None) -> ApiError:
    if _is_over(connection):
        # Refuse the request, because a dead process can leave requests in the socket. They do not
        # prove that it is alive.
        return ApiError(ErrorCode.NETWORK_EXCEPTION, "the connection has ended")
    return ApiError(ErrorCode.NOT_CONTROLLER, "this node is not the controller")


def _nothing(reply: Any) -> None:
    """Ignore the outcome, because no request waits for it."""
