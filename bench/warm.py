"""Memory the machine has at hand before a run begins, so that a run does not pay for finding it.

A virtual machine hands memory nobody uses back to its host, some seconds after it is freed. The
next to touch it waits for the host: on such a machine a byte written to the page cache costs ten
times as much as right after other memory was freed, for whoever comes first. What is being
measured is a broker, so pages are touched and freed just before.
"""

import mmap

import psutil

from bench.report import note

MADV_POPULATE_WRITE = 23
"""Linux 5.14; Python 3.11 does not name it."""


def warm_pages(size_bytes: int) -> None:
    """Have so many bytes, or half of what is free, ready for the next one who asks."""
    size_bytes = min(size_bytes, psutil.virtual_memory().available // 2)
    with mmap.mmap(-1, size_bytes) as memory:
        try:
            memory.madvise(MADV_POPULATE_WRITE)
        except OSError as error:
            note(f"pages are not warmed: {error}")
