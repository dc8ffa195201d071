"""Reads data that is not in the page cache in a thread, before the loop sends it.

A one-byte read with RWF_NOWAIT shows whether a page is in the cache. If it is not, the thread reads
the region once, so that the send then finds it in the cache. If a file system does not support
RWF_NOWAIT, its data is treated as cached.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable

from broker.real.workers import Worker
from broker.storage.disk import FileRegion

READ_BYTES = 256 << 10
PROBE_LAST_BYTES = 1 << 20
"""The largest number of bytes between the start of a region and the second probe."""


class Warmer:
    """One thread that reads for all connections. More threads would only make the disk seek."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._worker = Worker(loop, "warmer")
        self._scratch = bytearray(READ_BYTES)
        self._probe = bytearray(1)
        self._can_tell = True

    def is_cold(self, region: FileRegion) -> bool:
        """Return True if the first or last byte of the next send is not in the page cache."""
        if not self._can_tell or not len(region):
            return False
        last = region.position + min(len(region), PROBE_LAST_BYTES) - 1
        return self._is_cold_at(region.fd, region.position) or self._is_cold_at(region.fd, last)

    def _is_cold_at(self, fd: int, position: int) -> bool:
        try:
            os.preadv(fd, [self._probe], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return True
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                self._can_tell = False
                return False
            raise
        return False

    def warm(self, region: FileRegion, done: Callable[[], None]) -> None:
        """Read the region in the thread, then call `done`. Read errors are ignored here, because
        the later send reports them."""

        def job() -> None:
            view = memoryview(self._scratch)
            position, end = region.position, region.position + len(region)
            while position < end:
                count = region.file.read_into(view[: min(READ_BYTES, end - position)], position)
                if not count:
                    return
                position += count

        self._worker.run(job, lambda _: done(), lambda _: done())

    def stop(self) -> None:
        """End the thread."""
        self._worker.stop()
