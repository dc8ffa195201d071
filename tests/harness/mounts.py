"""File systems that a test can fill to the last byte, or whose power it can cut.

`Ext4Image` is ext4 in a file behind a loop device, and `Tmpfs` is in memory. Both need root. If a
mount is not allowed, the test is skipped with a reason. Leaving the `with` block unmounts the file
system and frees the loop device, also after a power cut.
"""

import fcntl
import os
import shutil
import struct
import subprocess
from pathlib import Path
from types import TracebackType

import pytest

from tests.harness.wait import wait_until

MIB = 1 << 20

FS_IOC_SHUTDOWN = 0x8004587D
NO_LOG_FLUSH = 2
"""Do not write the journal either, as after a power cut."""

CHUNK_BYTES = 1 << 16
UNMOUNT_S = 20


class _Mount:
    """A mounted file system. `folder` is its mount point."""

    def __init__(self, home: Path) -> None:
        if os.geteuid() != 0:
            pytest.skip("mounting a file system needs root")
        self.home = home
        self.folder = home / "mounted"
        self.folder.mkdir(parents=True)

    def _mount(self, *arguments: str) -> None:
        done = _run("mount", *arguments, str(self.folder))
        if done.returncode:
            pytest.skip(f"this machine lets us mount no such file system: {done.stderr.strip()}")

    def unmount(self) -> None:
        """Unmount the file system. Retry, because another program that searches all folders of the
        machine can have a file open for a moment."""
        if not os.path.ismount(self.folder):
            return
        try:
            wait_until(self._unmounted, UNMOUNT_S, f"no process uses {self.folder} any more")
        except AssertionError:
            _run("umount", "-l", str(self.folder))
            raise

    def _unmounted(self) -> bool:
        done = _run("umount", str(self.folder))
        if done.returncode:
            raise OSError(done.stderr.strip())
        return True

    def fill(self, spare_bytes: int = 0) -> None:
        """Fill the file system until only `spare_bytes` are free."""
        with (self.folder / "filler").open("ab", buffering=0) as file:
            size = file.tell()
            try:
                while True:
                    size += file.write(bytes(CHUNK_BYTES))
            except OSError:
                os.ftruncate(file.fileno(), max(size - spare_bytes, 0))

    def free(self) -> None:
        """Free the space again."""
        (self.folder / "filler").unlink(missing_ok=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.unmount()


class Tmpfs(_Mount):
    """A file system in memory."""

    def __init__(self, home: Path, size_mib: int) -> None:
        super().__init__(home)
        self._mount("-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs")

    def __enter__(self) -> "Tmpfs":
        return self


class Ext4Image(_Mount):
    """ext4 in a sparse file. `cut_power` loses unsynced data."""

    def __init__(self, home: Path, size_mib: int) -> None:
        super().__init__(home)
        for tool in ("mkfs.ext4", "losetup"):
            if shutil.which(tool) is None:
                pytest.skip(f"an image of a file system needs {tool}")
        self.image = home / "image"
        with self.image.open("wb") as file:
            file.truncate(size_mib * MIB)
        # Write all tables at once. Otherwise a kernel thread writes them while tests run.
        options = ["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
        made = _run("mkfs.ext4", *options, str(self.image))
        assert made.returncode == 0, made.stderr
        self.mount()

    def mount(self) -> None:
        self._mount("-t", "ext4", "-o", "loop", str(self.image))

    def cut_power(self) -> None:
        """Drop all writes to the device from this call on, so data that was not synced is lost."""
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(folder, FS_IOC_SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(folder)

    def return_power(self) -> None:
        """Mount the file system again, so that ext4 replays its journal. No process may have a file
        open."""
        self.unmount()
        self.mount()

    def check(self) -> str:
        """Run fsck on the unmounted image and mount it again. Return fsck's output, or "" if the
        file system is sound."""
        self.unmount()
        found = _run("fsck.ext4", "-f", "-n", str(self.image))
        self.mount()
        return "" if found.returncode == 0 else found.stdout + found.stderr

    def __enter__(self) -> "Ext4Image":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        held = _run("losetup", "-j", str(self.image)).stdout
        assert not held.strip(), f"a loop device is left: {held}"


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)
