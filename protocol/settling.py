"""Decides when to read a file that other programs write: once it has stopped changing.

The module reads the file's attributes from the disk. Time is an argument.
"""

import hashlib
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


def sha256_of(path: Path) -> str | None:
    """Return the hash of a file's content in hexadecimal; None if the file cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def known_signature(path: Path, sha256: str | None) -> Signature | None:
    """Return the signature of a file if its present content has the hash `sha256`.

    None if the file has changed since, or does not exist. If `sha256` is None, the present content
    counts as known.
    """
    signature = signature_of(path)
    return signature if sha256 is None or sha256_of(path) == sha256 else None
