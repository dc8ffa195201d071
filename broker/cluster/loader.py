"""Turns committed batches into the metadata image: reads, replays, applies and publishes them.

Every node has one loader. Before the node serves requests, all committed batches are replayed at
once. Later each batch is applied separately, and the next batch waits until the previous batch is
in force. The image's end offset is an offset of the metadata log, which also contains the control
batches of the quorum.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from broker.cluster.metadata_log import MetadataLog
from broker.metadata.image import ImpossibleRecord, MetadataDelta, MetadataImage
from broker.metadata.records import (
    RemoveTopicRecord,
    UnknownMetadataRecord,
    decode_record,
)
from broker.metadata.snapshot import between
from protocol.log import fields
from protocol.types import Uuid
from protocol.wire.records import iterate_batches, iterate_records, read_header

logger = logging.getLogger(__name__)

SLICE_BYTES = 1 << 20
"""The number of bytes of the log that are read at a time."""


class Publisher(Protocol):
    """The interface to the object that applies commits to this node."""

    def apply(self, delta: MetadataDelta, image: MetadataImage, done: Callable[[], None]) -> None:
        """Give the partitions of a commit their new roles, logs and settings, then call `done`."""

    def published(self, delta: MetadataDelta) -> None:
        """Handle a new image. The image with the changes in `delta` is in force."""


class ImageListener(Protocol):
    """The interface to the object that is notified of each new image (`metadata`)."""

    def moved(self, image: MetadataImage) -> None:
        """Handle a changed image."""


class Loader:
    """The image of all committed metadata. It notifies a listener of each change."""

    def __init__(self, log: MetadataLog) -> None:
        self.image = MetadataImage()
        self.removed_ids: set[Uuid] = set()
        """The topics that the log has removed. Their folders can be deleted."""
        self._listener: ImageListener | None = None
        self._log = log
        self._publisher: Publisher | None = None
        self._committed_offset = 0
        self._batches: deque[bytes] = deque()
        self._installed: MetadataImage | None = None
        """The image of a fetched snapshot, which will replace the current image."""
        self._is_applying = False
        self._is_replaying = False

    @property
    def is_idle(self) -> bool:
        """True if all committed batches are in force."""
        return not self._is_applying and self.image.end_offset >= self._committed_offset

    def report_to(self, listener: ImageListener) -> None:
        """Notify this object of each new image."""
        self._listener = listener

    def serve(self, publisher: Publisher) -> None:
        """Set the publisher. Each later commit is applied separately."""
        self._publisher = publisher

    def committed(self, offset: int) -> None:
        """Replay the batches below the offset that are not yet replayed.

        Raises UnknownMetadataRecord if a later version of the broker wrote a record.
        """
        self._committed_offset = max(self._committed_offset, offset)
        if self._publisher is None:
            self._replay_all()
        else:
            self._go_on()

    def installed(self, content: bytes, end_offset: int) -> None:
        """Replace the image by the image of a fetched snapshot, because the log now starts at the
        end of the snapshot.

        If a commit is being applied, the new image is applied after that commit, as one change.
        """
        delta = MetadataDelta(MetadataImage())
        for _, batch in iterate_batches(content):
            self._replay(delta, bytes(batch))
        image = delta.image(end_offset)
        self._committed_offset = end_offset
        self._batches.clear()
        if self._publisher is None:
            self._move_to(image)
        else:
            self._installed = image
            self._go_on()

    def _replay_all(self) -> None:
        end_offset = self.image.end_offset
        delta = MetadataDelta(self.image)
        while end_offset < self._committed_offset:
            found = self._log.batches(end_offset, self._committed_offset, SLICE_BYTES)
            assert found, "the metadata log ends before what is committed"
            for batch in found:
                self._replay(delta, batch)
                end_offset = read_header(batch).last_offset + 1
        if end_offset > self.image.end_offset:
            self._move_to(delta.image(end_offset))

    def _go_on(self) -> None:
        """Apply all waiting commits in order.

        This is a loop and no recursion. Many commits change no partition and are applied within the
        call, and thousands of them can have waited for one fsync.
        """
        if self._is_replaying:
            return
        self._is_replaying = True
        try:
            while not self._is_applying:
                if (image := self._installed) is not None:
                    self._installed = None
                    self._apply(between(self.image, image), image)
                elif (batch := self._next()) is not None:
                    self._commit(batch)
                else:
                    break
        finally:
            self._is_replaying = False

    def _next(self) -> bytes | None:
        end_offset = self.image.end_offset
        if (
            not self._batches
            and end_offset < self._committed_offset
            and not self._log.is_truncating
        ):
            found = self._log.batches(end_offset, self._committed_offset, SLICE_BYTES)
            if not found:
                self._log.again(self._go_on)
            self._batches.extend(found)
        return self._batches.popleft() if self._batches else None

    def _commit(self, batch: bytes) -> None:
        assert self._publisher is not None
        header = read_header(batch)
        end_offset = header.last_offset + 1
        if header.is_control:
            self._move_to(replace(self.image, end_offset=end_offset))
            return
        delta = MetadataDelta(self.image)
        self._replay(delta, batch)
        self._apply(delta, delta.image(end_offset))

    def _apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert self._publisher is not None
        self._is_applying = True
        self._publisher.apply(delta, image, partial(self._applied, delta, image))

    def _applied(self, delta: MetadataDelta, image: MetadataImage) -> None:
        assert self._publisher is not None
        self._is_applying = False
        self.image = image
        self._publisher.published(delta)
        self._report(image)
        self._go_on()

    def _move_to(self, image: MetadataImage) -> None:
        self.image = image
        self._report(image)

    def _report(self, image: MetadataImage) -> None:
        if self._listener is not None:
            self._listener.moved(image)

    def _replay(self, delta: MetadataDelta, batch: bytes) -> None:
        """Replay the records of a batch.

        A record that can be decoded but does not fit the image is skipped with a warning, because
        it would be worse if the broker refused to start.
        """
        if read_header(batch).is_control:
            return
        for one in iterate_records(batch):
            try:
                record = decode_record(one.value)
                delta.replay(record)
            except UnknownMetadataRecord as error:
                raise UnknownMetadataRecord(
                    f"the metadata log {self._log.log.folder} has a record at offset "
                    f"{one.offset} that this version cannot read: {error}"
                ) from error
            except ImpossibleRecord as error:
                logger.warning(
                    "metadata record does not fit the metadata and is skipped",
                    extra=fields(
                        offset=one.offset, record=type(record).__name__, reason=str(error)
                    ),
                )
            if isinstance(record, RemoveTopicRecord):
                self.removed_ids.add(record.topic_id)
