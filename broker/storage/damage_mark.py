"""The mark of a log that was found damaged while it served: a start looks at few of its bytes.

Floor: storage. A small file in the partition's folder, with the reason for its content. Without
it a restart would take the log for sound again. It goes with the folder when that is put aside;
whoever has mended the log by hand removes it.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.storage.disk import Disk

DAMAGE_MARK = "found-damaged"


def damage_mark_path(folder: str) -> str:
    return f"{folder}/{DAMAGE_MARK}"


def read_damage_mark(disk: Disk, folder: str) -> str | None:
    """Why the log in a folder was found damaged; None where it was not. Raises DiskError."""
    path = damage_mark_path(folder)
    return disk.read_all(path).decode(errors="replace") if disk.exists(path) else None


@dataclass(frozen=True, slots=True)
class DamageMark:
    """The mark of one log, to be made in the thread that renames folders, so before any of them."""

    disk: Disk
    folder: str
    reason: str

    def perform(self) -> None:
        """Make it, durably. Raises DiskError."""
        self.disk.replace(damage_mark_path(self.folder), self.reason.encode(), is_durable=True)
