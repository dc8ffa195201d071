"""Decides when to read a file that others write: after it has changed and then stayed unchanged.

Reads the file's attributes from the disk; time is an argument.
"""

import hashlib
from pathlib import Path

LOOK_EVERY_S = 0.25

# A file that was just written can still change, because editors and copies write in pieces.
SETTLED_S = 0.5

Signature = tuple[int, int, int]
"""Values that change with every write of a file."""


class Settling:
    """`known` is the signature of the file when it was last read; None: read it in any case."""

    def __init__(self, known: Signature | None, settled_s: float = SETTLED_S) -> None:
        self._known = known
        self._seen = known
        self._since_s = 0.0
        self._settled_s = settled_s

    def look(self, signature: Signature | None, now_s: float) -> bool:
        """Take the file's present signature (None if it is missing); return whether
        to read it now.
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
    """Return the present signature of a file; None if it is missing."""
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
