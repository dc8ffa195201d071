"""A process with a limit on open file descriptors."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Allow this process only `count` further file descriptors. Open descriptors stay open.

    Use it in a process of its own (tests.harness.own_process), because a descriptor that a thread
    or object of another test closes meanwhile is free as well.
    """
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]
    # The kernel gives the lowest free descriptors, so all below the highest of these are in use.
    highest = max(taken, default=-1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    for one in taken:
        os.close(one)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
