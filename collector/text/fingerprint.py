"""Fingerprints: evidence of a file's bytes up to a position, to recognise the file later.

Room: ground of the room. Pure. A fingerprint has three parts: hashes of the head (at 64, 256, 1024
bytes and at the longest head kept, at most 4096), a hash of the last bytes before the position (the
marker), and a running CRC32C of everything before it. A log only grows behind its position. If head
or marker differs, the file is another one or was rewritten.
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
MARK_DISTANCE_BYTES = 4096  # from the last mark to the end of bytes read in one go

Bytes = bytes | bytearray | memoryview


class FileId(NamedTuple):
    """The device and inode of a file, the same for all of its names."""

    device: int
    inode: int


class Head(NamedTuple):
    """The hash of a file's first `length` bytes."""

    length: int
    digest: bytes


class Mark(NamedTuple):
    """The hash, or its beginning, of the bytes just before a position."""

    position: int
    digest: bytes


def digest_of(data: Bytes) -> bytes:
    """Return BLAKE2b of 16 bytes: short enough to store, long enough to avoid collisions."""
    return blake2b(data, digest_size=HASH_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The hashed evidence of one position: stored, and compared with files.

    `heads` rise in length; the last one covers min(position, 4096) bytes. They are empty at
    position 0. `crc` is None if the bytes before the position were never read (`start: end`).
    """

    position: int
    heads: tuple[Head, ...]
    marker: bytes
    crc: int | None

    @property
    def marker_length(self) -> int:
        """How many bytes before the position the marker covers."""
        return min(self.position, MARKER_BYTES)

    def head_within(self, size: int) -> Head | None:
        """Return the longest head that fits in a file of `size` bytes; None if none fits."""
        return next((head for head in reversed(self.heads) if head.length <= size), None)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The running form of a fingerprint. It grows with each block and is hashed on demand.

    `head` holds the first bytes until there are 4096; from then on `heads` holds their hashes and
    `head` is empty.
    """

    position: int = 0
    head: bytes = b""
    heads: tuple[Head, ...] = ()
    tail: bytes = b""
    crc: int | None = 0

    def advance(self, data: Bytes) -> "Evidence":
        """Return the evidence after `data`, which directly follows the present position."""
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
        """Hash it: about 5 microseconds, so call this once per stored position, not per block."""
        heads = self.heads or heads_of(self.head)
        return Fingerprint(self.position, heads, digest_of(self.tail), self.crc)


def heads_of(head: Bytes) -> tuple[Head, ...]:
    """Return the hashes of `head` at each kept length below its own, and at its own length."""
    lengths = [length for length in KEPT_LENGTHS if length < len(head)]
    if head:
        lengths.append(len(head))
    return tuple(Head(length, digest_of(head[:length])) for length in lengths)


def resume(fingerprint: Fingerprint, head: bytes, tail: bytes) -> Evidence:
    """Return the evidence of a stored position from the file's bytes, which were read again.

    `head` is the first min(position, 4096) bytes, `tail` the last min(position, 1024) before the
    position. The caller has found both equal to the stored hashes.
    """
    fresh = Evidence(fingerprint.position, head, (), tail, fingerprint.crc)
    if len(head) < PREFIX_BYTES:
        return fresh
    return replace(fresh, head=b"", heads=heads_of(head))


def extend_trail(trail: tuple[Mark, ...], marks: Iterable[Mark], position: int) -> tuple[Mark, ...]:
    """Return older marks at about doubling distances before `position`: at most 8, newest last.

    `marks` are those since the trail's last one, in order. Of several at a similar distance the
    oldest is kept, so that it can move on to the next distance.
    """
    kept: dict[int, Mark] = {}
    for candidate in (*trail, *marks):
        distance = position - candidate.position
        if distance > 0 and candidate.position > 0:
            short = Mark(candidate.position, candidate.digest[:TRAIL_HASH_BYTES])
            kept.setdefault(distance.bit_length(), short)
    return tuple(sorted(kept.values()))[-TRAIL_LENGTH:]


def marks_within(data: Bytes, end: int) -> list[Mark]:
    """Return marks at doubling distances before `end`, where `data` ends, the first one first.

    So bytes read in one go have a trail like that of bytes read in many steps.
    """
    found = []
    distance = MARK_DISTANCE_BYTES
    while distance + MARKER_BYTES <= len(data):
        at = len(data) - distance
        digest = digest_of(data[at - MARKER_BYTES : at])
        found.append(Mark(end - distance, digest[:TRAIL_HASH_BYTES]))
        distance *= 2
    return found[::-1]
