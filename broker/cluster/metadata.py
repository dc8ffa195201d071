"""The metadata of the cluster as a node knows it, and the way to have it changed.

Floor: cluster. It hands on what the quorum says: commits to the loader, roles to the controller.
Everybody else needs `image` and `submit`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.cluster.controller_driver import ControllerDriver, Order
from broker.cluster.loader import Loader, Publisher
from broker.cluster.metadata_log import Hands, MetadataLog
from broker.cluster.quorum_driver import QuorumDriver
from broker.cluster.snapshots import Snapshot
from broker.cluster.snapshotter import Snapshotter
from broker.controller.active import Waiter
from broker.metadata.image import MetadataImage
from broker.quorum.ready import RoleChange
from protocol.errors import ApiError
from protocol.types import Uuid


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
        self.passed_on: Callable[[Order, Waiter], None] = controller.submit
        """How an order gets to whoever decides; a node that is alone decides itself."""
        self.role_changed: Callable[[RoleChange], None] = lambda role: None
        """Hears of roles before the controller does."""
        self.image_moved: Callable[[MetadataImage], None] = lambda image: None
        """Hears whenever the image has moved, behind the controller."""
        self._refusal: Exception | None = None
        self._is_serving = False
        loader.moved = self._moved
        quorum.following = self

    @property
    def image(self) -> MetadataImage:
        """What is committed and in force."""
        return self.loader.image

    @property
    def removed_ids(self) -> set[Uuid]:
        """Topics that the log has removed: their folders may go."""
        return self.loader.removed_ids

    @property
    def is_quiet(self) -> bool:
        """Whether all that was written is durable and in force."""
        return self.log.duties.is_idle and self.loader.is_idle

    def submit(
        self,
        order: Order,
        reply: Callable[[Any], None],
        refused: Callable[[ApiError], None],
        host: str | None = None,
    ) -> None:
        """Have an order decided, here or by another node; call `reply` once it is committed and in
        force, or `refused` if it cannot be written, or too many wait already. Either may be called
        before this returns. `host` has given the order; None for the node itself."""
        self.passed_on(order, Waiter(reply, refused, host))

    def decide(
        self,
        order: Order,
        reply: Callable[[Any], None],
        refused: Callable[[ApiError], None],
        host: str | None = None,
    ) -> None:
        """As `submit`, but NOT_CONTROLLER where another node decides."""
        self.controller.submit(order, Waiter(reply, refused, host))

    def submit_now(self, order: Order) -> Any:
        """Decide before anybody is served; returns the reply, raises what the disk refuses."""
        replies: list[Any] = []
        refusals: list[ApiError] = []
        self.submit(order, replies.append, refusals.append)
        for error in refusals:
            raise self._refusal or error
        return replies.pop()

    def start(self, snapshot: Snapshot) -> None:
        """Replay the log behind a snapshot, and be elected where this is the only voter, before
        anybody is served.

        Raises what the disk refuses, UnknownMetadataRecord for the log of a later version.
        """
        self.installed(snapshot)
        self.quorum.start()
        if self._refusal is not None:
            raise self._refusal

    def serve(self, publisher: Publisher, hands: Hands) -> None:
        """From here on others live by the image, and the disk is waited for in threads."""
        self._is_serving = True
        self.loader.serve(publisher)
        self.log.work_in(hands)

    def stop(self) -> None:
        """Do nothing more by itself."""
        self.quorum.stop()
        self.controller.stop()

    # What the quorum says.

    def committed(self, offset: int) -> None:
        self.loader.committed(offset)

    def installed(self, snapshot: Snapshot) -> None:
        self.snapshotter.begun(snapshot.snapshot_id.end_offset)
        self.loader.installed(snapshot.content, snapshot.snapshot_id.end_offset)

    def role(self, role: RoleChange) -> None:
        self.role_changed(role)
        self.controller.role(role, self.image)

    def unwritten(self, end_offset: int, error: Exception) -> None:
        self._refusal = error
        self.controller.unwritten(end_offset, error)

    # What the loader says.

    def _moved(self, image: MetadataImage) -> None:
        self.controller.moved(image)
        self.image_moved(image)
        if self._is_serving:
            self.snapshotter.moved(image)
