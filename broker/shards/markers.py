"""Writes transaction markers into the partitions that this broker leads.

The waiter gets one of four results: committed; fenced by a newer epoch that is committed
(`FENCED`); the partition is deleted (UNKNOWN_TOPIC_OR_PARTITION, so no reader can see its records);
or this broker does not lead it any more (NOT_LEADER_OR_FOLLOWER, so the new leader must write the
marker).
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.metadata.image import OFFSETS_TOPIC
from broker.purgatory import WaitingOperation
from broker.replicas.replica import Replica
from broker.shards.loaded_shard import ProducerEpoch, ShardPorts
from broker.storage.errors import DiskError
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import Marker

FENCED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""The final errors: a newer coordinator or producer has already ended the transaction in the
partition, and this is committed."""


class TxnMarker(NamedTuple):
    """A marker: the outcome of one producer's transaction."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int


class OffsetShards(Protocol):
    """The interface to the coordinator that has the pending offsets of transactions (`groups`)."""

    def marker_written(
        self, replica: Replica, offset: int, producer: ProducerEpoch, marker: Marker
    ) -> None:
        """Handle a marker that was written to a partition of the offsets topic."""


class _FencedWait:
    """The wait of a fenced marker until the newer epoch that fences it is committed."""

    __slots__ = ("_code", "_waiter")

    def __init__(self, waiter: WaitingOperation, code: ErrorCode) -> None:
        self._waiter = waiter
        self._code = code

    def reached(self) -> None:
        self._waiter.lost(self._code)

    def lost(self, code: ErrorCode) -> None:
        self._waiter.lost(code)


class Markers:
    """Writes transaction markers into partitions that this broker leads."""

    def __init__(self, ports: ShardPorts, offset_shards: OffsetShards) -> None:
        self._ports = ports
        self._offset_shards = offset_shards

    def write(
        self,
        replica: Replica,
        marker: TxnMarker,
        waiter: WaitingOperation,
        deadline_ms: int | None = None,
    ) -> None:
        """Write a marker. The waiter is notified when the marker is committed, possibly before this
        method returns.

        A marker that is older than the log's state is not written. The waiter gets the error from
        `FENCED` only when that state is committed. If this leader is lost before, the next leader
        does not have the newer epoch, so it must write this marker.

        Raises KAFKA_STORAGE_ERROR for a disk error. Without a deadline, the wait lasts as long as
        this broker leads the partition.
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
        except ApiError as error:
            if error.code not in FENCED:
                raise
            self._await(replica, log.log_end_offset, _FencedWait(waiter, error.code), deadline_ms)
            return
        if replica.topic == OFFSETS_TOPIC:
            self._offset_shards.marker_written(
                replica,
                appended.last_offset,
                ProducerEpoch(marker.producer_id, marker.producer_epoch),
                Marker(marker.is_commit, marker.coordinator_epoch),
            )
        self._await(replica, appended.last_offset + 1, waiter, deadline_ms)
        replica.on_written()

    def write_once(
        self, replica: Replica, marker: TxnMarker, waiter: WaitingOperation, deadline_ms: int
    ) -> None:
        """Write a marker, unless it is already in the log. If it is, only wait for its commit.

        A sender that repeats its request after a lost answer or a timeout uses this method.
        """
        log = replica.log
        state = log.producer_state
        known = state.known_marker(
            marker.producer_id, marker.producer_epoch, marker.coordinator_epoch
        )
        if known is None:
            self.write(replica, marker, waiter, deadline_ms)
            return
        # If this transaction has appended nothing here, the marker in the log can belong to the
        # producer's former transaction.
        state.verifications.void(marker.producer_id)
        end_offset = known.offset + 1 if known.offset >= 0 else log.log_end_offset
        self._await(replica, end_offset, waiter, deadline_ms)

    def _await(
        self,
        replica: Replica,
        end_offset: int,
        waiter: WaitingOperation,
        deadline_ms: int | None,
    ) -> None:
        """Wait until everything below `end_offset` is committed."""
        if deadline_ms is None:
            replica.committed.await_(end_offset, waiter, None)
        else:
            self._ports.waits.await_(replica.committed, end_offset, waiter, deadline_ms)
