"""The batches that were next in their producer's sequence but were refused for another reason.

This module is pure. The batches that the producer sent after a refused batch are out of order, but
this is not the client's mistake: the client must only send them again later. Some clients do more
than a retry after OUT_OF_ORDER_SEQUENCE_NUMBER. librdkafka gives all its batches new sequences
under a new epoch, including batches for other partitions. If a batch was written to another
partition but not yet acknowledged, it would be written twice.
"""

from __future__ import annotations

from broker.storage.known_producer import AWAITED_COUNT_MAX

BEHIND_MAX = 4
"""The number of batches of an idempotent producer that can be in flight behind another batch.

Kafka's `max.in.flight.requests.per.connection` is at most 5. If the refused batch never comes
again, at most this many later batches are refused for it.
"""


class RefusedNext:
    """The last refused next batch of each producer."""

    __slots__ = ("_behind", "_refused")

    def __init__(self) -> None:
        self._refused: dict[int, tuple[int, int]] = {}
        """The epoch and the sequence of the refused batch, by producer id."""
        self._behind: dict[int, int] = {}
        """The number of further batches that may wait for the refused one, by producer id."""

    def note(self, producer_id: int, producer_epoch: int, sequence: int) -> None:
        """Record that a producer's next batch was refused. The producer is expected to send it
        again."""
        if producer_id not in self._refused and len(self._refused) >= AWAITED_COUNT_MAX:
            self._forget(next(iter(self._refused)))
        self._refused[producer_id] = producer_epoch, sequence
        self._behind[producer_id] = BEHIND_MAX

    def note_behind(self, producer_id: int) -> None:
        """Record that a later batch of this producer was refused because it must wait."""
        if producer_id in self._refused:
            self._behind[producer_id] -= 1
            if not self._behind[producer_id]:
                self._forget(producer_id)

    def is_waited_for(self, producer_id: int, producer_epoch: int, sequence: int) -> bool:
        """Return True if this leader refused the missing batch, so that later batches wait for
        it."""
        return self._refused.get(producer_id) == (producer_epoch, sequence)

    def _forget(self, producer_id: int) -> None:
        del self._refused[producer_id], self._behind[producer_id]
