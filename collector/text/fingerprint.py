"""Fingerprints: evidence of a file's bytes up to a position, to recognise the file later.

This module is pure. A fingerprint has three parts: hashes of the head, the marker, and a CRC32C of
everything before the position. The head is hashed at 64, 256 and 1024 bytes and at its full length,
at most 4096. The marker is a hash of the last bytes before the position. A log only grows after its
position. So if head or marker differs, this is another file, or the file was rewritten.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import NamedTuple

import crc32c

from collector.config.settings import MARKER_BYTES, PREFIX_BYTES

HASH_BYTES = 16
TRAIL_HASH_BYTES = 8  # short, because older marks only support other evidence
KEPT_LENGTHS = (64, 256, 1024)
TRAIL_LENGTH = 8
# distance of the last mark from the end of the bytes that were read at once
MARK_DISTANCE_BYTES = 4096

Bytes = bytes | bytearray | memoryview


class FileId(NamedTuple):
    """The device and inode of a file, which are the same for all of its names."""

    device: int
    inode: int


class Head(NamedTuple):
    """The hash of a file's first `length` bytes."""

    length: int
    digest: bytes


class Mark(NamedTuple):
    """The hash, or the first bytes of the hash, of the bytes that precede a position."""

    position: int
    digest: bytes


def digest_of(data: Bytes) -> bytes:
    """Return a 16-byte BLAKE2b hash: short enough to store, long enough to avoid collisions."""
    return blake2b(data, digest_size=HASH_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The hashed evidence of a file up to one position. It is stored and compared with files.

    The lengths of `heads` rise, and the last head covers min(position, 4096) bytes. At position 0
    there are no heads. `crc` is None if the bytes before the position were never read, as with
    `start: end`.
    """

    position: int
    heads: tuple[Head, ...]
    marker: bytes
    crc: int | None

    @property
    def marker_length(self) -> int:
        """The number of bytes before the position that the marker covers."""
        return min(self.position, MARKER_BYTES)

    def head_within(self, size: int) -> Head | None:
        """Return the hash of the longest hashed beginning that fits in a file of `size` bytes; None
        if no beginning fits."""
        return next((head for head in reversed(self.heads) if head.length <= size), None)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The unhashed form of a fingerprint. It grows with each block read, and is hashed on demand.

    `head` holds the first bytes of the file until there are 4096. From then on `heads` holds their
    hashes and `head` is empty.
    """

    position: int = 0
    head: bytes = b""
    heads: tuple[Head, ...] = ()
    tail: bytes = b""
    crc: int | None = 0

    def advance(self, data: Bytes) -> "Evidence":
        """Return the evidence at the end of `data`, which directly follows the current position."""
        length = len(data)
        if not length:
            return self
        head, heads = self.head, self.heads
        if self.position < PREFIX_BYTES:
            head += bytes(data[: PREFIX_BYTES - self.position])
            if len(head) == PREFIX_BYTES:
                head, heads = b"", heads_of(head)
        if length >= MARKER_BYTES:
            tail = bytes(data[length - MARKER_BYTES :])
        else:
            tail = (self.tail + bytes(data))[-MARKER_BYTES:]
        crc = None if self.crc is None else crc32c.crc32c(data, self.crc)
        return Evidence(self.position + length, head, heads, tail, crc)

    def fingerprint(self) -> Fingerprint:
        """Return the fingerprint of the position.

        Hashing takes about 5 microseconds, so call this once per stored position, not per block.
        """
        heads = self.heads or heads_of(self.head)
        return Fingerprint(self.position, heads, digest_of(self.tail), self.crc)


def heads_of(head: Bytes) -> tuple[Head, ...]:
    """Return the hashes of `head` at each kept length below its own length, and at its own
    length."""
    lengths = [length for length in KEPT_LENGTHS if length < len(head)]
    if head:
        lengths.append(len(head))
    return tuple(Head(length, digest_of(head[:length])) for length in lengths)


def resume(fingerprint: Fingerprint, head: bytes, tail: bytes) -> Evidence:
    """Return the evidence of a stored position from bytes that were read again from the file.

    `head` is the first min(position, 4096) bytes of the file, and `tail` the last min(position,
    1024) bytes before the position. The caller has compared both with the stored hashes and found
    them equal.
    """
    fresh = Evidence(fingerprint.position, head, (), tail, fingerprint.crc)
    if len(head) < PREFIX_BYTES:
        return fresh
    return replace(fresh, head=b"", heads=heads_of(head))


def extend_trail(trail: tuple[Mark, ...], marks: Iterable[Mark], position: int) -> tuple[Mark, ...]:
    """Return at most 8 marks whose distances before `position` about double, the newest last.

    `marks` are the new marks since the last one of `trail`, in order. Of several marks at a similar
    distance the oldest is kept, so that it can move on to the next distance.
    """
    kept: dict[int, Mark] = {}
    for candidate in (*trail, *marks):
        distance = position - candidate.position
        if distance > 0 and candidate.position > 0:
            short = Mark(candidate.position, candidate.digest[:TRAIL_HASH_BYTES])
            kept.setdefault(distance.bit_length(), short)
    return tuple(sorted(kept.values()))[-TRAIL_LENGTH:]


def marks_within(data: Bytes, end: int) -> list[Mark]:
    """Return marks at doubling distances before `end`, where `data` ends; the earliest mark first.

    So bytes that are read at once get marks like bytes that are read in many steps.
    """
    found = []
    distance = MARK_DISTANCE_BYTES
    while distance + MARKER_BYTES <= len(data):
        at = len(data) - distance
        digest = digest_of(data[at - MARKER_BYTES : at])
        found.append(Mark(end - distance, digest[:TRAIL_HASH_BYTES]))
        distance *= 2
    return found[::-1]
