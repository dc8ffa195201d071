"""The snapshots of the metadata log on the disk: written, fetched, read, and the old ones dropped.

Floor: cluster. Synchronous, over the `Disk` passed in. They lie in the log's folder under Kafka's
names. A file that has its name is whole and durable: it is written beside it under another one,
which the next start removes. One that is damaged all the same is passed over for an older one.
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
"""The newest, and the one before it: the log reaches back to that, should the newest be damaged."""

PART_SUFFIX = ".part.tmp"
"""Of a snapshot that is being fetched; every start removes it."""


class Snapshot(NamedTuple):
    """A snapshot that is whole."""

    snapshot_id: SnapshotId
    content: bytes
    voters: VoterSet


class SnapshotFiles:
    """The snapshots in one folder."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def ids(self) -> list[SnapshotId]:
        """All that are there, oldest first."""
        found = (read_file_name(name) for name in self._disk.list_folder(self._folder))
        return sorted(one for one in found if one is not None)

    def newest(self) -> Snapshot | None:
        """The newest one that is whole; those that are not are named in the log."""
        for snapshot_id in reversed(self.ids()):
            content = self._disk.read_all(self._path(snapshot_id))
            try:
                return Snapshot(snapshot_id, content, check_snapshot(content))
            except WireError as error:
                logger.error(
                    "snapshot of the metadata is damaged",
                    extra=fields(file=self._path(snapshot_id), reason=error),
                )
        return None

    def write(self, snapshot_id: SnapshotId, content: bytes) -> None:
        """Put a whole snapshot there, durably."""
        self._disk.replace(self._path(snapshot_id), content, is_durable=True)

    def make_durable(self, snapshot_id: SnapshotId) -> None:
        """Sync one that is there: a process that was killed may not have come to it."""
        self._disk.open(self._path(snapshot_id)).datasync()
        self._disk.sync_folder(self._folder)

    def write_piece(self, snapshot_id: SnapshotId, position: int, data: bytes) -> None:
        """A piece of one that is being fetched; at position 0 it begins anew. Not durable."""
        file = self._disk.open(self._part(snapshot_id), create=True)
        if position == 0:
            file.truncate(0)
        file.write([data], position)

    def keep_fetched(self, snapshot_id: SnapshotId) -> Snapshot:
        """Give a fetched snapshot its name, durably, if it is whole; else WireError, and it goes.

        DiskError leaves the pieces where they are.
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
        return Snapshot(snapshot_id, content, voters)

    def read(self, snapshot_id: SnapshotId, position: int, max_bytes: int) -> tuple[bytes, int]:
        """A piece, and the size of the whole; DiskError where there is no such snapshot."""
        file = self._disk.open(self._path(snapshot_id))
        return file.read(max_bytes, position), file.size_bytes()

    def drop_old(self) -> None:
        """Remove all but the newest ones that are kept, and pieces of fetched ones."""
        for snapshot_id in self.ids()[:-KEPT_SNAPSHOTS]:
            unlink_if_there(self._disk, self._path(snapshot_id))

    def _path(self, snapshot_id: SnapshotId) -> str:
        return f"{self._folder}/{file_name(snapshot_id)}"

    def _part(self, snapshot_id: SnapshotId) -> str:
        return f"{self._path(snapshot_id)}{PART_SUFFIX}"
