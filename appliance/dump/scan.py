"""Walk a log file batch by batch and report what is invalid.

This module is pure: bytes in, findings out. If the CRC of a batch is right, all fields that the CRC
covers are accepted. The CRC does not cover offsets and leader epochs, so these are compared with
the file's name, the previous batch and the folder's epoch file.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from protocol.errors import WireError
from protocol.wire.record import read_marker
from protocol.wire.records import (
    BatchHeader,
    check_crc,
    iterate_place_runs,
    iterate_records,
    read_header,
)

DECOMPRESSED_BYTES_MAX = 64 << 20
"""The largest number of decompressed bytes of a batch. Our client has the same limit."""

DELETE_HORIZON = 0x40
"""The bit of a batch's attributes which says that its base timestamp is the delete horizon
(KIP-534)."""


@dataclass(frozen=True, slots=True)
class LogFinding:
    """Invalid data in a log: the file, the byte (None: the whole file), and what is wrong."""

    file: str
    position: int | None
    what: str

    def __str__(self) -> str:
        where = self.file if self.position is None else f"{self.file}: byte {self.position}"
        return f"{where}: {self.what}"


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """One batch, its position and its bytes (`data`)."""

    position: int
    header: BatchHeader
    data: memoryview
    is_valid: bool


class Batches:
    """The batches of a file in order.

    After the iteration, `end` is the position after the last batch, and `fault` says why the
    iteration ended there. `fault` is None if the file ends with its last batch or has only zeros
    after it, because a file can be longer than its batches (decision 0012).
    """

    def __init__(self, buffer: memoryview, bytes_max: int | None = None) -> None:
        self._buffer = buffer if bytes_max is None else buffer[:bytes_max]
        self._is_cut = bytes_max is not None and bytes_max < len(buffer)
        self.end = 0
        self.fault: str | None = None

    def __iter__(self) -> Iterator[FoundBatch]:
        size = len(self._buffer)
        while self.end < size:
            try:
                header = read_header(self._buffer, self.end)
            except WireError as error:
                self._stop(str(error) or type(error).__name__)
                return
            batch_size = header.size_bytes
            if batch_size > size - self.end:
                self._stop(f"{size - self.end} of {batch_size} bytes of a batch are there")
                return
            data = self._buffer[self.end : self.end + batch_size]
            yield FoundBatch(self.end, header, data, check_crc(data))
            self.end += batch_size

    def _stop(self, fault: str) -> None:
        rest = self._buffer[self.end :]
        if not self._is_cut and any(rest):
            self.fault = fault

    @property
    def left_bytes(self) -> int:
        """Return how many bytes follow the last batch."""
        return len(self._buffer) - self.end


@dataclass(frozen=True, slots=True)
class ScannedAbort:
    """An aborted transaction. A field is None if its value is in an older file, which was not
    scanned."""

    producer_id: int
    first_offset: int | None
    last_stable_offset: int | None


@dataclass(slots=True)
class OpenTransactions:
    """The transactions that are open while a log is scanned file by file.

    `is_known` is true if the scan began at the log's start, so no transaction can have begun
    earlier.
    """

    is_known: bool = False
    open: dict[int, int] = field(default_factory=dict)

    def end(self, producer_id: int, offset: int) -> ScannedAbort:
        """Close the transaction that the marker at an offset ends for this producer, and return
        it.
        """
        first = self.open.pop(producer_id, None)
        if not self.is_known:
            return ScannedAbort(producer_id, None, None)
        return ScannedAbort(producer_id, first, min(self.open.values(), default=offset + 1))


@dataclass(slots=True)
class LogScan:
    """The result of the scan of one log file, for the checks of its indexes and snapshots."""

    file: str
    base_offset: int
    end_offset: int
    is_readable: bool = True
    positions: "array[int]" = field(default_factory=lambda: array("q"))
    last_offsets: "array[int]" = field(default_factory=lambda: array("q"))
    max_timestamps: "array[int]" = field(default_factory=lambda: array("q"))
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The last sequence and offset of each producer's last batch in this file."""
    aborted: dict[int, "ScannedAbort"] = field(default_factory=dict)
    """The aborted transactions by the offset of their abort marker."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of any record; -1 if there are no records."""
        return max(self.max_timestamps, default=-1)


@dataclass(frozen=True, slots=True)
class Rules:
    """Facts about a log that are not in the file itself.

    `is_compacted`: offsets can be missing. `epochs`: the entries of the folder's epoch file, if it
    exists.
    """

    is_compacted: bool = False
    epochs: Sequence[tuple[int, int]] = ()


def scan_log(
    file: str,
    base_offset: int,
    buffer: memoryview,
    rules: Rules,
    transactions: OpenTransactions | None = None,
) -> tuple[LogScan, list[LogFinding]]:
    """Scan one log file; `base_offset` is the one in its name.

    `transactions` has the transactions that are open at the end of the previous file. The scan
    updates it for the next file.
    """
    transactions = OpenTransactions() if transactions is None else transactions
    scan = LogScan(file, base_offset, base_offset)
    findings: list[LogFinding] = []
    batches = Batches(buffer)
    epoch = -1
    for batch in batches:
        header = batch.header
        findings += (
            LogFinding(file, batch.position, what) for what in _wrong(batch, scan, epoch, rules)
        )
        epoch = max(epoch, header.partition_leader_epoch)
        scan.positions.append(batch.position)
        scan.last_offsets.append(header.last_offset)
        scan.max_timestamps.append(header.max_timestamp)
        scan.end_offset = max(scan.end_offset, header.last_offset + 1)
        if not batch.is_valid:
            continue
        fault = _fault_inside(batch)
        if fault is None:
            _note_producer(scan, batch, transactions)
        else:
            findings.append(LogFinding(file, batch.position, unopened(batch, fault)))
    if batches.fault is not None:
        scan.is_readable = False
        left = batches.left_bytes
        findings.append(
            LogFinding(file, batches.end, f"{left} bytes are no batch: {batches.fault}")
        )
    return scan, findings


def unopened(batch: FoundBatch, fault: str) -> str:
    """Return the text of a finding: the records of a batch cannot be read although its checksum is
    right."""
    return f"the records of the batch at offset {batch.header.base_offset} cannot be read: {fault}"


def _fault_inside(batch: FoundBatch) -> str | None:
    """Return the reason why the records of a batch cannot be read; None if all of them can be read.

    A broker stores a batch without reading its records (decision 0015), so records can be invalid
    although the checksum is right.
    """
    try:
        for _ in iterate_place_runs(batch.data, DECOMPRESSED_BYTES_MAX):
            pass
        if batch.header.is_control:
            for record in iterate_records(batch.data):
                read_marker(record)
    except WireError as error:
        return str(error) or type(error).__name__
    return None


def _wrong(batch: FoundBatch, scan: LogScan, epoch: int, rules: Rules) -> Iterable[str]:
    header, is_first = batch.header, not scan.positions
    if not batch.is_valid:
        yield "the checksum of the batch does not match"
    if header.base_offset < scan.end_offset:
        yield f"the batch begins at offset {header.base_offset}, expected {scan.end_offset} or more"
    elif header.base_offset > scan.end_offset and not rules.is_compacted:
        before = "the file's name says" if is_first else "the batch before ends with"
        expected = scan.end_offset if is_first else scan.end_offset - 1
        yield f"the batch begins at offset {header.base_offset}, {before} {expected}"
    if header.last_offset_delta < 0:
        yield f"the batch's last offset delta is {header.last_offset_delta}"
    if header.partition_leader_epoch < epoch:
        yield f"the leader epoch is {header.partition_leader_epoch}, after {epoch}"
    elif rules.epochs:
        known = _epoch_at(rules.epochs, header.base_offset)
        if known is not None and known != header.partition_leader_epoch:
            found = header.partition_leader_epoch
            yield f"the leader epoch is {found}, the folder's epoch file says {known}"


def _epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int | None:
    """Return the epoch in which an offset was written; None before the first known epoch."""
    found = None
    for leader_epoch, start_offset in epochs:
        if start_offset <= offset:
            found = leader_epoch
    return found


def _note_producer(scan: LogScan, batch: FoundBatch, transactions: OpenTransactions) -> None:
    header = batch.header
    if header.producer_id < 0:
        return
    if header.is_control:
        for record in iterate_records(batch.data):
            marker = read_marker(record)
            if marker is not None:
                ended = transactions.end(header.producer_id, record.offset)
                if not marker.is_commit:
                    scan.aborted[record.offset] = ended
        return
    if header.is_transactional:
        transactions.open.setdefault(header.producer_id, header.base_offset)
    if header.base_sequence >= 0:
        scan.producers[header.producer_id] = (header.last_sequence, header.last_offset)
