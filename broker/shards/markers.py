"""Transaction markers: written into the partitions led here, and waited for.

Floor: shards. Whoever writes one learns how its wait ends: committed, gone with its partition
(UNKNOWN_TOPIC_OR_PARTITION: nobody can be misled by what it held), or not led here any more
(NOT_LEADER_OR_FOLLOWER: it must be written where the leader is by then).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.metadata.image import OFFSETS_TOPIC
from broker.offset_waiters import OffsetWaiter
from broker.replicas.replica import Replica
from broker.shards.loaded_shard import ProducerEpoch, ShardPorts
from broker.storage.errors import DiskError
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import Marker

FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""Refusals for good: somebody newer has ended the transaction there already."""


class TxnMarker(NamedTuple):
    """How one producer's transaction has ended."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class OffsetShards(Protocol):
    """Where offsets wait that a transaction has committed (`groups`)."""

    def marker_written(
        self, replica: Replica, offset: int, producer: ProducerEpoch, marker: Marker
    ) -> None:
        """A transaction's marker stands in one of the offsets topic's partitions."""


class Markers:
    """Writes markers."""

    def __init__(self, ports: ShardPorts, offset_shards: OffsetShards) -> None:
        self._ports = ports
        self._offset_shards = offset_shards

    def write(
        self,
        replica: Replica,
        marker: TxnMarker,
        waiter: OffsetWaiter,
        deadline_ms: int | None = None,
    ) -> None:
        """Write a marker; the waiter hears when it is committed, perhaps before this returns.

        Refuses with INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED what is older than
        the log knows, and with KAFKA_STORAGE_ERROR when the disk does. Without a deadline the
        waiter waits for as long as the partition is led here.
        """
        log = replica.log
        now_ms = self._ports.clock.now_ms()
        try:
            appended = log.append_marker(
                marker.producer_id,
                marker.producer_epoch,
                marker.is_commit,
                marker.coordinator_epoch,
                replica.leader_epoch,
                now_ms,
            )
            log.write_staged(now_ms)
        except DiskError as error:
            self._ports.write_failed(replica.topic_partition, error, now_ms)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        if replica.topic == OFFSETS_TOPIC:
            self._offset_shards.marker_written(
                replica,
                appended.last_offset,
                ProducerEpoch(marker.producer_id, marker.producer_epoch),
                Marker(marker.is_commit, marker.coordinator_epoch),
            )
        end_offset = appended.last_offset + 1
        if deadline_ms is None:
            replica.committed.await_(end_offset, waiter, None)
        else:
            self._ports.waits.await_(replica.committed, end_offset, waiter, deadline_ms)
        self._ports.replicas.counting.written(replica)

    def write_once(
        self, replica: Replica, marker: TxnMarker, waiter: OffsetWaiter, deadline_ms: int
    ) -> None:
        """The same for whoever may ask again because no answer has come, or one of a wait that
        took too long: a marker that stands here already is waited for, and not written again."""
        log = replica.log
        state = log.producer_state
        known = state.known_marker(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
        )
        if known is None:
            self.write(replica, marker, waiter, deadline_ms)
            return
        # It may also be that of the transaction before, where this one has written nothing.
        state.verifications.void(marker.producer_id)
        end_offset = known.offset + 1 if known.offset >= 0 else log.log_end_offset
        self._ports.waits.await_(replica.committed, end_offset, waiter, deadline_ms)
