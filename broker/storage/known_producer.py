"""The state of one producer in a log, and the first batches that were refused.

This module is pure. These are plain values. `producer_state` validates batches with them, and
snapshots store them.
"""

from __future__ import annotations

from typing import NamedTuple

AWAITED_COUNT_MAX = 1_000
"""The largest number of producers per partition for which a refused first batch is remembered."""

NOTHING_AWAITED = (-2, -1)
"""The entry of a producer without a refused first batch. No producer has this epoch."""


class KnownBatch(NamedTuple):
    """A batch in the log: its sequences and offsets, by which a retry is recognised."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int


NO_BATCH = KnownBatch(-1, -1, -1, -1, -1)
"""The placeholder for the last batch of an epoch that has only a marker so far. The next batch must
have sequence 0."""

UNKNOWN_BATCH = KnownBatch(-1, -1, -2, -2, -1)
"""The placeholder for a last batch that is unknown, for example after retention. The next batch can
have any sequence."""

Awaited = dict[int, tuple[int, int]]
"""The epoch and sequence of each producer's first batch that was refused, by producer id."""


def note_refused(awaited: Awaited, producer_id: int, producer_epoch: int, sequence: int) -> None:
    """Remember a refused batch, unless a batch of the same or a newer epoch is remembered.

    A newer epoch replaces the older one, because no producer sends the batch of the older epoch
    again.
    """
    known_epoch, _ = awaited.get(producer_id, NOTHING_AWAITED)
    if known_epoch >= producer_epoch:
        return
    if known_epoch == NOTHING_AWAITED[0] and len(awaited) >= AWAITED_COUNT_MAX:
        del awaited[next(iter(awaited))]
    awaited[producer_id] = producer_epoch, sequence


class LastMarker(NamedTuple):
    """The newest marker of a producer."""

    coordinator_epoch: int
    timestamp_ms: int
    offset: int = -1
    """The offset of the marker; -1 if it is known only from a snapshot."""


class ActiveProducer(NamedTuple):
    """The values of one producer in an answer to DescribeProducers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    """The last sequence of the producer's epoch; -1 before the first batch."""
    last_timestamp_ms: int
    coordinator_epoch: int
    """The coordinator epoch of the producer's last marker; -1 without a marker."""
    current_txn_start_offset: int
    """The start offset of the open transaction; -1 if no transaction is open."""


class KnownProducer:
    """The state of one producer id in one partition."""

    __slots__ = ("batches", "last_used_ms", "producer_epoch")

    def __init__(self, producer_epoch: int, batches: list[KnownBatch], last_used_ms: int) -> None:
        self.producer_epoch = producer_epoch
        self.batches = batches
        self.last_used_ms = last_used_ms
