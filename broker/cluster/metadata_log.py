"""The metadata log on disk: batches, vote file and snapshots, with their own queue of disk jobs.

The driver adds the disk work of the quorum's core to `duties`, in order. Threads do the work, so
the fsyncs of this log do not wait for the fsyncs of other logs. If a full disk rejects an append,
the caller undoes the append. All other work is retried until the disk has room. This is safe,
because messages that depend on the work are sent only after it is done. A failed fsync is final:
`jobs` stops the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from broker.cluster.duties import Duties, InlineJobs
from broker.cluster.snapshots import MetadataSnapshot, SnapshotFiles
from broker.metadata.image import METADATA_PARTITION
from broker.quorum import vote_file
from broker.quorum.events import FetchAnswer, FetchSnapshotAnswer
from broker.quorum.ready import BatchesToRead, PieceToRead, SnapshotPiece
from broker.quorum.snapshot import SnapshotId
from broker.quorum.vote_file import ElectionState
from broker.replicas.refusals import WriteFailed
from broker.storage.disk import Disk
from broker.storage.errors import CorruptionError, DiskError
from broker.storage.flush import FlushTarget
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.recovery import LoadedLog
from broker.storage.truncation import Truncation
from broker.storage.walk import check_region
from broker.world import Clock, Jobs, World
from protocol.errors import ErrorCode, WireError
from protocol.log import fields
from protocol.wire.records import iterate_batches

T = TypeVar("T")

logger = logging.getLogger(__name__)

RETRY_MS = 1_000
"""The wait in milliseconds before rejected work, such as a vote or a truncation, is retried."""

Done = Callable[[], None]


@dataclass(frozen=True, slots=True)
class DiskWorkers:
    """The threads for disk work. `own` does fsyncs, votes and snapshots. `files` writes the node's
    checkpoints, which a truncation needs."""

    own: Jobs
    files: Jobs


class DiskListener(Protocol):
    """The interface to the object that is notified of the metadata log's disk work
    (`quorum_driver`)."""

    def synced(self, end_offset: int) -> None:
        """Handle a report that the log is durable up to `end_offset`."""

    def duty_done(self) -> None:
        """Handle a report that one more duty is done."""


class MetadataLog:
    """The metadata log of one node. It notifies a listener of finished disk work."""

    def __init__(
        self,
        disk: Disk,
        logs: LogManager,
        log: Log,
        world: World,
        write_failed: WriteFailed,
        on_timed: Callable[[int], None] = lambda took_ns: None,
    ) -> None:
        """`on_timed` gets the duration of each fsync in nanoseconds."""
        self.log = log
        self.snapshots = SnapshotFiles(disk, log.folder)
        self._listener: DiskListener | None = None
        self.duties = Duties(self._duty_done)
        self.vote_number = 0
        """The number of the last duty that saves a vote."""
        self.is_truncating = False
        """True while the log is being truncated or reset. It cannot be read in the meantime."""
        self._disk = disk
        self._logs = logs
        self._clock: Clock = world.clock
        self._turn_ns = world.turn_ns
        self._later = world.later
        self._die = world.die
        self._write_failed = write_failed
        self._on_timed = on_timed
        # Before the node serves requests, the caller itself does the disk work.
        self._workers = DiskWorkers(InlineJobs(), InlineJobs())
        self._is_at_work = False
        self._is_sync_given = False

    def report_to(self, listener: DiskListener) -> None:
        """Notify this object of finished disk work."""
        self._listener = listener

    def _duty_done(self) -> None:
        if self._listener is not None:
            self._listener.duty_done()

    def work_in(self, workers: DiskWorkers) -> None:
        """Do all later disk work in threads."""
        self._workers = workers
        self._is_at_work = True

    # Reading.

    def batches(self, start_offset: int, end_offset: int, max_bytes: int) -> list[bytes]:
        """Return whole batches between two offsets: at least one if there is one.

        The total size is at most `max_bytes`, unless the first batch alone is larger.
        CorruptionError and DiskError end the broker's process, also during a start, because damaged
        batches must not be used or sent. If no file descriptor is free, the result is empty, and
        the caller must retry by means of `again`.
        """
        try:
            region = self.log.read(start_offset, max_bytes, end_offset).region
            if region is None:
                return []
            check_region(region)
            return [bytes(batch) for _, batch in iterate_batches(region.read())]
        except (CorruptionError, DiskError) as error:
            if not self._is_at_work:
                raise
            if isinstance(error, DiskError) and error.is_short:
                return []
            self._die(f"the metadata log cannot be read: {error}")

    def again(self, call: Done) -> None:
        """Call `call` after `RETRY_MS`. A file descriptor can be free by then."""
        self._later(RETRY_MS, call)

    def filled(self, answer: FetchAnswer, read: BatchesToRead) -> FetchAnswer:
        """Return the answer with the batches to send."""
        found = self.batches(read.start_offset, read.end_offset, read.max_bytes)
        return replace(answer, batches=found)

    def filled_piece(self, answer: FetchSnapshotAnswer, read: PieceToRead) -> FetchSnapshotAnswer:
        """Return the answer with a part of the snapshot, or with an error if the part does not
        exist."""
        try:
            data, size_bytes = self.snapshots.read(read.snapshot_id, read.position, read.max_bytes)
        except DiskError:
            return replace(answer, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        if not 0 <= read.position < size_bytes:
            return replace(answer, error=ErrorCode.POSITION_OUT_OF_RANGE)
        return replace(answer, data=data, size_bytes=size_bytes)

    # Writing.

    def append(self, batches: Sequence[bytes]) -> None:
        """Append batches that already have offsets and epochs. They can be read at once. An fsync
        follows.

        Raises DiskError, and WireError for an invalid batch. In both cases nothing is written.
        """
        assert not self.is_truncating, "append to a log that is being truncated"
        now_ms = self._clock.now_ms()
        self.log.follower_append(memoryview(b"".join(batches)), now_ms)
        try:
            self.log.write_staged(now_ms)
        except DiskError as error:
            self._write_failed(METADATA_PARTITION, error, now_ms)
            raise
        if not self._is_sync_given:
            self._is_sync_given = True
            self.duties.give(self._sync)

    def _sync(self, finish: Done) -> None:
        log = self.log
        # Batches that are appended from now on need another fsync.
        self._is_sync_given = False

        def attempt() -> None:
            try:
                target = log.flush_target()
            except DiskError as error:
                self._wait(error, attempt)
                return
            if target is None:
                finish()
            else:
                self._perform(target, finish, attempt)

        attempt()

    def _perform(self, target: FlushTarget, finish: Done, attempt: Done) -> None:
        """Run an fsync. If no file descriptor is free, call `attempt` later."""

        def job() -> int:
            start_ns = self._turn_ns()
            target.perform()
            return self._turn_ns() - start_ns

        def done(took_ns: int) -> None:
            self._on_timed(took_ns)
            end_offset = self.log.flushed(target)
            if self._listener is not None:
                self._listener.synced(end_offset)
            finish()

        def failed(error: Exception) -> None:
            self.log.flush_refused(target)
            self._wait(error, attempt)

        self._workers.own.run(job, done, failed)

    def save_vote(self, election: ElectionState, done: Done) -> None:
        """Write the vote file durably, then call `done`."""
        path, content = vote_path(self.log.folder), vote_file.encode(election)

        def job() -> None:
            self._disk.replace(path, content, is_durable=True)

        def begin(finish: Done) -> None:
            def saved(_: None) -> None:
                done()
                finish()

            self._insist(lambda: self._workers.own, job, saved)

        self.vote_number = self.duties.given_count + 1
        self.duties.give(begin)

    def truncate_to(self, offset: int, done: Done) -> None:
        """Remove all records at the offset and above durably, then call `done`."""

        def begin(finish: Done) -> None:
            def truncated() -> None:
                done()
                finish()

            def attempt() -> None:
                now_ms = self._clock.now_ms()
                try:
                    job = self._logs.begin_truncation(self.log, offset, now_ms)
                except DiskError as error:
                    self._wait(error, attempt)
                else:
                    self._truncate(job, truncated)

            attempt()

        self.is_truncating = True
        self.duties.give(begin)

    def reset_at_start(self, offset: int) -> None:
        """Remove the whole log during a start, and continue it at the offset."""
        job = self._logs.begin_reset(self.log, offset, self._clock.now_ms())
        self.log.truncated(job.perform())
        self.log.advance_high_watermark(offset)

    def _truncate(self, job: Truncation | None, done: Done) -> None:
        def taken_over(loaded: LoadedLog) -> None:
            self.log.truncated(loaded)
            self.is_truncating = False
            done()

        if job is None:
            self.is_truncating = False
            done()
        else:
            self._insist(lambda: self._workers.files, job.perform, taken_over)

    def do(self, job: Callable[[], T], done: Callable[[T], None], refused: Done) -> None:
        """Run a job after all work that is already queued. Call `refused` if the disk rejects
        it."""

        def begin(finish: Done) -> None:
            def did(result: T) -> None:
                done(result)
                finish()

            def failed(error: Exception) -> None:
                self._refused(error)
                refused()
                finish()

            self._workers.own.run(job, did, failed)

        self.duties.give(begin)

    # Fetched snapshots.

    def write_piece(self, piece: SnapshotPiece) -> None:
        """Write a part of a snapshot that is being fetched. The part need not be durable."""

        def job() -> None:
            self.snapshots.write_piece(piece.snapshot_id, piece.position, piece.data)

        # If the disk rejects a part, `store` later finds that the snapshot is incomplete.
        self.do(job, lambda _: None, lambda: None)

    def store(
        self, snapshot_id: SnapshotId, stored: Callable[[MetadataSnapshot], None], spoiled: Done
    ) -> None:
        """Make a fetched snapshot durable if it is complete, and continue the log at its end.

        Calls `spoiled` if the snapshot is incomplete or the disk rejects the write. The caller must
        then fetch the snapshot again.
        """

        def job() -> MetadataSnapshot | None:
            try:
                return self.snapshots.keep_fetched(snapshot_id)
            except WireError as error:
                logger.warning(
                    "fetched snapshot of the metadata is incomplete and will be fetched again",
                    extra=fields(reason=error),
                )
                return None

        def begin(finish: Done) -> None:
            def kept(snapshot: MetadataSnapshot | None) -> None:
                if snapshot is None:
                    give_up()
                    return
                self.is_truncating = True

                def reset_done() -> None:
                    # The log is empty, so its high watermark can move to the end of the snapshot.
                    self.log.advance_high_watermark(snapshot_id.end_offset)
                    stored(snapshot)
                    finish()

                now_ms = self._clock.now_ms()
                reset = self._logs.begin_reset(self.log, snapshot_id.end_offset, now_ms)
                self._truncate(reset, reset_done)

            def give_up() -> None:
                spoiled()
                finish()

            def failed(error: Exception) -> None:
                self._refused(error)
                give_up()

            self._workers.own.run(job, kept, failed)

        self.duties.give(begin)

    # Disk errors.

    def _insist(
        self, workers: Callable[[], Jobs], job: Callable[[], T], done: Callable[[T], None]
    ) -> None:
        """Repeat a job until the disk accepts it. Messages that depend on the job wait in the
        meantime."""

        def attempt() -> None:
            workers().run(job, done, failed)

        def failed(error: Exception) -> None:
            self._refused(error)
            self.again(attempt)

        attempt()

    def _wait(self, error: Exception, attempt: Done) -> None:
        """Call `attempt` later if no file descriptor was free. Raise any other error."""
        if not (self._is_at_work and isinstance(error, DiskError) and error.is_short):
            raise error
        self._refused(error)
        self.again(attempt)

    def _refused(self, error: Exception) -> None:
        if not isinstance(error, DiskError):
            raise error
        self._write_failed(METADATA_PARTITION, error, self._clock.now_ms())


def vote_path(folder: str) -> str:
    """Return the path of the vote file in the folder of a replica's log."""
    return f"{folder}/{vote_file.FILE_NAME}"
