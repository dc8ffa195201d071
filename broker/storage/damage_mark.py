"""A file that marks a log in which damage was found while the broker was running.

The mark is a small file in the partition's folder that contains the reason. A start reads only a
small part of a log, so without the mark it would not notice the damage. If the folder is renamed,
the mark stays in the folder. An operator who repairs the log by hand must remove the mark.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.storage.disk import Disk

DAMAGE_MARK = "found-damaged"


def damage_mark_path(folder: str) -> str:
    return f"{folder}/{DAMAGE_MARK}"


def read_damage_mark(disk: Disk, folder: str) -> str | None:
    """Return the reason in a folder's damage mark; None if the log is not marked.

    Raises DiskError.
    """
    path = damage_mark_path(folder)
    return disk.read_all(path).decode(errors="replace") if disk.exists(path) else None


@dataclass(frozen=True, slots=True)
class DamageMark:
    """The job that writes the damage mark of one log.

    The thread that renames folders performs the job, before it renames any folder.
    """

    disk: Disk
    folder: str
    reason: str

    def perform(self) -> None:
        """Write the damage mark durably. Raises DiskError."""
        self.disk.replace(damage_mark_path(self.folder), self.reason.encode(), is_durable=True)
