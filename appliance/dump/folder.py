"""Check partition folders and single files: report every finding, change nothing.

Files are mapped into memory. A folder is checked as one log: its segments must have consecutive
offsets, and the log must reach the offsets in the node's checkpoint files.
"""

import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from appliance.dump import indexes, metadata
from appliance.dump.scan import LogFinding, LogScan, OpenTransactions, Rules, scan_log
from broker.quorum.snapshot import SnapshotId, read_file_name
from broker.storage import checkpoint
from protocol.types import TopicPartition

BASE_DIGITS = 20
LOG, INDEX, TIME_INDEX, TXN_INDEX = ".log", ".index", ".timeindex", ".txnindex"
SNAPSHOT = ".snapshot"
SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT)
METADATA_SNAPSHOT = ".checkpoint"
INTERNAL = ("__consumer_offsets-", "__transaction_state-", "__share_group_state-")
"""The beginnings of folder names of internal topics, which are compacted."""

METADATA = "__cluster_metadata-0"
NOT_BROKEN_OFF = (
    (checkpoint.RECOVERY_POINTS, "is on the disk up to"),
    (checkpoint.HIGH_WATERMARKS, "was readable up to"),
)

_NAME = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)\Z")

BytesRead = Callable[[int], None]


@dataclass(slots=True)
class FolderReport:
    """The files that were examined, and the findings."""

    files: int = 0
    batches: int = 0
    size_bytes: int = 0
    findings: list[LogFinding] = field(default_factory=list)


@contextmanager
def mapped(path: Path) -> Iterator[memoryview]:
    """Map a file's bytes; an empty file has none."""
    with path.open("rb") as file:
        if not path.stat().st_size:
            yield memoryview(b"")
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            view = memoryview(content)
            try:
                yield view
            finally:
                view.release()


def base_offset_of(path: Path) -> int | None:
    """Return the offset in a segment file's name; None for any other name."""
    match = _NAME.match(path.name)
    return None if match is None else int(match[1])


def named(path: Path) -> int | SnapshotId | None:
    """Return the base offset of a log file, or the id of a snapshot, from a file's name.

    Return None for a file of another kind, which has no batches.
    """
    return base_offset_of(path) if path.suffix == LOG else read_file_name(path.name)


def is_known(path: Path) -> bool:
    """Return whether the name of a file says what the file contains, so that it can be checked."""
    return base_offset_of(path) is not None or read_file_name(path.name) is not None


def is_compacted(folder: Path) -> bool:
    """Return whether offsets can be missing: in an internal topic, or in a log that was cleaned."""
    if folder.name.startswith(INTERNAL):
        return True
    cleaned = folder.parent / checkpoint.CLEANED_OFFSETS
    try:
        return _partition(folder) in checkpoint.decode_offsets(cleaned.read_bytes())
    except (OSError, ValueError):
        return False


def _partition(folder: Path) -> TopicPartition | None:
    topic, _, number = folder.name.rpartition("-")
    return TopicPartition(topic, int(number)) if topic and number.isdecimal() else None


def check_folder(folder: Path, told: BytesRead = lambda _: None) -> FolderReport:
    """Check all files of a partition's folder, and compare them with the node's checkpoint
    files."""
    return _Check(folder, sorted(folder.iterdir()), told, is_whole=True).run()


def check_files(paths: Sequence[Path], told: BytesRead = lambda _: None) -> FolderReport:
    """Check these files, each against the log file in the same folder."""
    whole = FolderReport()
    for folder in dict.fromkeys(path.parent for path in paths):
        own = sorted(path for path in paths if path.parent == folder)
        report = _Check(folder, own, told, is_whole=False).run()
        whole.files += report.files
        whole.batches += report.batches
        whole.size_bytes += report.size_bytes
        whole.findings += report.findings
    return whole


class _Check:
    """The check of one folder, or of some of its files."""

    def __init__(
        self, folder: Path, files: Sequence[Path], told: BytesRead, *, is_whole: bool
    ) -> None:
        self._folder = folder
        self._files = files
        self._told = told
        self._is_whole = is_whole
        self._report = FolderReport()
        self._rules = Rules(is_compacted(folder), self._epochs() if is_whole else ())
        self._scans: dict[int, LogScan] = {}
        self._transactions = OpenTransactions()

    def run(self) -> FolderReport:
        """Check the log files in order, then their indexes and snapshots."""
        by_suffix: dict[str, list[Path]] = {suffix: [] for suffix in SUFFIXES}
        for path in self._files:
            if base_offset_of(path) is not None:
                by_suffix[path.suffix].append(path)
        first = base_offset_of(by_suffix[LOG][0]) if by_suffix[LOG] else None
        # Cleaning can remove the first records of transactions, so in a compacted log a missing
        # transaction is not a fault.
        is_told = self._is_whole and not self._rules.is_compacted
        self._transactions.is_known = is_told and first == 0
        for path in by_suffix[LOG]:
            self._scan(path, self._transactions if is_told else None)
        snapshots = [*self._check_metadata_snapshots()]
        if self._is_whole:
            self._check_order()
            self._check_reach()
            if first is not None and self._folder.name == METADATA:
                where = str(by_suffix[LOG][0])
                self._report.findings += metadata.check_reach(where, first, snapshots)
        for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
            for path in by_suffix[suffix]:
                self._check_beside(path, suffix)
        if self._folder.name != METADATA:
            for path in by_suffix[SNAPSHOT]:
                self._check_snapshot(path)
        return self._report

    def _add(self, path: Path, what: str) -> None:
        self._report.findings.append(LogFinding(str(path), None, what))

    def _read(self, path: Path) -> bytes | None:
        try:
            data = path.read_bytes()
        except OSError as error:
            self._add(path, f"cannot be read: {error.strerror}")
            return None
        self._report.files += 1
        self._report.size_bytes += len(data)
        self._told(len(data))
        return data

    def _scan(self, path: Path, transactions: OpenTransactions | None) -> LogScan | None:
        base_offset = base_offset_of(path)
        assert base_offset is not None, "only segment files are scanned"
        try:
            with mapped(path) as buffer:
                scan, findings = scan_log(str(path), base_offset, buffer, self._rules, transactions)
                self._told(len(buffer))
                self._report.size_bytes += len(buffer)
        except OSError as error:
            self._add(path, f"cannot be read: {error.strerror}")
            return None
        self._report.files += 1
        self._report.batches += len(scan.positions)
        self._report.findings += findings
        self._scans[base_offset] = scan
        return scan

    def _check_metadata_snapshots(self) -> Iterator[SnapshotId]:
        """Check each metadata snapshot, and return which exist."""
        for path in self._files:
            snapshot_id = read_file_name(path.name)
            data = None if snapshot_id is None else self._read(path)
            if snapshot_id is None or data is None:
                continue
            batches, findings = metadata.check(str(path), data, snapshot_id)
            self._report.batches += batches
            self._report.findings += findings
            yield snapshot_id

    def _check_order(self) -> None:
        """Check that the segments follow each other without gaps and without overlaps."""
        scans = [self._scans[base] for base in sorted(self._scans)]
        for one, following in pairwise(scans):
            if not one.is_readable:
                continue
            is_hole = one.end_offset < following.base_offset and not self._rules.is_compacted
            if is_hole or one.end_offset > following.base_offset:
                what = f"the log ends at offset {one.end_offset}, the next file begins at"
                self._add(Path(one.file), f"{what} {following.base_offset}")

    def _check_reach(self) -> None:
        """Check that the log is at least as long as the node's checkpoint files say."""
        tp = _partition(self._folder)
        end = max((scan.end_offset for scan in self._scans.values()), default=0)
        for name, words in NOT_BROKEN_OFF:
            path = self._folder.parent / name
            if not path.exists():
                continue
            data = self._read(path)
            if data is None:
                continue
            try:
                offset = checkpoint.decode_offsets(data).get(tp) if tp is not None else None
            except ValueError as error:
                self._add(path, str(error))
                continue
            if offset is not None and offset > end:
                last = max(self._scans.values(), key=lambda scan: scan.base_offset, default=None)
                where = self._folder if last is None else Path(last.file)
                self._add(where, f"the log ends at offset {end}, and {words} {offset} ({name})")

    def _epochs(self) -> Sequence[tuple[int, int]]:
        path = self._folder / checkpoint.LEADER_EPOCHS
        if not path.exists():
            return ()
        data = self._read(path)
        try:
            return () if data is None else checkpoint.decode_epochs(data)
        except ValueError as error:
            self._add(path, str(error))
            return ()

    def _scan_of(self, path: Path) -> LogScan | None:
        """Return the scan of the log file to which an index or snapshot belongs.

        The log file is scanned if that has not been done yet.
        """
        base_offset = base_offset_of(path)
        assert base_offset is not None, "only segment files are checked"
        if base_offset in self._scans:
            return self._scans[base_offset]
        log = path.with_suffix(LOG)
        if not log.exists():
            return None
        with mapped(log) as buffer:
            scan, _ = scan_log(str(log), base_offset, buffer, self._rules)
        self._scans[base_offset] = scan
        return scan

    def _check_beside(self, path: Path, suffix: str) -> None:
        data, scan = self._read(path), self._scan_of(path)
        if data is None:
            return
        if scan is None:
            self._add(path, "there is no log file beside it")
            return
        if suffix == INDEX:
            found = indexes.check_offset_index(str(path), data, scan)
        elif suffix == TIME_INDEX:
            is_closed = self._is_whole and scan.base_offset != max(self._scans)
            found = indexes.check_time_index(str(path), data, scan, is_closed=is_closed)
        else:
            found = indexes.check_txn_index(str(path), data, scan)
        self._report.findings += found

    def _check_snapshot(self, path: Path) -> None:
        data, offset = self._read(path), base_offset_of(path)
        if data is None or offset is None:
            return
        producers: dict[int, tuple[int, int]] = {}
        below = [base for base in sorted(self._scans) if base < offset]
        is_known = self._is_whole and all(self._scans[base].is_readable for base in below)
        if is_known and all(self._scans[base].end_offset <= offset for base in below):
            for base in below:
                producers.update(self._scans[base].producers)
        first = below[0] if below else offset
        found = indexes.check_snapshot(str(path), data, offset, producers, first)
        self._report.findings += found
