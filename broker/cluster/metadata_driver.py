"""The metadata log of a quorum of one: decided, written, synced, replayed, and only then answered.

Floor: cluster. Orders are decided one after the other against the image that includes everything
decided before (`_decided`), replayed, written at once and synced together: what cannot be replayed
never reaches the disk. `image` is what has been committed; it moves when the partitions of a commit
are in service, and then the replies leave.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from broker.controller.controller import Controller, ControllerInput
from broker.metadata.image import (
    METADATA_TOPIC,
    ImpossibleRecord,
    MetadataDelta,
    MetadataImage,
)
from broker.metadata.records import (
    MetadataRecord,
    RemoveTopicRecord,
    decode_record,
    encode_record,
)
from broker.replicas.flusher import Flusher
from broker.replicas.refusals import WriteFailed
from broker.storage.errors import DiskError
from broker.storage.log import Log
from broker.world import Clock
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.types import TopicPartition, Uuid
from protocol.wire.records import (
    NewRecord,
    build_batch,
    iterate_batches,
    iterate_records,
    read_header,
)

logger = logging.getLogger(__name__)

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
METADATA_TOPIC_ID = Uuid(int=1)

METADATA_EPOCH = 1
"""The quorum's epoch: a voter that is alone never has to give way."""

READ_BYTES = 1 << 20

Reply = Callable[[Any], None]
Refused = Callable[[ApiError], None]


class MetadataDriver:
    """Keeps the metadata log and the image it replays to."""

    def __init__(
        self,
        controller: Controller,
        clock: Clock,
        log: Log,
        flusher: Flusher,
        apply: Callable[[MetadataDelta, MetadataImage, Callable[[], None]], None],
        on_image: Callable[[MetadataDelta], None],
        write_failed: WriteFailed,
        pending_max: int,
        pending_max_per_host: int,
    ) -> None:
        """`apply` brings the partitions of a commit into service and then calls its last argument;
        `on_image` comes when the image has moved, before the reply; `write_failed` hears what the
        disk refuses, and when."""
        self.image = MetadataImage()
        self.removed_ids: set[Uuid] = set()
        """Topics the log has removed: their folders may go."""
        self._controller = controller
        self._clock = clock
        self._log = log
        self._flusher = flusher
        self._apply = apply
        self._on_image = on_image
        self._write_failed = write_failed
        self._pending_max = pending_max
        self._pending_max_per_host = pending_max_per_host
        self._decided = self.image
        self._pending: deque[tuple[MetadataDelta, MetadataImage, Callable[[], None]]] = deque()
        self._pending_of: Counter[str] = Counter()
        """Host -> how many of the pending orders it has given."""
        self._is_applying = False
        self._is_committing = False

    def load(self) -> None:
        """Replay the log from its start; raises UnknownMetadataRecord for one we cannot read.

        One that can be read and does not fit is left out with a warning: earlier versions wrote
        them, and the image without it is the one they went on with.
        """
        delta = MetadataDelta(self.image)
        offset = self._log.log_start_offset
        end_offset = self._log.log_end_offset
        while offset < end_offset:
            found = self._log.read(offset, READ_BYTES, end_offset).region
            assert found is not None, "the metadata log ends before its end offset"
            for header, batch in iterate_batches(found.read()):
                offset = header.last_offset + 1
                if header.is_control:
                    continue
                for index, one in enumerate(iterate_records(batch)):
                    record = decode_record(one.value)
                    try:
                        delta.replay(record)
                    except ImpossibleRecord as error:
                        logger.warning(
                            "metadata record skipped",
                            extra=fields(
                                offset=header.base_offset + index,
                                record=type(record).__name__,
                                reason=str(error),
                            ),
                        )
                    if isinstance(record, RemoveTopicRecord):
                        self.removed_ids.add(record.topic_id)
        self.image = self._decided = delta.image(end_offset)
        self._log.advance_high_watermark(end_offset)

    def submit(
        self, order: ControllerInput, reply: Reply, refused: Refused, host: str | None = None
    ) -> None:
        """Decide, and call `reply` once it is committed and in force, or `refused` if it cannot be
        written, or too many wait already. Either may be called before this returns. `host` has
        given the order; None for the broker itself."""
        # A connection has one order under way, but what is decided stays in line when its
        # connection ends, and folders are made one after the other.
        is_full = len(self._pending) >= self._pending_max
        if host is not None and self._pending_of[host] >= self._pending_max_per_host:
            is_full = True
        if is_full:
            refused(ApiError(ErrorCode.REQUEST_TIMED_OUT, "too many orders wait; try again"))
            return
        now_ms = self._clock.now_ms()
        outcome = self._controller.handle(order, self._decided, now_ms)
        delta = MetadataDelta(self._decided)
        if outcome.records:
            end_offset = self._log.log_end_offset + len(outcome.records)
            decided = delta.replay_all(outcome.records).image(end_offset)
            try:
                self._append(outcome.records, now_ms)
            except DiskError as error:
                self._write_failed(METADATA_PARTITION, error, now_ms)
                refused(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
                return
            self._decided = decided
            self._flusher.mark(self._log)
        elif not self._pending and not self._is_applying:
            reply(outcome.reply)
            return
        # Also an answer without records may rest on what is not committed, or not in force, yet.
        if host is not None:
            self._pending_of[host] += 1

        def done() -> None:
            if host is not None:
                self._leave(host)
            reply(outcome.reply)

        self._pending.append((delta, self._decided, done))

    def _leave(self, host: str) -> None:
        self._pending_of[host] -= 1
        if not self._pending_of[host]:
            del self._pending_of[host]

    def submit_now(self, order: ControllerInput) -> Any:
        """Before the loop runs: decide, write, sync and replay in one go; returns the reply."""
        outcome = self._controller.handle(order, self.image, self._clock.now_ms())
        end_offset = self._log.log_end_offset + len(outcome.records)
        decided = MetadataDelta(self.image).replay_all(outcome.records).image(end_offset)
        self._append(outcome.records, self._clock.now_ms())
        target = self._log.flush_target()
        if target is not None:
            target.perform()
            self._log.flushed(target)
        self._log.advance_high_watermark(self._log.recovery_point)
        self.image = self._decided = decided
        return outcome.reply

    def _append(self, records: Sequence[MetadataRecord], now_ms: int) -> None:
        batch = build_batch([NewRecord(None, encode_record(record), now_ms) for record in records])
        view = memoryview(batch)
        self._log.append_own(view, read_header(view), METADATA_EPOCH, now_ms)
        self._log.write_staged(now_ms)

    def flushed(self) -> None:
        """The log's recovery point has moved: commit what lies below it."""
        self._log.advance_high_watermark(self._log.recovery_point)
        self._commit_next()

    def _commit_next(self) -> None:
        """Bring into force, one after the other, what is on the disk.

        A loop, for many commits touch no partition and are applied on the spot, and a client may
        have thousands of them waiting for one sync.
        """
        if self._is_committing:
            return
        self._is_committing = True
        try:
            while self._pending and not self._is_applying:
                delta, image, reply = self._pending[0]
                if image.end_offset > self._log.high_watermark:
                    break
                self._pending.popleft()
                self._is_applying = True
                self._apply(delta, image, partial(self._applied, delta, image, reply))
        finally:
            self._is_committing = False

    def _applied(
        self, delta: MetadataDelta, image: MetadataImage, reply: Callable[[], None]
    ) -> None:
        self._is_applying = False
        self.image = image
        self._on_image(delta)
        reply()
        self._commit_next()
