"""Runs this node's controller, which decides requests while this node leads the quorum.

The pure `ActiveController` decides. This driver proposes its batches to the quorum, undoes
decisions whose batches the disk rejects, and sets a timer for the deadlines of waiting requests.
The controller begins to decide when this node has replayed all records of earlier epochs. Before
that, and while this node does not lead the quorum, requests are refused.
"""

from __future__ import annotations

from typing import Protocol

from broker.alarm import Alarm
from broker.cluster.describe_quorum import describe_quorum
from broker.cluster.quorum_driver import QuorumDriver
from broker.cluster.voter_orders import (
    VoterOrder,
    answer_to,
    change_of,
    check_epoch,
    named_leader,
    present_addresses,
    waits_for_commit,
)
from broker.controller.active import ActiveController, OrderLimits, OrderWaiter, patience_ms
from broker.controller.controller import Controller, ControllerInput
from broker.controller.features import FeatureUpdate, refuse_order
from broker.metadata.image import MetadataImage
from broker.quorum.events import VoterChangeResult
from broker.quorum.ready import FollowsLeader, LeadsEpoch, RoleChange
from broker.world import World
from protocol.errors import ApiError, ErrorCode
from protocol.messages.features import UpdateFeaturesRequest
from protocol.messages.voters import (
    DescribeQuorumRequest,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoterUpdateLeader,
)

Order = ControllerInput | DescribeQuorumRequest | UpdateFeaturesRequest | VoterOrder
"""An input that only the active controller can answer: a change of the metadata, a question about
the quorum, or a change of its voters."""


class ControllerListener(Protocol):
    """The interface to objects with state of the active controller that is not in the log. They
    have this state only while the controller is active."""

    def began(self, image: MetadataImage, predecessor: int | None) -> None:
        """Begin, because this node's controller is active now.

        `predecessor` is the leader before this node; None if unknown.
        """

    def moved(self, image: MetadataImage) -> None:
        """Handle a changed image. This is called before the requests that caused the change are
        answered."""

    def lost(self) -> None:
        """Drop the state, because this node's controller is no longer active."""


class ControllerDriver:
    """Passes requests to this node's active controller, and proposes its decisions to the
    quorum."""

    def __init__(
        self, controller: Controller, limits: OrderLimits, quorum: QuorumDriver, world: World
    ) -> None:
        self._controller = controller
        self._limits = limits
        self._quorum = quorum
        self._clock = world.clock
        self._alarm = Alarm(world, self._on_time)
        self._won: LeadsEpoch | None = None
        self._active: ActiveController | None = None
        self._predecessor: int | None = None
        self._image = MetadataImage()
        self._listeners: list[ControllerListener] = []

    def add_listener(self, listener: ControllerListener) -> None:
        """Notify another object when the controller becomes active or inactive."""
        self._listeners.append(listener)

    @property
    def is_active(self) -> bool:
        """True if this node's controller is active, so that it decides requests."""
        return self._active is not None

    def submit(self, order: Order, waiter: OrderWaiter) -> None:
        """Decide a controller request. The waiter gets the reply when the decision is committed and
        in force.

        If the request is refused, the waiter gets the error. Both can happen before this method
        returns.
        """
        active, status = self._active, None
        if isinstance(order, DescribeQuorumRequest):
            status = self._quorum.status()
            if active is not None and status is not None:
                waiter.reply(describe_quorum(order, status, self._image, self._clock.now_ms()))
                return
        if active is None and isinstance(order, UpdateRaftVoterRequest):
            waiter.reply(
                UpdateRaftVoterResponse(
                    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=self._leader()
                )
            )
            return
        if active is None or isinstance(order, DescribeQuorumRequest):
            waiter.refused(ApiError(ErrorCode.NOT_CONTROLLER, "this node is not the controller"))
            return
        if isinstance(order, VoterOrder):
            self._change_voters(order, waiter)
            return
        if isinstance(order, UpdateFeaturesRequest):
            order = FeatureUpdate(order, [one.node_id for one in self._quorum.voters])
        monotonic_ms = self._clock.monotonic_ms()
        batch = active.decide(
            order, waiter, self._quorum.end_offset, self._clock.now_ms(), monotonic_ms
        )
        if batch is not None:
            self._propose(active, batch)
        self._wake(active)

    def role(self, role: RoleChange, image: MetadataImage) -> None:
        """Handle a role change: the quorum elected this node or another node, or has no leader any
        more."""
        active, self._active, self._won = self._active, None, None
        if active is not None:
            active.lose()
            for listener in self._listeners:
                listener.lost()
        if isinstance(role, FollowsLeader):
            self._predecessor = role.leader_id
        if isinstance(role, LeadsEpoch):
            self._won = role
            self.moved(image)

    def moved(self, image: MetadataImage) -> None:
        """Handle a changed image."""
        self._image = image
        if self._active is not None:
            for listener in self._listeners:
                listener.moved(image)
            self._active.committed(image)
        elif self._won is not None and image.end_offset >= self._won.end_offset:
            active = self._active = ActiveController(self._controller, self._limits, image)
            batch = active.begin(self._quorum.end_offset, self._clock.now_ms())
            if batch is not None:
                self._propose(active, batch)
            for listener in self._listeners:
                listener.began(image, self._predecessor)

    def unwritten(self, end_offset: int, error: Exception) -> None:
        """Undo the decisions at `end_offset` and above, because the disk rejected their batches."""
        if self._active is not None:
            self._active.unwritten(end_offset, ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))

    def stop(self) -> None:
        """Cancel the timer."""
        self._alarm.stop()

    def _change_voters(self, order: VoterOrder, waiter: OrderWaiter) -> None:
        def done(result: VoterChangeResult) -> None:
            if result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                waiter.refused(ApiError(ErrorCode.NOT_CONTROLLER, result.reason))
            else:
                waiter.reply(answer_to(order, result, self._leader()))

        try:
            refuse_order(order, self._image)
            check_epoch(order, self._quorum.epoch)
            change = change_of(order, self._quorum.quorum.replica.cluster_id, self._image)
        except ApiError as error:
            waiter.refused(error)
            return
        self._quorum.change_voters(
            change,
            patience_ms(order),
            done,
            waits_for_commit=waits_for_commit(order),
            addresses=present_addresses(change, self._quorum.voters, self._image),
        )

    def _leader(self) -> VoterUpdateLeader:
        return named_leader(self._quorum.leader_id, self._quorum.epoch, self._image)

    def _propose(self, active: ActiveController, batch: bytes) -> None:
        assert self._won is not None
        end_offset = self._quorum.end_offset
        refusal = self._quorum.propose(self._won.epoch, batch)
        if refusal is not None and active is self._active:
            self.unwritten(end_offset, refusal)

    def _wake(self, active: ActiveController) -> None:
        deadline_ms = active.next_deadline_ms
        if deadline_ms is not None:
            self._alarm.wake_by(deadline_ms)

    def _on_time(self, now_ms: int) -> int | None:
        if self._active is None:
            return None
        self._active.expire(now_ms)
        return self._active.next_deadline_ms
