"""Make memory available before a run begins, so that the run does not pay for getting it.

A virtual machine gives unused memory back to its host some seconds after it is freed, and the next
process that touches it waits for the host. On such a machine, a byte written to the page cache can
cost ten times as much as right after other memory was freed. The bench measures a broker and not
that, so pages are touched and freed just before a run.
"""

import mmap

import psutil

from bench.report import note

MADV_POPULATE_WRITE = 23
"""Linux 5.14; Python 3.11 does not name it."""


def warm_pages(size_bytes: int) -> None:
    """Make this many bytes, or half of the free memory, available to the next process that
    allocates."""
    size_bytes = min(size_bytes, psutil.virtual_memory().available // 2)
    with mmap.mmap(-1, size_bytes) as memory:
        try:
            memory.madvise(MADV_POPULATE_WRITE)
        except OSError as error:
            note(f"pages are not warmed: {error}")
