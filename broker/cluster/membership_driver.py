"""Runs a broker's membership: sends its requests to the active controller and keeps its timer.

`membership` decides. This driver sends the requests over the CONTROL link, or calls the controller
of this node directly. Other parts of the broker use the same path, `ask_controller`, for their
requests to the active controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from broker.cluster.clocks import Clocks
from broker.cluster.controller_driver import ControllerDriver
from broker.cluster.lived import LivedAlarm
from broker.cluster.liveness_driver import LivenessDriver, broker_address
from broker.cluster.membership import ANSWER_TIMEOUT_MS, HEARTBEAT_MS, BrokerMembership
from broker.cluster.membership_effects import (
    BrokerFenced,
    BrokerRefused,
    BrokerRegistered,
    BrokerUnfenced,
    Effect,
    MayStop,
    SendRequest,
)
from broker.controller.active import OrderWaiter
from broker.metadata.broker_image import BrokerImage
from broker.metadata.image import MetadataImage
from broker.quorum.ready import FollowsLeader, LeadsEpoch, RoleChange
from broker.sessions.dispatch import refusal
from broker.sessions.peers import LinkKind, Peers
from broker.world import End, World
from protocol.errors import ApiError
from protocol.messages.membership import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
)
from protocol.messages.producer_ids import AllocateProducerIdsRequest
from protocol.messages.voters import UpdateRaftVoterRequest
from protocol.types import NO_LEADER_EPOCH, NO_NODE, TopicPartition
from protocol.wire.schema import Message


class MembershipListener(Protocol):
    """The interface to the object that is notified of changes in the broker's membership."""

    def registered(self, broker_epoch: int) -> None:
        """Handle a registration: the metadata has this process with this broker epoch. Call `ready`
        when the broker can serve."""

    def unfenced(self) -> None:
        """Handle that the broker is now in service."""

    def fenced(self) -> None:
        """Handle that the broker is no longer in service."""

    def may_stop(self) -> None:
        """Stop the broker, because the cluster does not need it any more."""

    def refused(self, text: str) -> None:
        """End this process. The text gives the reason."""


class MembershipDriver:
    """The membership of one broker process."""

    def __init__(
        self,
        request: BrokerRegistrationRequest,
        listener: MembershipListener,
        controller: ControllerDriver,
        liveness: LivenessDriver,
        peers: Peers,
        world: World,
    ) -> None:
        self._membership = BrokerMembership(request)
        self._own_id = request.broker_id
        self._listener = listener
        self._controller = controller
        self._liveness = liveness
        self._peers = peers
        self._world = world
        self._leader_id = NO_NODE
        self._alarm = LivedAlarm(world, self._on_time)
        self._stall_count = 0
        self.clocks: Clocks = {}
        """The clocks of the brokers in the controller's last answer to a heartbeat."""
        self._brokers: dict[int, BrokerImage] = {}
        """The brokers for which the links have the addresses, as last seen in the image."""

    @property
    def lived_ms(self) -> int:
        """The lived time of this process in milliseconds, without its stalls."""
        return self._alarm.now_ms

    @property
    def may_read(self) -> bool:
        """True if this broker, as a leader, may answer reads now (`membership`).

        Without this check, a deposed leader that does not yet know its successor could answer with
        old data.
        """
        self._notice_stall()
        return self._membership.may_read(self._world.clock.monotonic_ms())

    # Events.

    def role(self, role: RoleChange) -> None:
        """Handle a role change: the quorum elected this node or another node, or has no leader any
        more."""
        if isinstance(role, LeadsEpoch):
            self._leader_id = self._own_id
        else:
            self._leader_id = role.leader_id if isinstance(role, FollowsLeader) else NO_NODE
        epoch = role.epoch if self._leader_id != NO_NODE else NO_LEADER_EPOCH
        self._perform(self._membership.controller(self._leader_id, epoch, self._now_ms()))

    def moved(self, image: MetadataImage) -> None:
        """Handle a changed image."""
        self._follow_brokers(image)
        others = [one for one in image.brokers.values() if one.node_id != self._own_id]
        own = image.brokers.get(self._own_id)
        self._perform(self._membership.replayed(image.end_offset, own, others, self._now_ms()))

    def link_ended(self, node_id: int, kind: LinkKind, end: End) -> None:
        """Handle a link of this broker that ended or could not connect."""
        if kind is LinkKind.CONTROL:
            self._perform(self._membership.link_lost(node_id, self._now_ms()))

    def ready(self) -> None:
        """Ask to be unfenced, because the broker can serve."""
        self._perform(self._membership.ready(self._now_ms()))

    def damaged(self, partitions: Iterable[TopicPartition]) -> None:
        """Report the partitions whose logs are known to be damaged."""
        self._perform(self._membership.damaged(partitions, self._now_ms()))

    @property
    def has_others(self) -> bool:
        """True if another broker is in service and does not stop."""
        return self._membership.has_others

    def want_stop(self) -> None:
        """Ask for permission to stop."""
        self._perform(self._membership.stop(self._now_ms()))

    def stop(self) -> None:
        """Send no more requests."""
        self._alarm.stop()

    # Requests to the active controller.

    def ask_controller(
        self,
        request: Message,
        answered: Callable[[Any], None],
        failed: Callable[[End], None],
    ) -> None:
        """Ask the leader of the quorum. Exactly one callback is called, once, after this method
        returns.

        The answer can be NOT_CONTROLLER. `failed` gets UNRESOLVED if no leader is known. The caller
        must wait a while before it repeats a request.
        """
        self._ask(self._leader_id, request, answered, failed)

    def _ask(
        self,
        node_id: int,
        request: Message,
        answered: Callable[[Any], None],
        failed: Callable[[End], None],
    ) -> None:
        world = self._world
        if node_id == NO_NODE:
            world.soon(failed, End.UNRESOLVED)
        elif node_id == self._own_id:
            world.soon(self._ask_here, request, answered)
        else:
            deadline_ms = world.clock.monotonic_ms() + ANSWER_TIMEOUT_MS
            self._peers.ask(node_id, LinkKind.CONTROL, request, deadline_ms, answered, failed)

    def _ask_here(self, request: Message, answered: Callable[[Any], None]) -> None:
        def refused(error: ApiError) -> None:
            answered(refusal(request.api_key, error))

        waiter = OrderWaiter(answered, refused)
        match request:
            case BrokerRegistrationRequest():
                self._liveness.register(request, None, waiter)
            case BrokerHeartbeatRequest():
                self._liveness.heartbeat(request, None, waiter)
            case AlterPartitionRequest() | AllocateProducerIdsRequest() | UpdateRaftVoterRequest():
                self._controller.submit(request, waiter)
            case _:
                raise AssertionError(
                    f"{type(request).__name__} is not a request that brokers send to the controller"
                )

    def _now_ms(self) -> int:
        """Return the monotonic time, after a check for a stall of this process."""
        self._notice_stall()
        return self._world.clock.monotonic_ms()

    def _notice_stall(self) -> None:
        # A read of the lived time detects a stall.
        _ = self._alarm.now_ms
        if self._alarm.stall_count != self._stall_count:
            self._stall_count = self._alarm.stall_count
            self._perform(self._membership.stalled(self._world.clock.monotonic_ms()))

    def _on_time(self) -> None:
        self._perform(self._membership.tick(self._now_ms()))

    def _follow_brokers(self, image: MetadataImage) -> None:
        """Give the links the current processes and addresses of all registered brokers."""
        for node_id, broker in image.brokers.items():
            known = self._brokers.get(node_id)
            address = broker_address(broker)
            if node_id == self._own_id or broker is known or address is None:
                continue
            self._brokers[node_id] = broker
            self._peers.registered(node_id, broker.incarnation_id, address)
        for node_id in [one for one in self._brokers if one not in image.brokers]:
            del self._brokers[node_id]
            self._peers.unregistered(node_id)

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendRequest(number, node_id, message):
                    self._send(number, node_id, message)
                case BrokerRegistered(broker_epoch):
                    self._listener.registered(broker_epoch)
                case BrokerUnfenced():
                    self._listener.unfenced()
                case BrokerFenced():
                    self._listener.fenced()
                case MayStop():
                    self._listener.may_stop()
                case BrokerRefused(text):
                    self._listener.refused(text)
        self._arm()

    def _send(self, number: int, node_id: int, message: Message) -> None:
        def failed(end: End) -> None:
            is_late = end is End.TIMED_OUT
            self._perform(self._membership.failed(number, is_late, self._now_ms()))

        if isinstance(message, BrokerHeartbeatRequest):
            message.sent_at_ms = self._world.clock.now_ms()
        self._ask(node_id, message, partial(self._answered, number), failed)

    def _answered(self, number: int, answer: Any) -> None:
        if isinstance(answer, BrokerHeartbeatResponse):
            self.clocks = {one.broker_id: one.ahead_ms for one in answer.clocks}
        self._perform(self._membership.answered(number, answer, self._now_ms()))

    def _arm(self) -> None:
        now_ms, deadline_ms = self._world.clock.monotonic_ms(), self._membership.next_deadline_ms
        # Set the alarm even without a deadline, because only a late call shows that the process was
        # stopped.
        left_ms = HEARTBEAT_MS if deadline_ms is None else max(deadline_ms - now_ms, 0)
        self._alarm.set(self._alarm.now_ms + left_ms)
