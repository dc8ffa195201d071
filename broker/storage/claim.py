"""Whether a log's folder is still its own: a namesake of a deleted log has the same path.

Floor: storage. Threads that work in the folder by its path hold the claim meanwhile. A deletion
waits for them, and whoever comes after it finds the claim given up.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class FolderClaim:
    """One log's claim to the path of its folder."""

    __slots__ = ("_is_given_up", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_given_up = False

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Keep the folder where it is meanwhile; False when it is the log's no more."""
        with self._lock:
            yield not self._is_given_up

    @contextmanager
    def given_up(self) -> Iterator[None]:
        """For what renames the folder; the claim stands when that fails."""
        with self._lock:
            yield
            self._is_given_up = True
