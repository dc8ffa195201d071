"""A process that may open no more than so many descriptors."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process can open so many more; what is open stays so."""
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(count)]
    highest = max(taken, default=-1)
    # What lies between those of others would be left too.
    filled = []
    while (free := os.open(os.devnull, os.O_RDONLY)) < highest:
        filled.append(free)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    for one in taken:
        os.close(one)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in filled:
            os.close(one)
