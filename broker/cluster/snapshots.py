"""Writes, reads and deletes the snapshot files of the metadata log.

This module is synchronous and uses the `Disk` passed in. The files are in the log's folder and have
Kafka's names. A snapshot is written to a file with a temporary name and then renamed. So a file
with its final name is complete and durable. Each start removes temporary files. If a snapshot is
damaged all the same, the next older one is used.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from broker.quorum.snapshot import SnapshotId, check_snapshot, file_name, read_file_name
from broker.quorum.voters import VoterSet
from broker.storage.disk import Disk
from broker.storage.dropped import unlink_if_there
from protocol.errors import WireError
from protocol.log import fields

logger = logging.getLogger(__name__)

KEPT_SNAPSHOTS = 2
"""The number of snapshots that are kept.

The log starts at the end of the oldest of them, so that it can be used if the newest is damaged.
"""

PART_SUFFIX = ".part.tmp"
"""The suffix of the file of a snapshot that is being fetched. Each start removes such files."""


class MetadataSnapshot(NamedTuple):
    """An undamaged snapshot."""

    snapshot_id: SnapshotId
    content: bytes
    voters: VoterSet


class SnapshotFiles:
    """The snapshots in the folder of one log."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def ids(self) -> list[SnapshotId]:
        """Return the ids of all snapshot files, oldest first."""
        found = (read_file_name(name) for name in self._disk.list_folder(self._folder))
        return sorted(one for one in found if one is not None)

    def newest(self) -> MetadataSnapshot | None:
        """Return the newest undamaged snapshot; None if there is none. Log an error for each
        damaged one."""
        for snapshot_id in reversed(self.ids()):
            content = self._disk.read_all(self._path(snapshot_id))
            try:
                return MetadataSnapshot(snapshot_id, content, check_snapshot(content))
            except WireError as error:
                logger.error(
                    "snapshot of the metadata is damaged; the next older one is used",
                    extra=fields(file=self._path(snapshot_id), reason=error),
                )
        return None

    def write(self, snapshot_id: SnapshotId, content: bytes) -> None:
        """Write a whole snapshot durably."""
        self._disk.replace(self._path(snapshot_id), content, is_durable=True)

    def make_durable(self, snapshot_id: SnapshotId) -> None:
        """Fsync an existing snapshot, because a killed process can have left it only in the page
        cache."""
        self._disk.open(self._path(snapshot_id)).datasync()
        self._disk.sync_folder(self._folder)

    def write_piece(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """Write a part of a snapshot that is being fetched, without an fsync. Position 0 empties
        the file first."""
        file = self._disk.open(self._part(snapshot_id), create=True)
        if position == 0:
            file.truncate(0)
        file.write([data], position)

    def keep_fetched(self, snapshot_id: SnapshotId) -> MetadataSnapshot:
        """Make a fetched snapshot durable, and give it its final name.

        Raises WireError if the snapshot is damaged, and deletes it. After a DiskError its file
        remains.
        """
        part = self._part(snapshot_id)
        file = self._disk.open(part)
        content = file.read(file.size_bytes(), 0)
        try:
            voters = check_snapshot(content)
        except WireError:
            self._disk.unlink(part)
            raise
        file.datasync()
        self._disk.rename(part, self._path(snapshot_id))
        self._disk.sync_folder(self._folder)
        return MetadataSnapshot(snapshot_id, content, voters)

    def read(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """Return a part of a snapshot, and the size of the whole snapshot in bytes.

        Raises DiskError if the snapshot does not exist.
        """
        file = self._disk.open(self._path(snapshot_id))
        return file.read(max_bytes, position), file.size_bytes()

    def drop_old(self) -> None:
        """Delete all snapshots except the newest `KEPT_SNAPSHOTS`."""
        for snapshot_id in self.ids()[:-KEPT_SNAPSHOTS]:
            unlink_if_there(self._disk, self._path(snapshot_id))

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._folder}/{file_name(snapshot_id)}"

    def _part(self, snapshot_id: SnapshotId) -> str:
        return f"{self._path(snapshot_id)}{PART_SUFFIX}"
