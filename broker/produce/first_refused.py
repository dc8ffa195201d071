"""What partitions that could not be made yet have refused: in order it must come again.

Floor: produce. A producer sends its batches one behind the other. When the disk has refused to make
a partition, the first of them is refused; if the partition is there before the second arrives, that
one must not be taken, or the first would come behind it.
"""

from __future__ import annotations

from broker.replicas.replica import Replica
from broker.storage.known_producer import Awaited, note_refused
from protocol.errors import WireError
from protocol.wire.records import read_header

REFUSED_MAX = 10_000
"""Partitions whose refusals are remembered."""


class FirstRefused:
    """By partition, the first batch of each producer that it has refused."""

    __slots__ = ("by_place",)

    def __init__(self) -> None:
        self.by_place: dict[tuple[str, int], Awaited] = {}
        """By topic and index."""

    def note(self, topic: str, index: int, batch: memoryview | None) -> None:
        """A partition that could not be made yet has refused a producer's batch."""
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
        """The partition is there: nothing of those producers may be taken before what they miss."""
        first = self.by_place.pop((replica.topic, replica.index), {})
        for producer_id, (producer_epoch, sequence) in first.items():
            replica.log.producer_state.note_refused(producer_id, producer_epoch, sequence)

    def topics_removed(self, names: set[str]) -> None:
        """What a topic's partitions have refused is no matter of its namesake's."""
        for place in [one for one in self.by_place if one[0] in names]:
            del self.by_place[place]
