"""Computes the evidence of positions in open files: the hashes of the bytes before a position.

The functions read synchronously through an open handle.
"""

from collector.config.settings import BLOCK_BYTES, MARKER_BYTES, PREFIX_BYTES
from collector.identity.handles import Handle
from collector.text.encodings import Encoding
from collector.text.fingerprint import Evidence, resume


def evidence_at(handle: Handle, position: int) -> Evidence:
    """Return the evidence of a position.

    It has no CRC, because not all bytes before it are read.
    """
    head = handle.read(0, min(position, PREFIX_BYTES))
    length = min(position, MARKER_BYTES)
    tail = handle.read(position - length, length)
    print_ = Evidence(position, head, (), tail, None).fingerprint()
    return resume(print_, head, tail)


def evidence_at_end(handle: Handle, size: int, encoding: Encoding) -> Evidence:
    """Return the evidence of the last line start in a file, without reading the lines before it."""
    size = text_end(handle, size, encoding)
    start = max(0, size - BLOCK_BYTES)
    found = _line_start_between(handle, start, size, encoding)
    return evidence_at(handle, found if found is not None else size if start else 0)


def whole_evidence(handle: Handle, position: int) -> Evidence:
    """Return the evidence of a position, with a CRC, by reading all bytes before it."""
    evidence = Evidence()
    while evidence.position < position:
        data = handle.read(evidence.position, min(BLOCK_BYTES, position - evidence.position))
        if not data:
            break
        evidence = evidence.advance(data)
    return evidence


def line_start_before(handle: Handle, size: int, encoding: Encoding) -> int:
    """Return the offset of the last line start at or before `size`."""
    end = text_end(handle, size, encoding)
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        found = _line_start_between(handle, start, end, encoding)
        if found is not None:
            return found
        end = start
    return 0


def _line_start_between(handle: Handle, start: int, end: int, encoding: Encoding) -> int | None:
    """Return the offset after the last newline between two offsets; None if there is no newline.

    `start` and `end` must be at the borders of code units.
    """
    data = handle.read(start, end - start)
    whole = len(data) - len(data) % encoding.unit_bytes
    newlines = encoding.newlines(memoryview(data)[:whole])
    return start + int(newlines[-1]) + encoding.unit_bytes if len(newlines) else None


def text_end(handle: Handle, size: int, encoding: Encoding) -> int:
    """Return the offset at the end of the last code unit before `size` that is not NUL."""
    end = size - size % encoding.unit_bytes
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        data = memoryview(handle.read(start, end - start))
        nuls = encoding.trailing_nul_bytes(data)
        if nuls < len(data):
            return start + len(data) - nuls
        end = start
    return 0
