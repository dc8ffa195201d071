"""The cluster metadata of one node: its log, its image, and the way to change it.

This module passes commits of the quorum to the loader, and role changes to the controller. Other
modules read `image` and call `submit`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from broker.cluster.controller_driver import ControllerDriver, Order
from broker.cluster.loader import Loader, Publisher
from broker.cluster.metadata_log import DiskWorkers, MetadataLog
from broker.cluster.quorum_driver import QuorumDriver
from broker.cluster.snapshots import MetadataSnapshot
from broker.cluster.snapshotter import Snapshotter
from broker.controller.active import OrderWaiter
from broker.controller.features import refuse_order
from broker.metadata.features import METADATA_LEVEL
from broker.metadata.image import MetadataImage
from broker.quorum.ready import RoleChange
from protocol.errors import ApiError, ErrorCode
from protocol.types import Uuid


class OrderPath(Protocol):
    """The interface to the node that decides a controller request (`orders`, or this node's
    `controller_driver`)."""

    def submit(self, order: Order, waiter: OrderWaiter) -> None:
        """Submit a controller request. The waiter is called once, possibly before this method
        returns."""


class MetadataListener(Protocol):
    """The interface to the object that is notified of this node's role and image
    (`node/joining`)."""

    def role_changed(self, role: RoleChange) -> None:
        """Handle a new role of the node. This is called before the controller is notified."""

    def image_moved(self, image: MetadataImage) -> None:
        """Handle a changed image. This is called after the controller is notified."""


class Metadata:
    """The metadata log, quorum, image and controller of one node."""

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
        """The path of controller requests. A broker that is configured alone decides them
        itself."""
        self._listener: MetadataListener | None = None
        self._refusal: Exception | None = None
        self._is_serving = False
        loader.report_to(self)
        quorum.report_to(self)

    def join(self, orders: OrderPath, listener: MetadataListener) -> None:
        """Set the path of controller requests and the listener, in a cluster with other brokers."""
        self._orders = orders
        self._listener = listener

    @property
    def image(self) -> MetadataImage:
        """The image of all metadata that is committed and in force."""
        return self.loader.image

    @property
    def removed_ids(self) -> set[Uuid]:
        """The topics that the log has removed. Their folders can be deleted."""
        return self.loader.removed_ids

    @property
    def is_quiet(self) -> bool:
        """True if all written batches are durable and in force."""
        return self.log.duties.is_idle and self.loader.is_idle

    def submit(
        self,
        order: Order,
        reply: Callable[[Any], None],
        refused: Callable[[ApiError], None],
        host: str | None = None,
        user: str | None = None,
    ) -> None:
        """Submit a request to the active controller, on this node or on another node.

        Calls `reply` when the decision is committed and in force. Calls `refused` if the decision
        cannot be written, too many requests wait, or the level of the log has no records for the
        request. Either can be called before this method returns. `host` is the client that sent the
        request; None for the node itself. `user` is the user whose rights are checked; None if
        everything is allowed.

        A controller of an older version does not know requests of a later level, so they are
        refused here. A controller of this version decides about the level, because this node can
        learn later that the level was raised.
        """
        try:
            refuse_order(order, self.image)
        except ApiError as error:
            controller = self.image.brokers.get(self.quorum.leader_id)
            if controller is None or controller.levels.newest < METADATA_LEVEL:
                refused(error)
                return
            refused = partial(_refuse_with_reason, refused, error)
        self._orders.submit(order, OrderWaiter(reply, refused, host, user))

    def decide(
        self,
        order: Order,
        reply: Callable[[Any], None],
        refused: Callable[[ApiError], None],
        host: str | None = None,
        user: str | None = None,
    ) -> None:
        """Submit a request as `submit` does, but refuse it with NOT_CONTROLLER unless this node is
        the active controller."""
        self.controller.submit(order, OrderWaiter(reply, refused, host, user))

    def submit_now(self, order: Order) -> Any:
        """Decide a request before the node serves clients, and return the reply.

        Raises the disk's error, or ApiError if the request is refused.
        """
        replies: list[Any] = []
        refusals: list[ApiError] = []
        self.submit(order, replies.append, refusals.append)
        for error in refusals:
            raise self._refusal or error
        return replies.pop()

    def start(self, snapshot: MetadataSnapshot) -> None:
        """Load the state from a snapshot, and replay the log from the snapshot's end. If this node
        is the only voter, it is also elected.

        Call this before the node serves requests. Raises the disk's errors, and
        UnknownMetadataRecord if a later version of the broker wrote the log.
        """
        self.installed(snapshot)
        self.quorum.start()
        if self._refusal is not None:
            raise self._refusal

    def serve(self, publisher: Publisher, workers: DiskWorkers) -> None:
        """Publish each later commit to `publisher`, and do disk work in threads."""
        self._is_serving = True
        self.loader.serve(publisher)
        self.log.work_in(workers)

    def stop(self) -> None:
        """Stop the timers of the quorum and of the controller."""
        self.quorum.stop()
        self.controller.stop()

    # The quorum driver calls the following methods.

    def committed(self, offset: int) -> None:
        self.loader.committed(offset)

    def installed(self, snapshot: MetadataSnapshot) -> None:
        self.snapshotter.begun(snapshot.snapshot_id.end_offset, snapshot.voters)
        self.loader.installed(snapshot.content, snapshot.snapshot_id.end_offset)

    def role(self, role: RoleChange) -> None:
        if self._listener is not None:
            self._listener.role_changed(role)
        self.controller.role(role, self.image)

    def unwritten(self, end_offset: int, error: Exception) -> None:
        self._refusal = error
        self.controller.unwritten(end_offset, error)

    # The loader calls the following method.

    def moved(self, image: MetadataImage) -> None:
        self.controller.moved(image)
        if self._listener is not None:
            self._listener.image_moved(image)
        if self._is_serving:
            self.snapshotter.moved(image)


def _refuse_with_reason(
    refused: Callable[[ApiError], None], missing_level: ApiError, error: ApiError
) -> None:
    """Call `refused` with the controller's error. Use this node's error if both say that the level
    is missing, because an envelope has no text."""
    refused(missing_level if error.code is ErrorCode.UNSUPPORTED_VERSION else error)
