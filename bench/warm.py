"""Memory the machine has at hand before a run begins, so that a run does not pay for finding it.

A virtual machine hands memory nobody uses back to its host, some seconds after it is freed. The
next to touch it waits for the host: on such a machine a byte written to the page cache costs ten
times as much as right after other memory was freed, for whoever comes first. What is being
measured is a broker, so pages are touched and freed just before.
"""

import mmap

MADV_POPULATE_WRITE = 23
"""Linux 5.14; Python 3.11 does not name it."""


def warm_pages(size_bytes: int) -> None:
    """Have so many bytes of memory ready for the next one who asks.

    Raises:
        OSError: there is not so much memory.
    """
    with mmap.mmap(-1, size_bytes) as memory:
        memory.madvise(MADV_POPULATE_WRITE)
