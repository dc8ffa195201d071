"""Replays the log of a coordinator's shard, and builds the header of a new marker.

The shard gets whole batches with their headers.
"""

from __future__ import annotations

from broker.coordinators.outcome import CoordinatorRecord, Shard
from broker.shards.loaded_shard import LOAD_BYTES, ProducerEpoch
from broker.storage.log import Log
from broker.storage.walk import check_region
from protocol.types import NO_SEQUENCE, NO_TIMESTAMP
from protocol.wire.records import (
    MAGIC,
    BatchHeader,
    iterate_batches,
    iterate_records,
    read_marker,
)

MARKER_ATTRIBUTES = 0x30
"""The attributes of a marker's batch: transactional, and control."""


def marker_header(offset: int, producer: ProducerEpoch, leader_epoch: int) -> BatchHeader:
    """Return the header of a marker, with the fields that a shard may read."""
    return BatchHeader(
        base_offset=offset,
        batch_length=0,
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=MARKER_ATTRIBUTES,
        last_offset_delta=0,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )


def replay_slice(log: Log, shard: Shard, offset: int) -> int:
    """Replay batches from `offset` on, up to a limit of bytes. Return the offset at which to
    continue.

    Raises CorruptionError for a damaged batch, which must not be used.
    """
    found = log.read(offset, LOAD_BYTES, log.log_end_offset).region
    if found is None:
        # A cleaning has removed all records from this offset to the end of the log.
        return log.log_end_offset
    check_region(found)
    for header, batch in iterate_batches(found.read()):
        offset = header.last_offset + 1
        if header.is_control:
            for record in iterate_records(batch):
                marker = read_marker(record)
                if marker is not None:
                    shard.replay_marker(header, marker)
            continue
        shard.replay_batch(
            header,
            [
                CoordinatorRecord(record.key, record.value)
                for record in iterate_records(batch)
                if record.key is not None
            ],
        )
    return offset
