"""What a data folder says of how its last process ended, for the next one to believe.

Floor: storage. Two files: the marker of a clean stop, durable, and gone before anything else is
done; and the mark of a process that runs, which names the kernel's run and need not be durable.
"""

from __future__ import annotations

from contextlib import suppress

from broker.storage import checkpoint
from broker.storage.disk import Disk
from broker.storage.errors import DiskError
from protocol.types import NO_BROKER_EPOCH


class StopMarks:
    """The marks of one data folder."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self.previous_broker_epoch = NO_BROKER_EPOCH
        """Under which the process was registered of whose writes nothing is lost: its stop was
        clean, or the kernel that has them in its page cache still runs."""
        self._disk = disk
        self._folder = folder

    def take(self) -> bool:
        """Read what the last process has left; whether its stop was clean."""
        if self._take_clean_marker():
            return True
        self._look_for_the_same_boot()
        return False

    def _take_clean_marker(self) -> bool:
        """Whether the last stop was clean; the marker is removed for good before anything else."""
        path = f"{self._folder}/{checkpoint.CLEAN_SHUTDOWN}"
        if not self._disk.exists(path):
            return False
        # One that does not parse, of an older version, vouches for the logs, and for no epoch.
        with suppress(ValueError):
            self.previous_broker_epoch = checkpoint.decode_clean_stop(self._disk.read_all(path))
        self._disk.unlink(path)
        self._disk.sync_folder(self._folder)
        return True

    def _look_for_the_same_boot(self) -> None:
        """A process that was killed has lost nothing that the kernel took, if that still runs."""
        path = f"{self._folder}/{checkpoint.RUNNING}"
        if not self._disk.exists(path):
            return
        with suppress(ValueError):
            broker_epoch, boot_id = checkpoint.decode_running(self._disk.read_all(path))
            if boot_id and boot_id == self._disk.boot_id():
                self.previous_broker_epoch = broker_epoch

    def stopped_clean(self, broker_epoch: int) -> None:
        """All is on the disk that was written under `broker_epoch`, and nothing follows."""
        path = f"{self._folder}/{checkpoint.CLEAN_SHUTDOWN}"
        self._disk.replace(path, checkpoint.encode_clean_stop(broker_epoch), is_durable=True)

    def running(self, broker_epoch: int) -> None:
        """Say, before anybody counts on it, who writes here under this run of the kernel.

        Not synced: what it vouches for is lost whenever it is.
        """
        text = checkpoint.encode_running(broker_epoch, self._disk.boot_id())
        self._disk.replace(f"{self._folder}/{checkpoint.RUNNING}", text, is_durable=False)

    def distrust_cache(self) -> None:
        """A sync has failed: the kernel may drop what it took, and say that it is on the disk."""
        with suppress(DiskError):
            self._disk.unlink(f"{self._folder}/{checkpoint.RUNNING}")
