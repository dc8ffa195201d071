"""The cluster metadata of one node: its log, its image, and the way to change it.

Room: cluster. It passes commits of the quorum to the loader and role changes to the controller.
Other rooms use only `image` and `submit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from broker.cluster.controller_driver import ControllerDriver, Order
from broker.cluster.loader import Loader, Publisher
from broker.cluster.metadata_log import Hands, MetadataLog
from broker.cluster.quorum_driver import QuorumDriver
from broker.cluster.snapshots import MetadataSnapshot
from broker.cluster.snapshotter import Snapshotter
from broker.controller.active import OrderWaiter
from broker.metadata.image import MetadataImage
from broker.quorum.ready import RoleChange
from protocol.errors import ApiError
from protocol.types import Uuid


class OrderPath(Protocol):
    """Passes an order to the node that decides (`orders`, or this node's `controller_driver`)."""

    def submit(self, order: Order, waiter: OrderWaiter) -> None:
        """Submit an order. The waiter is called once, possibly before this returns."""


class MetadataListener(Protocol):
    """Is notified of this node's place in the cluster (`node/joining`)."""

    def role_changed(self, role: RoleChange) -> None:
        """The node has a new role. Called before the controller is notified."""

    def image_moved(self, image: MetadataImage) -> None:
        """The image has changed. Called after the controller is notified."""


class Metadata:
    """One node's log, replica, image and controller."""

    def __init__(
        self,
        log: MetadataLog,
        quorum: QuorumDriver,
        loader: Loader,
        controller: ControllerDriver,
        snapshotter: Snapshotter,
    ) -> None:
        self.log = log
        self.quorum = quorum
        self.loader = loader
        self.controller = controller
        self.snapshotter = snapshotter
        self._orders: OrderPath = controller
        """A broker without a cluster decides its orders itself."""
        self._listener: MetadataListener | None = None
        self._refusal: Exception | None = None
        self._is_serving = False
        loader.report_to(self)
        quorum.report_to(self)

    def join(self, orders: OrderPath, listener: MetadataListener) -> None:
        """Pass orders on this way and notify this object, as a node of a cluster does."""
        self._orders = orders
        self._listener = listener

    @property
    def image(self) -> MetadataImage:
        """The image of everything that is committed and in force."""
        return self.loader.image

    @property
    def removed_ids(self) -> set[Uuid]:
        """Topics that the log has removed, so their folders can be deleted."""
        return self.loader.removed_ids

    @property
    def is_quiet(self) -> bool:
        """True if everything written is durable and in force."""
        return self.log.duties.is_idle and self.loader.is_idle

    def submit(
        self,
        order: Order,
        reply: Callable[[Any], None],
        refused: Callable[[ApiError], None],
        host: str | None = None,
    ) -> None:
        """Submit an order to the active controller, on this node or on another one.

        Calls `reply` once the decision is committed and in force, or `refused` if it cannot be
        written or too many orders wait. Both can be called before this returns. `host` is the
        client that gave the order, None for the node itself.
        """
        self._orders.submit(order, OrderWaiter(reply, refused, host))

    def decide(
        self,
        order: Order,
        reply: Callable[[Any], None],
        refused: Callable[[ApiError], None],
        host: str | None = None,
    ) -> None:
        """Submit an order as `submit` does, but refuse it with NOT_CONTROLLER unless this node is
        the controller.
        """
        self.controller.submit(order, OrderWaiter(reply, refused, host))

    def submit_now(self, order: Order) -> Any:
        """Decide an order before the node serves requests. Returns the reply; raises the disk's
        errors.
        """
        replies: list[Any] = []
        refusals: list[ApiError] = []
        self.submit(order, replies.append, refusals.append)
        for error in refusals:
            raise self._refusal or error
        return replies.pop()

    def start(self, snapshot: MetadataSnapshot) -> None:
        """Replay the log behind a snapshot. If this is the only voter, it is also elected.

        Call this before the node serves requests. Raises the disk's errors, and
        UnknownMetadataRecord if a later version wrote the log.
        """
        self.installed(snapshot)
        self.quorum.start()
        if self._refusal is not None:
            raise self._refusal

    def serve(self, publisher: Publisher, hands: Hands) -> None:
        """Publish each commit to `publisher` from now on, and use threads to wait for the disk."""
        self._is_serving = True
        self.loader.serve(publisher)
        self.log.work_in(hands)

    def stop(self) -> None:
        """Stop the timers of the quorum and of the controller."""
        self.quorum.stop()
        self.controller.stop()

    # Calls from the quorum driver.

    def committed(self, offset: int) -> None:
        self.loader.committed(offset)

    def installed(self, snapshot: MetadataSnapshot) -> None:
        self.snapshotter.begun(snapshot.snapshot_id.end_offset)
        self.loader.installed(snapshot.content, snapshot.snapshot_id.end_offset)

    def role(self, role: RoleChange) -> None:
        if self._listener is not None:
            self._listener.role_changed(role)
        self.controller.role(role, self.image)

    def unwritten(self, end_offset: int, error: Exception) -> None:
        self._refusal = error
        self.controller.unwritten(end_offset, error)

    # Calls from the loader.

    def moved(self, image: MetadataImage) -> None:
        self.controller.moved(image)
        if self._listener is not None:
            self._listener.image_moved(image)
        if self._is_serving:
            self.snapshotter.moved(image)
