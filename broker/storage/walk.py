"""Iterates over the batches in a segment's file.

It reads in large steps, because header-sized reads of a cold file are several times slower than
reading everything. The body of a batch that reaches beyond the bytes read is skipped, unless its
checksum must be verified.
"""

from __future__ import annotations

from collections.abc import Iterator

from broker.storage.disk import DiskFile, FileRegion
from broker.storage.errors import CorruptionError
from protocol.errors import WireError
from protocol.types import NO_LEADER_EPOCH
from protocol.wire.records import HEADER_BYTES, BatchHeader, check_crc, read_header

WINDOW_BYTES = 256 * 1024


class BatchWalk:
    """The headers of a range of batches, in order.

    Checksums are verified from offset `checked_from` on; None means never. While iterating,
    `position` is the start of the current batch. Afterwards `position` is the end of the valid
    batches, and `fault` says what is wrong there, or is None if the whole range was valid.
    """

    __slots__ = ("_checked_from", "_end_position", "_file", "fault", "position")

    def __init__(
        self, file: DiskFile, position: int, end_position: int, *, checked_from: int | None = None
    ) -> None:
        self._file = file
        self._end_position = end_position
        self._checked_from = checked_from
        self.position = position
        self.fault: str | None = None

    def __iter__(self) -> Iterator[BatchHeader]:
        window = memoryview(bytearray(min(WINDOW_BYTES, self._end_position - self.position)))
        start = filled = 0
        while (left := self._end_position - self.position) > 0:
            if filled - start < HEADER_BYTES:
                filled = self._file.read_into(window[:left], self.position)
                start = 0
                if filled < HEADER_BYTES:
                    self.fault = "the header of the last batch is cut short"
                    return
            try:
                header = read_header(window[:filled], start)
            except WireError as error:
                self.fault = str(error) or type(error).__name__
                return
            size_bytes = header.size_bytes
            if not self._is_whole(header, size_bytes, left):
                return
            if self._checked_from is not None and header.base_offset >= self._checked_from:
                if start + size_bytes > filled:
                    if size_bytes > len(window):
                        window = memoryview(bytearray(size_bytes))
                    filled = self._file.read_into(window[:left], self.position)
                    start = 0
                if filled < size_bytes or not check_crc(window[start : start + size_bytes]):
                    self.fault = "the checksum of a batch does not match"
                    return
            yield header
            self.position += size_bytes
            start += size_bytes

    def _is_whole(self, header: BatchHeader, size_bytes: int, left: int) -> bool:
        if size_bytes > left:
            self.fault = f"only {left} of {size_bytes} bytes of a batch are there"
        elif header.last_offset_delta < 0:
            self.fault = (
                f"the batch at offset {header.base_offset} has last offset delta"
                f" {header.last_offset_delta}, expected at least 0"
            )
        else:
            return True
        return False


def check_region(region: FileRegion) -> None:
    """Check all batches of a fetch response. Raises CorruptionError for damage.

    Checksums do not cover offsets and leader epochs. Neither ever falls within a log, so this
    function checks that they do not fall.
    """
    walk = BatchWalk(region.file, region.position, region.position + len(region), checked_from=0)
    next_offset, leader_epoch = 0, NO_LEADER_EPOCH
    for header in walk:
        if header.base_offset < next_offset or header.partition_leader_epoch < leader_epoch:
            walk.fault = "offsets or epochs fall"
            break
        next_offset, leader_epoch = header.last_offset + 1, header.partition_leader_epoch
    if walk.fault is not None:
        raise CorruptionError(region.file.path, walk.position, walk.fault)


def end_of_data(file: DiskFile, position: int, end_position: int) -> int:
    """Return the end of the last non-zero byte of a range; `position` if all bytes are zero.

    A log file can be longer than its batches (decision 0012). Zeros after the last batch are unused
    space. Zeros in the place of a batch are damage.
    """
    found = position
    while position < end_position:
        window = file.read(min(WINDOW_BYTES, end_position - position), position)
        if not window:
            break
        if data := window.rstrip(b"\0"):
            found = position + len(data)
        position += len(window)
    return found
