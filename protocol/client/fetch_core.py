"""What a reader makes of one partition of a Fetch answer: records, and where to go on.

Floor: client. Pure. Rules: records before the offset asked for are skipped, because a broker sends
whole batches; control batches hold no records but take up offsets; under READ_COMMITTED the batches
of a producer between the first offset of its aborted transaction and the abort marker are skipped
too; the position moves past everything that was skipped.
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
    """Which records of transactions a reader wants to see."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class BatchOrigin(NamedTuple):
    """Of a record batch up to `last_offset`: under which leader it was written, by whose clock."""

    last_offset: int
    leader_epoch: int
    is_log_append_time: bool


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """New records of one partition, in order, with the bounds the broker told.

    `next_offset` is the position after them. `records` may be empty where all were skipped;
    `origins` are those of the batches that they came in, in order.
    """

    tp: TopicPartition
    high_watermark: int
    records: Sequence[Record]
    next_offset: int
    last_stable_offset: int
    log_start_offset: int
    origins: Sequence[BatchOrigin] = ()
    leader_epoch: int | None = None
    """Of the last batch that was read or skipped; None where there was no batch."""


def read_partition(
    tp: TopicPartition,
    data: PartitionData,
    offset: int,
    isolation_level: int,
    *,
    verify_crc: bool = True,
    decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
) -> FetchedBatch:
    """The records of `data` from `offset` on.

    UnreadableBatch names partition and offset of a batch that cannot be opened. Nothing before it
    is lost, and a reader that seeks behind it gets the rest.
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
        # What came before is good; the fault comes back alone at its own offset.
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
    """Return the timestamp of the first record from `offset` on that a reader sees, and the
    offset up to which `data` was searched.

    Only the batch that holds the record is opened, because a caller asks this of many partitions.
    The timestamp is None when `data` holds markers and aborted records only. Raise CorruptBatch or
    another WireError when that batch cannot be opened.
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
    """Which batches of one answer belong to aborted transactions, or are markers."""

    def __init__(self, transactions: Sequence[AbortedTransaction], isolation_level: int) -> None:
        self._is_committed_only = isolation_level == IsolationLevel.READ_COMMITTED
        self._coming = deque(sorted(transactions, key=lambda aborted: aborted.first_offset))
        self._open: set[int] = set()

    def hides(self, header: BatchHeader, batch: memoryview) -> bool:
        """Whether a reader sees nothing of the batch; call it for each batch in order."""
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
