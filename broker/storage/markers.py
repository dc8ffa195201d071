"""Transaction markers: the control batches that commit or abort a transaction.

This module is pure. One record: key `version int16, type int16` (0 abort, 1 commit), value `version
int16, coordinator epoch int32`. The batch is transactional and a control batch, names the producer,
and has no sequence.
"""

from __future__ import annotations

from broker.storage.disk import DiskFile
from protocol.errors import CorruptBatch
from protocol.wire.record import Marker, marker_record, read_marker
from protocol.wire.records import BatchHeader, build_batch, iterate_records, stamp_control


def build_marker(
    producer_id: int, producer_epoch: int, *, is_commit: bool, coordinator_epoch: int, now_ms: int
) -> memoryview:
    """Build the batch that ends a transaction, without offset and leader epoch."""
    batch = build_batch(
        [marker_record(Marker(is_commit, coordinator_epoch), now_ms)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
    )
    stamp_control(batch)
    return memoryview(batch)


def marker_of(batch: bytes | memoryview) -> Marker | None:
    """Return the marker in a control batch; None if the batch is empty or not a marker.

    Raises WireError if the batch cannot be read.
    """
    for record in iterate_records(batch):
        return read_marker(record)
    return None


def read_marker_at(file: DiskFile, position: int, header: BatchHeader) -> Marker | None:
    """Return the marker in a control batch as `marker_of` does, but read the batch from a file."""
    data = file.read(header.size_bytes, position)
    if len(data) < header.size_bytes:
        raise CorruptBatch(
            f"the control batch at byte {position} is longer than the rest of its file"
        )
    return marker_of(data)
