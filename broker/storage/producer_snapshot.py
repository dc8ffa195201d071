"""The producers of a log as of one offset, in Kafka's `.snapshot` file.

This module is pure. The file is, big-endian: version int16 (1), CRC-32C uint32 of all that follows,
a count int32, and per entry producer id int64, producer epoch int16, last sequence int32, last
offset int64, offset delta int32, timestamp int64, coordinator epoch int32, first offset of the open
transaction int64 (-1: none). The file name is the offset that comes next.

Kafka keeps only a producer's last batch. Here each of its last batches has an entry, oldest
first. Kafka reads the file too and uses the last entry, while this broker recognises every retry.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from broker.storage.known_producer import (
    NO_BATCH,
    UNKNOWN_BATCH,
    KnownBatch,
    KnownProducer,
    LastMarker,
)
from broker.storage.producer_state import ProducerStateManager
from protocol.wire.batch_header import SEQUENCE_MAX
from protocol.wire.crc32c import crc32c

VERSION = 1
_HEAD = Struct(">hIi")
_CRC_END = 6
_ENTRY = Struct(">qhiqiqiq")


class SnapshotEntry(NamedTuple):
    """One batch of one producer. If there is none, sequence and offsets are placeholders."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int
    coordinator_epoch: int
    current_txn_first_offset: int


class ProducerSnapshot:
    """A copy of the producer state, taken in the loop and encoded in a thread."""

    __slots__ = ("_markers", "_open", "_producers", "offset")

    def __init__(self, state: ProducerStateManager, offset: int) -> None:
        self.offset = offset
        self._producers = [
            (producer_id, producer.producer_epoch, tuple(producer.batches))
            for producer_id, producer in state.producers.items()
        ]
        self._markers = state.markers.copy()
        self._open = state.transactions.open.copy()

    def encode(self) -> bytes:
        rows = [
            _ENTRY.pack(*self._entry(producer_id, producer_epoch, batch))
            for producer_id, producer_epoch, batches in self._producers
            for batch in _entered(batches)
        ]
        content = b"".join([_HEAD.pack(VERSION, 0, len(rows)), *rows])
        return _HEAD.pack(VERSION, crc32c(content[_CRC_END:]), len(rows)) + content[_HEAD.size :]

    def _entry(self, producer_id: int, producer_epoch: int, batch: KnownBatch) -> SnapshotEntry:
        _, last_sequence, base_offset, last_offset, timestamp_ms = batch
        marker = self._markers.get(producer_id)
        if marker is not None and last_sequence < 0:
            timestamp_ms = marker.timestamp_ms
        return SnapshotEntry(
            producer_id,
            producer_epoch,
            last_sequence,
            last_offset,
            last_offset - base_offset,
            timestamp_ms,
            -1 if marker is None else marker.coordinator_epoch,
            self._open.get(producer_id, -1),
        )


def _entered(batches: Sequence[KnownBatch]) -> Sequence[KnownBatch]:
    return [batch for batch in batches if batch.last_sequence >= 0] or batches[-1:]


def decode(data: bytes) -> list[SnapshotEntry]:
    """Read a file. Raises ValueError if it is incomplete."""
    if len(data) < _HEAD.size:
        raise ValueError(
            f"the producer snapshot has {len(data)} bytes, which is less than its header"
        )
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise ValueError(f"the producer snapshot has version {version}, expected 1")
    if crc32c(data[_CRC_END:]) != crc:
        raise ValueError("the checksum of the producer snapshot is wrong")
    if count < 0 or len(data) != _HEAD.size + count * _ENTRY.size:
        raise ValueError(
            f"the producer snapshot says that it has {count} entries, which does not fit its "
            f"{len(data)} bytes"
        )
    return [SnapshotEntry._make(row) for row in _ENTRY.iter_unpack(data[_HEAD.size :])]


def restore(
    entries: Sequence[SnapshotEntry], expiration_ms: int, count_max: int, used_ms: int
) -> ProducerStateManager:
    """Return the state that the entries describe, with `used_ms` as time of last use.

    The entries of a producer are sorted by epoch, because each writer has its own order.
    """
    state = ProducerStateManager(expiration_ms, count_max)
    for entry in sorted(entries, key=lambda one: (one.producer_epoch, one.last_offset)):
        producer_id = entry.producer_id
        batch = UNKNOWN_BATCH if entry.last_offset == UNKNOWN_BATCH.last_offset else NO_BATCH
        if entry.last_sequence >= 0:
            base_sequence = (entry.last_sequence - entry.offset_delta) & SEQUENCE_MAX
            base_offset = entry.last_offset - entry.offset_delta
            batch = KnownBatch(
                base_sequence,
                entry.last_sequence,
                base_offset,
                entry.last_offset,
                entry.timestamp_ms,
            )
        known = state.producers.get(producer_id)
        if known is None or known.producer_epoch != entry.producer_epoch:
            state.producers[producer_id] = KnownProducer(entry.producer_epoch, [batch], used_ms)
        else:
            known.batches.append(batch)
        if entry.coordinator_epoch >= 0:
            state.markers[producer_id] = LastMarker(entry.coordinator_epoch, entry.timestamp_ms)
        if entry.current_txn_first_offset >= 0:
            state.transactions.begin(producer_id, entry.current_txn_first_offset)
    state.transactions.keep()
    return state
