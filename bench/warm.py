"""Makes memory available before a run begins, so that the run does not wait for it.

A virtual machine gives unused memory back to its host some seconds after it is freed. The next
process that touches such memory waits for the host. So writing to the page cache can take ten times
as long as just after other memory was freed. The bench must not measure this, so it touches and
frees pages just before a run.
"""

import mmap

import psutil

from bench.report import note

MADV_POPULATE_WRITE = 23
"""The number of the advice in Linux 5.14 and later. Python 3.11 has no name for it."""


def warm_pages(size_bytes: int) -> None:
    """Make this many bytes, but at most half of the free memory, available to the process that
    allocates next."""
    size_bytes = min(size_bytes, psutil.virtual_memory().available // 2)
    with mmap.mmap(-1, size_bytes) as memory:
        try:
            memory.madvise(MADV_POPULATE_WRITE)
        except OSError as error:
            note(f"pages are not warmed: {error}")
