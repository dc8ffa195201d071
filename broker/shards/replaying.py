"""What a shard's log holds, read back into the shard, and what a marker just written looks like.

Floor: shards, below `shard_driver`. Batches reach the shard whole, with their header.
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
"""Transactional and control."""


def marker_header(offset: int, producer: ProducerEpoch, leader_epoch: int) -> BatchHeader:
    """What the log says around a marker, as far as a shard may ask."""
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
    """Replay the batches from `offset` on, a slice's worth; returns where the next slice begins.

    CorruptionError for a batch that is not what was written: nobody may act on that.
    """
    found = log.read(offset, LOAD_BYTES, log.log_end_offset).region
    if found is None:
        # A cleaning has left nothing from here to the end.
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
