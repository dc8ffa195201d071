"""What a follower has fetched, on its way into its own log: as it is, offsets and epochs kept.

Floor: storage. Pure. The leader has judged these batches as a client's; what is asked of them here
is what the log needs to stand: whole batches, right checksums, offsets at or above the own end,
epochs that do not fall. Offsets may be missing, for the leader's log may have been cleaned.
Sequences and transactions are not judged but taken over, markers included, so that this replica
knows all producers when it has to lead.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.storage.known_producer import LastMarker
from broker.storage.markers import marker_of
from broker.storage.producer_state import ProducerState
from broker.storage.txn_index import AbortedEntry
from protocol.errors import CorruptBatch
from protocol.wire.record import Marker
from protocol.wire.records import BatchHeader, check_crc, iterate_batches

Fetched = tuple[BatchHeader, memoryview]
"""One batch, its header read."""


class GapsUnmarked(Exception):
    """No refusal: offsets are missing, and the log has no mark yet that says so (`gap_mark`).

    Raised before anything has changed.
    """


class BeginsBelow(Exception):
    """No refusal: the log is empty, and must be begun anew where the first batch begins.

    Its leader has deleted records up to the middle of that. Raised before anything has changed.
    """

    def __init__(self, base_offset: int) -> None:
        super().__init__(f"the first batch begins at {base_offset}")
        self.base_offset = base_offset


def fitting(
    records: memoryview, start_offset: int, end_offset: int, last_epoch: int
) -> list[Fetched]:
    """Every whole batch of a fetch, if all of them can follow `end_offset` and `last_epoch`.

    A batch cut short at the end is left out: a fetch may end anywhere. Raises CorruptBatch, or
    another WireError, for what no log may hold. That includes a batch which begins below
    `end_offset`, also where it spans it; but BeginsBelow where nothing is in the log yet.
    """
    batches = list(iterate_batches(records))
    for header, view in batches:
        if header.last_offset_delta < 0:
            raise CorruptBatch(f"a batch has last offset delta {header.last_offset_delta}")
        base_offset = header.base_offset
        if base_offset < end_offset:
            if start_offset == end_offset <= header.last_offset:
                raise BeginsBelow(base_offset)
            raise CorruptBatch(f"a batch begins at {base_offset}, the log ends at {end_offset}")
        if header.partition_leader_epoch < last_epoch:
            raise CorruptBatch(f"epoch {header.partition_leader_epoch} follows {last_epoch}")
        if not check_crc(view):
            raise CorruptBatch(f"the checksum of the batch at {base_offset} is wrong")
        end_offset, last_epoch = header.last_offset + 1, header.partition_leader_epoch
    return batches


def has_gaps(batches: Sequence[Fetched], end_offset: int) -> bool:
    """Whether offsets are missing in front of one of the batches."""
    for header, _ in batches:
        if header.base_offset != end_offset:
            return True
        end_offset = header.last_offset + 1
    return False


def markers_of(batches: Sequence[Fetched]) -> dict[int, Marker]:
    """The transaction markers among them, by base offset; a WireError for one not to be read."""
    found = {}
    for header, view in batches:
        if header.is_control and header.producer_id >= 0:
            marker = marker_of(view)
            if marker is not None:
                found[header.base_offset] = marker
    return found


def take_over(
    state: ProducerState, header: BatchHeader, marker: Marker | None, now_ms: int
) -> AbortedEntry | None:
    """Tell the producers of a batch that is being staged; returns a transaction it has aborted.

    `now_ms` is when the producer was last heard of: the batch's own time may be that of an old
    file's lines, and a producer forgotten for it could write a batch twice.
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
