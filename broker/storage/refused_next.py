"""Batches that would have been their producers' next, and were refused though nothing was wrong.

Floor: storage. Pure. What a producer has sent behind such a batch is out of order, and yet no
mistake of its client's: it only has to wait. Some clients take OUT_OF_ORDER_SEQUENCE_NUMBER for
more than that. librdkafka gives all its batches new sequences of a new epoch then, also those for
other partitions, and what had been written there without its having heard of it would stand twice.
"""

from __future__ import annotations

from broker.storage.known_producer import AWAITED_COUNT_MAX

BEHIND_MAX = 4
"""Batches of an idempotent producer that may be under way behind one (Kafka's
`max.in.flight.requests.per.connection` is 5 at most). More than these do not wait for a batch that
does not come."""


class RefusedNext:
    """Of each producer the last one."""

    __slots__ = ("_behind", "_refused")

    def __init__(self) -> None:
        self._refused: dict[int, tuple[int, int]] = {}
        """Producer id -> epoch and sequence."""
        self._behind: dict[int, int] = {}
        """Producer id -> how many more may wait for it."""

    def note(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """A producer's next batch was refused, and will come again."""
        if producer_id not in self._refused and len(self._refused) >= AWAITED_COUNT_MAX:
            self._forget(next(iter(self._refused)))
        self._refused[producer_id] = producer_epoch, sequence
        self._behind[producer_id] = BEHIND_MAX

    def note_behind(self, producer_id: int) -> None:
        """Another one of that producer's was refused, which comes behind it."""
        if producer_id in self._refused:
            self._behind[producer_id] -= 1
            if not self._behind[producer_id]:
                self._forget(producer_id)

    def is_waited_for(self, producer_id: int, producer_epoch: int, sequence: int) -> bool:
        """Whether a batch that is missing was refused here, so that others wait for it."""
        return self._refused.get(producer_id) == (producer_epoch, sequence)

    def _forget(self, producer_id: int) -> None:
        del self._refused[producer_id], self._behind[producer_id]
