"""Batches refused by partitions that could not be created yet, which must come again first.

Room: produce. A producer sends its batches one after the other. If the disk refuses to create a
partition, the first batch is refused. If the partition exists before the second batch arrives, that
batch must not be accepted, because otherwise the first would be appended after it.
"""

from __future__ import annotations

from broker.replicas.replica import Replica
from broker.storage.known_producer import Awaited, note_refused
from protocol.errors import WireError
from protocol.wire.records import read_header

REFUSED_MAX = 10_000
"""The most partitions whose refused batches are remembered."""


class FirstRefused:
    """By partition, the first refused batch of each producer."""

    __slots__ = ("by_place",)

    def __init__(self) -> None:
        self.by_place: dict[tuple[str, int], Awaited] = {}
        """By topic and partition index."""

    def note(self, topic: str, index: int, batch: memoryview | None) -> None:
        """Record the refused batch of a producer for a partition that could not be created yet."""
        try:
            header = read_header(batch) if batch else None
        except WireError:
            return
        if header is None or header.producer_id < 0:
            return
        place = topic, index
        if place not in self.by_place and len(self.by_place) >= REFUSED_MAX:
            return
        first = self.by_place.setdefault(place, {})
        note_refused(first, header.producer_id, header.producer_epoch, header.base_sequence)

    def hand_over(self, replica: Replica) -> None:
        """Tell a new partition which refused batches must come first."""
        first = self.by_place.pop((replica.topic, replica.index), {})
        for producer_id, (producer_epoch, sequence) in first.items():
            replica.log.producer_state.note_refused(producer_id, producer_epoch, sequence)

    def topics_removed(self, names: set[str]) -> None:
        """Forget refusals of removed topics. A new topic with the same name starts without any."""
        for place in [one for one in self.by_place if one[0] in names]:
            del self.by_place[place]
