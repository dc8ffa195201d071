"""When to read a file that others write: once it is other than before, and has come to rest.

Ground floor. Touches the disk to ask what the file is; time comes in as an argument.
"""

from pathlib import Path

LOOK_EVERY_S = 0.25

# A file that was written just now may be written on: editors and copies write in pieces.
SETTLED_S = 0.5

Signature = tuple[int, int, int]
"""What changes with every writing of a file."""


class Settling:
    """`known` is what the file was when it was last read; None: it is to be read in any case."""

    def __init__(self, known: Signature | None, settled_s: float = SETTLED_S) -> None:
        self._known = known
        self._seen = known
        self._since_s = 0.0
        self._settled_s = settled_s

    def look(self, signature: Signature | None, now_s: float) -> bool:
        """What the file is now, None where there is none; True when it is to be read."""
        if signature != self._seen:
            self._seen, self._since_s = signature, now_s
        if signature is None or signature == self._known:
            return False
        if now_s - self._since_s < self._settled_s:
            return False
        self._known = signature
        return True


def signature_of(path: Path) -> Signature | None:
    """What a file is at this moment; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
