"""Files in a data folder that record how the last process ended.

There are two files. The marker of a clean stop is durable, and the next process removes it before
it does anything else. The mark of a running process contains the kernel's boot id and need not be
durable.
"""

from __future__ import annotations

from contextlib import suppress

from broker.storage import checkpoint
from broker.storage.disk import Disk
from broker.storage.errors import DiskError
from protocol.types import NO_BROKER_EPOCH


class StopMarks:
    """Reads, writes and removes the two marks in one data folder."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self.previous_broker_epoch = NO_BROKER_EPOCH
        """The broker epoch of the last process, if none of its writes is lost.

        No write is lost after a clean stop, or while the same kernel, which has the writes in its
        page cache, is still running.
        """
        self.clean_broker_epoch = NO_BROKER_EPOCH
        """The broker epoch of the last process, if its stop was clean."""
        self._disk = disk
        self._folder = folder

    def take(self) -> bool:
        """Read the marks of the last process. Return True if its stop was clean."""
        if self._take_clean_marker():
            return True
        self._look_for_the_same_boot()
        return False

    def _take_clean_marker(self) -> bool:
        """Return True if the last stop was clean. Remove the marker durably before the return."""
        path = f"{self._folder}/{checkpoint.CLEAN_SHUTDOWN}"
        if not self._disk.exists(path):
            return False
        # A marker that does not parse can be Kafka's, which was empty before KIP-966. The stop was
        # clean, but the epoch is unknown.
        with suppress(ValueError):
            self.clean_broker_epoch = checkpoint.decode_clean_stop(self._disk.read_all(path))
            self.previous_broker_epoch = self.clean_broker_epoch
        self._disk.unlink(path)
        self._disk.sync_folder(self._folder)
        return True

    def _look_for_the_same_boot(self) -> None:
        """Keep the broker epoch of a killed process if the kernel was not restarted, because its
        page cache still has all writes.
        """
        path = f"{self._folder}/{checkpoint.RUNNING}"
        if not self._disk.exists(path):
            return
        with suppress(ValueError):
            broker_epoch, boot_id = checkpoint.decode_running(self._disk.read_all(path))
            if boot_id and boot_id == self._disk.boot_id():
                self.previous_broker_epoch = broker_epoch

    def stopped_clean(self, broker_epoch: int) -> None:
        """Mark a clean stop: everything written under `broker_epoch` is on the disk."""
        path = f"{self._folder}/{checkpoint.CLEAN_SHUTDOWN}"
        self._disk.replace(path, checkpoint.encode_clean_stop(broker_epoch), is_durable=True)

    def running(self, broker_epoch: int) -> None:
        """Write the mark of a running process, before any code depends on the mark.

        The file is not fsynced. If a crash loses the mark, it can have lost the writes of this
        process too, so the next process must not trust these writes in any case.
        """
        text = checkpoint.encode_running(broker_epoch, self._disk.boot_id())
        self._disk.replace(f"{self._folder}/{checkpoint.RUNNING}", text, is_durable=False)

    def distrust_cache(self) -> None:
        """Remove the mark of a running process after a failed fsync, because the kernel can have
        dropped cached writes."""
        with suppress(DiskError):
            self._disk.unlink(f"{self._folder}/{checkpoint.RUNNING}")
