"""Transaction markers: written into the partitions led here, and reported once they are committed.

Floor: shards. One waiting list per partition, in the order of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from broker.metadata.image import OFFSETS_TOPIC
from broker.replicas.replica_manager import Partition
from broker.shards.shard_driver import ProducerEpoch, ShardPorts
from broker.storage.errors import DiskError
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import Marker


class TxnMarker(NamedTuple):
    """How one producer's transaction has ended."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class OffsetShards(Protocol):
    """Where offsets wait that a transaction has committed (`groups`)."""

    def marker_written(
        self, partition: Partition, offset: int, producer: ProducerEpoch, marker: Marker
    ) -> None:
        """A transaction's marker stands in one of the offsets topic's partitions."""


class Markers:
    """All markers that are written and not committed."""

    def __init__(self, ports: ShardPorts, offset_shards: OffsetShards) -> None:
        self._ports = ports
        self._offset_shards = offset_shards
        self._waiting: dict[Partition, deque[tuple[int, Callable[[], None]]]] = {}

    def write(self, partition: Partition, marker: TxnMarker, done: Callable[[], None]) -> None:
        """Write a marker; `done` comes when it is committed, or when its partition is gone.

        Refuses with INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED what is older than
        the log knows, and with KAFKA_STORAGE_ERROR when the disk does. May call `done` before it
        returns.
        """
        log = partition.log
        now_ms = self._ports.clock.now_ms()
        try:
            appended = log.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.is_commit,
                marker.coordinator_epoch,
                partition.leader_epoch,
                now_ms,
            )
            log.write_staged(now_ms)
        except DiskError as error:
            self._ports.write_failed(partition.topic_partition, error, now_ms)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if partition.topic == OFFSETS_TOPIC:
            self._offset_shards.marker_written(
                partition,
                appended.last_offset,
                ProducerEpoch(marker.producer_id, marker.producer_epoch),
                Marker(marker.is_commit, marker.coordinator_epoch),
            )
        waiting = self._waiting.setdefault(partition, deque())
        waiting.append((appended.last_offset + 1, done))
        self._ports.replicas.written(partition)

    def advanced(self, partition: Partition) -> None:
        """The partition's high watermark has moved."""
        waiting = self._waiting.get(partition)
        if waiting is None:
            return
        while waiting and waiting[0][0] <= partition.log.high_watermark:
            waiting.popleft()[1]()
        if not waiting:
            self._waiting.pop(partition, None)

    def gone(self, partition: Partition) -> None:
        """The partition is not served here any more: nobody can be misled by what it held."""
        for _, done in self._waiting.pop(partition, ()):
            done()
