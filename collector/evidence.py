"""The evidence of positions in open files.

Floor: between `files` and `reader`. Synchronous reads through a handle.
"""

from collector.config import BLOCK_BYTES, MARKER_BYTES, PREFIX_BYTES
from collector.files import Handle
from collector.fingerprint import Evidence, resume


def evidence_at(handle: Handle, position: int) -> Evidence:
    """The evidence of a position whose bytes before it are not read: without a CRC."""
    head = handle.read(0, min(position, PREFIX_BYTES))
    length = min(position, MARKER_BYTES)
    tail = handle.read(position - length, length)
    print_ = Evidence(position, head, (), tail, None).fingerprint()
    return resume(print_, head, tail)


def evidence_at_end(handle: Handle, size: int) -> Evidence:
    """The evidence of the last line start in a file: what it holds so far is not read."""
    start = max(0, size - BLOCK_BYTES)
    newline = handle.read(start, size - start).rfind(b"\n")
    return evidence_at(handle, start + newline + 1 if newline >= 0 or not start else size)


def whole_evidence(handle: Handle, position: int) -> Evidence:
    """The evidence of a position with everything before it read."""
    evidence = Evidence()
    while evidence.position < position:
        data = handle.read(evidence.position, min(BLOCK_BYTES, position - evidence.position))
        if not data:
            break
        evidence = evidence.advance(data)
    return evidence


def line_start_before(handle: Handle, size: int) -> int:
    """The last line start at or before `size`."""
    end = size
    while end > 0:
        start = max(0, end - BLOCK_BYTES)
        newline = handle.read(start, end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
