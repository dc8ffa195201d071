"""Find where the lines already read end in a file that was trimmed to its last lines.

This module is pure; the caller passes the function that reads bytes. A script keeps a log small
with `tail -n 1000 f > t; cat t > f`, or with `mv t f`. While the file is being read, its last read
bytes are known. Later only their hash is known. Bytes that occur twice in the file, or lines that
the log repeats, prove nothing.
"""

from collections.abc import Callable

from collector.config.settings import BLOCK_BYTES, MARKER_BYTES
from collector.text.fingerprint import digest_of

SEARCH_BYTES = 128 << 20  # most bytes of a file that are searched for the lines already read
# the same limit if only the hash of these lines is known, which is slower
HASH_SEARCH_BYTES = 16 << 20
NEEDLES_MAX = 16  # most last lines of the old content that may be missing from the trimmed file
NEEDLE_BYTES_MIN = 256  # shortest sequence of equal bytes that is evidence anywhere in a file
# shortest equal line that is evidence at a file's start; two lines may be shorter
LINE_BYTES_MIN = 64

Read = Callable[[int, int], bytes]


def kept_end(tail: bytes, marker: bytes, position: int, read: Read, size: int) -> int | None:
    """Return the offset at which the lines already read end; None if the file has none of them.

    `tail` is the last bytes before the position read up to, or empty. `marker` is their hash.
    `size` is the size of the trimmed file.
    """
    if not tail:
        return _by_hash(marker, position, read, size)
    ends = [end for end in _line_ends(tail) if _is_unique(tail, end)][:NEEDLES_MAX]
    found = _anywhere(tail, ends, position, read, size)
    return _at_start(tail, ends, read(0, len(tail))) if found is None else found


def _line_ends(data: bytes) -> list[int]:
    """Return the ends of the lines in `data`, the last end first."""
    ends = [index + 1 for index, byte in enumerate(data) if byte == ord("\n")]
    return ends[::-1]


def _is_unique(tail: bytes, end: int) -> bool:
    """Tell whether the line that ends at `end` occurs only once in the tail."""
    begin = tail.rfind(b"\n", 0, end - 1) + 1
    return begin == 0 or (b"\n" + tail).count(b"\n" + tail[begin:end]) == 1


def _anywhere(tail: bytes, ends: list[int], position: int, read: Read, size: int) -> int | None:
    """Return the end of the longest part of the tail that occurs in the file exactly once."""
    needles = [tail[:end] for end in ends if end >= NEEDLE_BYTES_MIN and position >= MARKER_BYTES]
    places: dict[bytes, set[int]] = {needle: set() for needle in needles}
    for offset in range(0, min(size, SEARCH_BYTES) if needles else 0, BLOCK_BYTES):
        data = read(offset, BLOCK_BYTES + MARKER_BYTES)
        for needle, found in places.items():
            at = data.find(needle)
            while at >= 0 and len(found) < 2:
                found.add(offset + at)
                at = data.find(needle, at + 1)
    for needle in needles:
        if len(places[needle]) == 1:
            end = places[needle].pop() + len(needle)
            return end if end < position else None
    return None


def _at_start(tail: bytes, ends: list[int], head: bytes) -> int | None:
    """Return the end of the longest sequence of lines of the tail with which the file begins."""
    begins = [0, *sorted(_line_ends(tail))]
    for end in ends:
        for begin in begins:
            kept = tail[begin:end]
            is_enough = kept.count(b"\n") > 1 or len(kept) >= LINE_BYTES_MIN
            if is_enough and head.startswith(kept):
                return len(kept)
    return None


def _by_hash(marker: bytes, position: int, read: Read, size: int) -> int | None:
    if position < MARKER_BYTES:
        return None
    found = None
    for offset in range(0, min(size, HASH_SEARCH_BYTES), BLOCK_BYTES):
        data = read(max(0, offset - MARKER_BYTES), BLOCK_BYTES + MARKER_BYTES)
        begin = offset - max(0, offset - MARKER_BYTES)
        end = data.find(b"\n", max(begin, MARKER_BYTES - 1)) + 1
        while end > 0:
            tail = data[end - MARKER_BYTES : end]
            if digest_of(tail) == marker:
                if found is not None or not _is_unique(tail, MARKER_BYTES):
                    return None
                found = offset - begin + end
            end = data.find(b"\n", end) + 1
    return found if found is None or found < position else None
