"""Checks batches that a follower fetched from the leader, before it appends them unchanged.

This module is pure. The leader has already validated these batches. The follower checks only what
its log needs: whole batches, right checksums, offsets at or above its log end offset, and leader
epochs that do not fall. Offsets can be missing, because the leader's log can have been cleaned.
Sequences and transactions are recorded without validation, markers included, so that this replica
knows all producers when it becomes the leader.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.storage.known_producer import LastMarker
from broker.storage.markers import marker_of
from broker.storage.producer_state import ProducerStateManager
from broker.storage.txn_index import AbortedEntry
from protocol.errors import CorruptBatch
from protocol.wire.record import Marker
from protocol.wire.records import BatchHeader, check_crc, iterate_batches

Fetched = tuple[BatchHeader, memoryview]
"""One batch with its parsed header."""


class GapsUnmarked(Exception):
    """Offsets are missing, and the log does not yet have the mark that allows gaps (`gap_mark`).

    This is not a refusal. It is raised before anything has changed.
    """


class BeginsBelow(Exception):
    """The log is empty and must be reset to the lower base offset of the first batch.

    This happens when the leader has deleted records up to the middle of this batch. This is not a
    refusal. It is raised before anything has changed.
    """

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"the first batch begins at {base_offset}")
        self.base_offset = base_offset


def fitting(
    records: memoryview, start_offset: int, end_offset: int, last_epoch: int
) -> list[Fetched]:
    """Return the whole batches of a fetch answer. They must have offsets from `end_offset` on and
    leader epochs from `last_epoch` on.

    An incomplete batch at the end is left out, because a fetch answer can end within a batch.
    Raises CorruptBatch or another WireError for bytes that no log may contain. A batch that begins
    below `end_offset` is invalid too, even if it spans `end_offset`. If the log is still empty,
    BeginsBelow is raised instead.
    """
    batches = list(iterate_batches(records))
    for header, view in batches:
        if header.last_offset_delta < 0:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} has last offset delta"
                f" {header.last_offset_delta}, expected at least 0"
            )
        base_offset = header.base_offset
        if base_offset < end_offset:
            if start_offset == end_offset <= header.last_offset:
                raise BeginsBelow(base_offset)
            raise CorruptBatch(
                f"the leader sent a batch that begins at offset {base_offset}, expected at "
                f"least the log end offset {end_offset}"
            )
        if header.partition_leader_epoch < last_epoch:
            raise CorruptBatch(
                f"the batch at offset {base_offset} has leader epoch "
                f"{header.partition_leader_epoch}, which is older than epoch {last_epoch} of "
                "the batch before it"
            )
        if not check_crc(view):
            raise CorruptBatch(f"the checksum of the batch at offset {base_offset} is wrong")
        end_offset, last_epoch = header.last_offset + 1, header.partition_leader_epoch
    return batches


def has_gaps(batches: Sequence[Fetched], end_offset: int) -> bool:
    """Return True if offsets are missing before one of the batches."""
    for header, _ in batches:
        if header.base_offset != end_offset:
            return True
        end_offset = header.last_offset + 1
    return False


def markers_of(batches: Sequence[Fetched]) -> dict[int, Marker]:
    """Return the transaction markers by base offset. Raises WireError if one is unreadable."""
    found = {}
    for header, view in batches:
        if header.is_control and header.producer_id >= 0:
            marker = marker_of(view)
            if marker is not None:
                found[header.base_offset] = marker
    return found


def take_over(
    state: ProducerStateManager, header: BatchHeader, marker: Marker | None, now_ms: int
) -> AbortedEntry | None:
    """Update the producer state for a staged batch. Return the transaction that the batch aborts.

    `now_ms` becomes the producer's time of last use. The batch's own time is not used, because it
    can be old. With an old time the producer would expire at once, and a retry of its batch would
    be appended a second time.
    """
    if marker is None:
        if header.producer_id >= 0 and not header.is_control:
            state.update(header, header.base_offset, header.max_timestamp, now_ms)
        return None
    producer_id, offset = header.producer_id, header.last_offset
    last = LastMarker(marker.coordinator_epoch, header.max_timestamp, offset)
    ended = state.end_transaction(producer_id, header.producer_epoch, last, now_ms)
    if ended is None or marker.is_commit:
        return None
    return AbortedEntry(producer_id, ended.first_offset, offset, ended.last_stable_offset)
