"""Takes snapshots of the image in force, and trims the log to the end of the older kept snapshot.

A snapshot is due when the log has grown beyond the limits, and when the voters have changed.

A snapshot is written in the metadata log's thread, after the fsync of all batches that it covers.
So the log always reaches the end of the snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from broker.cluster.metadata_log import RETRY_MS, MetadataLog
from broker.cluster.quorum_driver import QuorumDriver
from broker.metadata.features import METADATA_VERSION
from broker.metadata.image import MetadataImage
from broker.metadata.records import encode_record
from broker.metadata.snapshot import records_of
from broker.quorum.events import Snapshotted
from broker.quorum.snapshot import SnapshotId, build_snapshot
from broker.quorum.voters import VoterSet
from broker.storage.log import Log
from broker.world import Clock
from protocol.log import fields
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch

logger = logging.getLogger(__name__)

RECORDS_OF_BATCH = 500

SNAPSHOT_RECORDS = 10_000
SNAPSHOT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """The limits for the part of the log after the newest snapshot. A start replays no more than
    this part."""

    records: int = SNAPSHOT_RECORDS
    size_bytes: int = SNAPSHOT_BYTES


class LogTrimmer(Protocol):
    """The interface to the object that deletes the start of a log (`replicas/housekeeping`)."""

    def trim(self, log: Log, start_offset: int) -> None:
        """Delete the files that lie below the new start offset."""


class Snapshotter:
    """Takes a snapshot of the image when the log has grown beyond the limits."""

    def __init__(
        self,
        log: MetadataLog,
        quorum: QuorumDriver,
        clock: Clock,
        limits: SnapshotLimits | None = None,
    ) -> None:
        self._trimmer: LogTrimmer | None = None
        self._log = log
        self._quorum = quorum
        self._clock = clock
        self._limits = limits or SnapshotLimits()
        self._end_offset = 0
        """The end offset of the newest snapshot."""
        self._voters = VoterSet()
        """The voters in the newest snapshot."""
        self._end_bytes = 0
        """The size of the log in bytes when the newest snapshot was taken."""
        self._level = 0
        self._wanted_offset = 0
        """The offset that the newest snapshot must reach; 0 if the limits alone decide."""
        self._is_writing = False
        self._not_before_ms = 0

    def trim_with(self, trimmer: LogTrimmer) -> None:
        """Set `trimmer`, which deletes the start of the log after each snapshot."""
        self._trimmer = trimmer

    def begun(self, end_offset: int, voters: VoterSet) -> None:
        """Record the end and the voters of the newest snapshot on disk, after a start or after a
        snapshot was fetched."""
        self._end_offset = end_offset
        self._voters = voters
        self._end_bytes = self._log.log.size_bytes

    def moved(self, image: MetadataImage) -> None:
        """Handle a changed image: take a snapshot of it if one is due.

        A snapshot is also due when the level of the log falls. The earlier part of the log can have
        records of the higher level, and an older version of the broker must not read them when it
        starts.
        """
        level = image.features.get(METADATA_VERSION, 0)
        if level < self._level:
            self._wanted_offset = image.end_offset
        self._level = level
        record_count = image.end_offset - self._end_offset
        size_bytes = self._log.log.size_bytes - self._end_bytes
        limits = self._limits
        is_due = (
            record_count >= limits.records
            or size_bytes >= limits.size_bytes
            or self._end_offset < self._wanted_offset
            # The launcher and the backup learn the voters from the newest snapshot.
            or self._voters_at(image.end_offset) != self._voters
        )
        if not is_due or self._is_writing or not record_count:
            return
        if self._clock.monotonic_ms() >= self._not_before_ms:
            self._take(image)

    def _voters_at(self, end_offset: int) -> VoterSet:
        return self._quorum.quorum.replica.voters.at(end_offset)

    def _take(self, image: MetadataImage) -> None:
        replica = self._quorum.quorum.replica
        end_offset = image.end_offset
        snapshot_id = SnapshotId(end_offset, replica.log.epochs.epoch_of(end_offset - 1))
        voters = self._voters_at(end_offset)
        now_ms = self._clock.now_ms()
        files, size_bytes = self._log.snapshots, self._log.log.size_bytes

        def write() -> Sequence[SnapshotId]:
            files.write(snapshot_id, content_of(snapshot_id, image, voters, now_ms))
            files.drop_old()
            return files.ids()

        def written(ids: Sequence[SnapshotId]) -> None:
            self._is_writing = False
            self._end_offset, self._end_bytes = end_offset, size_bytes
            self._voters = voters
            self._trim(snapshot_id, ids[0].end_offset)

        def refused() -> None:
            self._is_writing = False
            self._not_before_ms = self._clock.monotonic_ms() + RETRY_MS

        self._is_writing = True
        self._log.do(write, written, refused)

    def _trim(self, snapshot_id: SnapshotId, start_offset: int) -> None:
        log = self._log.log
        if snapshot_id.end_offset < log.log_start_offset:
            # A newer snapshot was fetched in the meantime, and the log starts at its end.
            return
        start_offset = max(start_offset, log.log_start_offset)
        log.advance_log_start(start_offset)
        self._quorum.handle(Snapshotted(snapshot_id, start_offset))
        logger.info(
            "wrote a snapshot of the metadata",
            extra=fields(end_offset=snapshot_id.end_offset, log_start_offset=start_offset),
        )
        if self._trimmer is not None:
            self._trimmer.trim(log, start_offset)


def content_of(
    snapshot_id: SnapshotId, image: MetadataImage, voters: VoterSet, now_ms: int
) -> bytes:
    """Return the content of a snapshot of the image. Call this in a thread, because it can take
    long."""
    return build_snapshot(snapshot_id, voters, _batches(image, now_ms), now_ms)


def _batches(image: MetadataImage, now_ms: int) -> Iterator[bytearray]:
    records = records_of(image)
    while some := list(islice(records, RECORDS_OF_BATCH)):
        yield build_batch([NewRecord(None, encode_record(one), now_ms) for one in some])
