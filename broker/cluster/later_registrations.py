"""Notes how long ago other brokers registered, if they did so while this process ran.

This module is pure. The metadata log has no times of registrations. But a broker epoch is the
offset of a registration, so a broker with a greater epoch than this process registered after it,
and this process saw that in its replayed metadata. On several hosts a rolling restart has no common
supervisor, so each host's command needs this to say which hosts are left.
"""

from __future__ import annotations

from broker.metadata.image import MetadataImage
from protocol.types import Uuid


class LaterRegistrations:
    """The registrations of other brokers after that of this process. All times are monotonic."""

    def __init__(self, own_id: int, incarnation_id: Uuid) -> None:
        """`incarnation_id` is that of this process."""
        self._own_id = own_id
        self._incarnation_id = incarnation_id
        self._seen: dict[int, tuple[int, int]] = {}
        """The broker epoch of each such broker, and the time at which it was first seen."""

    def moved(self, image: MetadataImage, now_ms: int) -> None:
        """Handle a changed image. Nothing is seen before this process itself is registered."""
        own = image.brokers.get(self._own_id)
        if own is None or own.incarnation_id != self._incarnation_id:
            return
        for node_id, broker in image.brokers.items():
            known = self._seen.get(node_id)
            if broker.broker_epoch > own.broker_epoch and (
                known is None or known[0] != broker.broker_epoch
            ):
                self._seen[node_id] = (broker.broker_epoch, now_ms)

    def ages_ms(self, now_ms: int) -> dict[int, int]:
        """Return for how long each such broker has been registered."""
        return {node_id: now_ms - at_ms for node_id, (_, at_ms) in self._seen.items()}
