"""Decides when to read a file that other programs write: once it has stopped changing.

The module reads the file's attributes from the disk. Time is an argument.
"""

from pathlib import Path

LOOK_EVERY_S = 0.25

# A file that was just written can still change, because editors and copy programs write in steps.
SETTLED_S = 0.5

Signature = tuple[int, int, int]
"""The attributes of a file that change with every write."""


class Settling:
    """Decides when to read one file.

    `known` is the signature of the file when it was last read. None means: read it in any case.
    """

    def __init__(self, known: Signature | None, settled_s: float = SETTLED_S) -> None:
        self._known = known
        self._seen = known
        self._since_s = 0.0
        self._settled_s = settled_s

    def look(self, signature: Signature | None, now_s: float) -> bool:
        """Return whether to read the file now.

        `signature` is its current signature, None if it is missing.
        """
        if signature != self._seen:
            self._seen, self._since_s = signature, now_s
        if signature is None or signature == self._known:
            return False
        if now_s - self._since_s < self._settled_s:
            return False
        self._known = signature
        return True


def signature_of(path: Path) -> Signature | None:
    """Return the current signature of a file; None if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
