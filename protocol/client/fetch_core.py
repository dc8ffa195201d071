"""Turns one partition of a Fetch response into records and the next position.

This module is pure. Records before the requested offset are skipped, because a broker sends whole
batches. Control batches contain no records but use offsets. READ_COMMITTED also skips aborted
transactions: the batches of the producer from its first offset to the abort marker. The position
moves past all skipped batches.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from protocol.client.errors import UnreadableBatch
from protocol.errors import CorruptBatch, WireError
from protocol.messages.fetch import AbortedTransaction, PartitionData
from protocol.types import TopicPartition
from protocol.wire.record import Record, read_marker
from protocol.wire.records import (
    BatchHeader,
    check_crc,
    iterate_batches,
    iterate_places,
    iterate_records,
)

DECOMPRESSED_BYTES_MAX = 64 << 20


class IsolationLevel(IntEnum):
    """The transactional records that a reader gets: all, or only committed ones."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class BatchOrigin(NamedTuple):
    """The leader epoch and timestamp type of a batch, for its records up to `last_offset`."""

    last_offset: int
    leader_epoch: int
    is_log_append_time: bool


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """New records of one partition, in order, with the offsets that the broker reported.

    `next_offset` is the position after the records. `records` is empty if all were skipped.
    `origins` describe the batches of the records, in order.
    """

    tp: TopicPartition
    high_watermark: int
    records: Sequence[Record]
    next_offset: int
    last_stable_offset: int
    log_start_offset: int
    origins: Sequence[BatchOrigin] = ()
    leader_epoch: int | None = None
    """The leader epoch of the last batch read or skipped; None without a batch."""


def read_partition(
    tp: TopicPartition,
    data: PartitionData,
    offset: int,
    isolation_level: int,
    *,
    verify_crc: bool = True,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> FetchedBatch:
    """Return the records of a Fetch response from `offset` on, up to the first unreadable batch.

    Raises UnreadableBatch if the batch at `offset` cannot be read. The caller can seek past that
    batch.
    """
    records: list[Record] = []
    origins: list[BatchOrigin] = []
    leader_epoch: int | None = None
    good_count = 0
    next_offset = offset
    aborted = _Aborted(data.aborted_transactions or (), isolation_level)
    buffer = data.records if data.records is not None else b""
    header: BatchHeader | None = None
    try:
        for header, batch in iterate_batches(buffer):
            hidden = aborted.hides(header, batch)
            if header.last_offset < offset:
                continue
            if verify_crc and not check_crc(batch):
                raise CorruptBatch("the CRC of the batch is wrong")
            if not hidden:
                for record in iterate_records(batch, decompressed_bytes_max):
                    if record.offset >= offset:
                        records.append(record)
                origins.append(_origin(header))
            good_count = len(records)
            next_offset = header.last_offset + 1
            leader_epoch = header.partition_leader_epoch
        if len(buffer) and header is None:
            raise CorruptBatch(f"the broker sent {len(buffer)} bytes without a whole batch")
    except WireError as error:
        if next_offset == offset:
            behind = None
            if header is not None and header.last_offset >= offset and check_crc(batch):
                behind = header.last_offset + 1
            raise UnreadableBatch(tp, next_offset, behind, str(error)) from error
        # The records before the bad batch are returned. The next call starts at the bad batch and
        # raises.
        del records[good_count:]
    return FetchedBatch(
        tp,
        data.high_watermark,
        records,
        next_offset,
        data.last_stable_offset,
        data.log_start_offset,
        origins,
        leader_epoch,
    )


def first_timestamp(
    data: PartitionData,
    offset: int,
    isolation_level: int,
    *,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> tuple[int | None, int]:
    """Return the timestamp of the first readable record, and the offset before which there is none.

    Only the batch with that record is decompressed, because callers do this for many partitions.
    The timestamp is None if `data` has only markers and aborted records. Raises CorruptBatch or
    another WireError if the batch cannot be read.
    """
    aborted = _Aborted(data.aborted_transactions or (), isolation_level)
    next_offset = offset
    for header, batch in iterate_batches(data.records or b""):
        hidden = aborted.hides(header, batch)
        if header.last_offset < offset:
            continue
        if not hidden:
            if not check_crc(batch):
                raise CorruptBatch("the CRC of the batch is wrong")
            for record_offset, timestamp_ms, _ in iterate_places(batch, decompressed_bytes_max):
                if record_offset >= offset:
                    return timestamp_ms, next_offset
        next_offset = header.last_offset + 1
    return None, next_offset


def _origin(header: BatchHeader) -> BatchOrigin:
    return BatchOrigin(header.last_offset, header.partition_leader_epoch, header.is_log_append_time)


class _Aborted:
    """Finds out which batches of one response are markers or belong to aborted transactions."""

    def __init__(self, transactions: Sequence[AbortedTransaction], isolation_level: int) -> None:
        self._is_committed_only = isolation_level == IsolationLevel.READ_COMMITTED
        self._coming = deque(sorted(transactions, key=lambda aborted: aborted.first_offset))
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Return whether the reader must not get the records of a batch.

        These are control batches and, with READ_COMMITTED, batches of aborted transactions. Call
        this for each batch in order, because an abort marker ends its transaction for the batches
        after it.
        """
        if self._is_committed_only:
            while self._coming and self._coming[0].first_offset <= header.last_offset:
                self._open.add(self._coming.popleft().producer_id)
        if header.is_control:
            if self._is_committed_only:
                for record in iterate_records(batch):
                    marker = read_marker(record)
                    if marker is not None and not marker.is_commit:
                        self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
