"""A reserve file whose space is released when the disk is full (decision 0013).

Retention and deletion can remove files only after a checkpoint, and a checkpoint needs space
itself. The reserve is shortened only by the size of one checkpoint file, because on a full disk any
other writer takes all free space at once. Only one thread at a time uses it.

Use the reserve only for a checkpoint that frees room. Any other checkpoint is refused on a full
disk like every write.
"""

from __future__ import annotations

from broker.storage.disk import Disk
from broker.storage.errors import DiskError

RESERVE_FILE = ".reserve"
RESERVE_BYTES = 256 * 1024

BLOCK_BYTES = 16 * 1024
"""The least number of bytes that is released at a time. No supported file system has larger
blocks."""


class Reserve:
    """The reserve of one data folder."""

    __slots__ = ("_disk", "_path", "_size_bytes")

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._path = f"{folder}/{RESERVE_FILE}"
        self._size_bytes = disk.size_bytes(self._path) if disk.exists(self._path) else 0

    def replace(self, path: str, data: bytes) -> None:
        """Replace a small file durably, and release space from the reserve if the disk is full."""
        while True:
            try:
                self._disk.replace(path, data, is_durable=True)
            except DiskError as error:
                if not error.is_full or not self._size_bytes:
                    raise
                self._give_up(len(data) + BLOCK_BYTES)
            else:
                return

    def _give_up(self, size_bytes: int) -> None:
        self._notice_removal()
        if self._size_bytes:
            left_bytes = max(self._size_bytes - size_bytes, 0)
            self._disk.open(self._path).truncate(left_bytes)
            self._size_bytes = left_bytes

    def refill(self) -> None:
        """Fill the reserve as far as there is space. It writes zeros, because a sparse file
        reserves none.
        """
        self._notice_removal()
        missing_bytes = RESERVE_BYTES - self._size_bytes
        if missing_bytes <= 0:
            return
        file = self._disk.open(self._path, create=True)
        try:
            file.write([bytes(missing_bytes)], self._size_bytes)
        except DiskError as error:
            if not error.is_full:
                raise
        self._size_bytes = file.size_bytes()

    def _notice_removal(self) -> None:
        """Notice that an operator has removed the file to free space, so that it is created
        again.
        """
        if not self._disk.exists(self._path):
            self._size_bytes = 0
