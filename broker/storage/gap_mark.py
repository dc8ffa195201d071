"""A file that marks a log whose offsets can have gaps anywhere: a follower of a cleaned log.

A leader's log gets gaps from cleaning, which happens below its recovery point. A follower receives
these gaps also in batches that are not yet fsynced. Without the mark, recovery would take the first
gap above the recovery point for a torn tail and truncate the log at the gap. So the mark, a small
file in the partition's folder, is durable before the first gap is appended. The mark stays until
the log is emptied.
"""

from __future__ import annotations

from broker.storage.disk import Disk

GAP_MARK = "offset-gaps"
_CONTENT = b"version: 0\n"


def gap_mark_path(folder: str) -> str:
    return f"{folder}/{GAP_MARK}"


class GapMark:
    """The job that writes the gap mark of one log.

    Perform it in a thread, then call `Log.gaps_are_marked` in the loop.
    """

    __slots__ = ("_disk", "_folder")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def perform(self) -> None:
        self._disk.replace(gap_mark_path(self._folder), _CONTENT, is_durable=True)
