"""Check a history for records that were lost, duplicated, reordered, invented or wrongly visible.

This module is pure. `check` takes the logs of all producers, consumers and committers. By then the
faults have ended, and a last reader has read every partition completely. `check` finds the
anomalies of jepsen.tests.kafka, but needs no graphs: every value is unique, so one pass per
partition over the records in offset order is enough.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from operator import itemgetter

from tests.harness.history import CommitLog, Outcome, Place, ReadLog, SendLog


class Fault(StrEnum):
    """The faults that must never occur."""

    LOST = "lost"
    """An acknowledged record above the log start offset that the last reader did not get although
    it may see the record."""
    VANISHED = "vanished"
    """A record that a reader got earlier, but the last reader did not."""
    DOUBLED = "doubled"
    """One value at two offsets."""
    COLLISION = "collision"
    """One offset with two values: in two reads, or in an acknowledgement and a read."""
    REORDERED = "reordered"
    """Two records of one producer whose offsets are not in the order of sending."""
    BACK_IN_TIME = "back in time"
    """A record sent after the acknowledgement of another record, but with a smaller offset."""
    PHANTOM = "phantom"
    """A record that was read but never sent, or was sent to another partition."""
    FAILED_READ = "failed read"
    """A reader got a record that had certainly failed, or a read_committed reader got a record
    of an aborted transaction."""
    TORN = "torn transaction"
    """A transaction of which a reader sees only a part."""
    WRONG_WAY = "wrong way"
    """A reader got an offset that is not larger than the one before, although it did not seek."""
    SKIPPED = "skipped"
    """A reader skipped a record that exists at the end."""
    OFFSET_BACK = "offset back"
    """A committed offset is older than an acknowledged commit, or was never committed."""
    STALE_KEY = "stale key"
    """A compacted log's last record of a key is older than an acknowledged record of that key."""


SHOWN_MAX = 20
"""The number of anomalies that a report describes. The counts include all of them."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly, and a text that describes it."""

    fault: Fault
    place: Place
    detail: str


@dataclass(frozen=True, slots=True)
class Rules:
    """The deviations that are allowed in this run."""

    may_double: bool = False
    """The producer was not idempotent. It sends a record again if a crash loses the
    acknowledgement."""
    is_compacted: bool = False
    """Compaction: only the last record of each key must exist; older ones may be missing."""


@dataclass(slots=True)
class Report:
    """The checker's findings; `line` is the text that a campaign prints."""

    sent: int = 0
    acknowledged: int = 0
    unknown: int = 0
    failed: int = 0
    read: int = 0
    standing: int = 0
    """The number of records in the log at the end."""
    commits: int = 0
    counts: Counter[Fault] = field(default_factory=Counter)
    shown: list[Anomaly] = field(default_factory=list)

    def add(self, fault: Fault, place: Place, detail: str) -> None:
        self.counts[fault] += 1
        if len(self.shown) < SHOWN_MAX:
            self.shown.append(Anomaly(fault, place, detail))

    @property
    def is_clean(self) -> bool:
        return not self.counts

    def line(self) -> str:
        """Return one line of counts. Counts that must be zero are always included."""
        always = (Fault.LOST, Fault.DOUBLED, Fault.REORDERED, Fault.COLLISION)
        named = [f"{fault} {self.counts[fault]}" for fault in always]
        named += [f"{fault} {n}" for fault, n in self.counts.items() if fault not in always]
        return (
            f"sent {self.sent}, acknowledged {self.acknowledged}, unknown {self.unknown}, "
            f"standing {self.standing}, read {self.read}: {', '.join(named)}"
        )

    def text(self) -> str:
        """Return the line and the first anomalies, for a failed assertion."""
        found = [f"  {one.fault} {one.place[0]}-{one.place[1]}: {one.detail}" for one in self.shown]
        return "\n".join([self.line(), *found])


@dataclass(slots=True)
class _Sent:
    """One record as its producer recorded it."""

    log: SendLog
    number: int

    @property
    def outcome(self) -> int:
        return self.log.outcomes[self.number]

    @property
    def offset(self) -> int:
        return self.log.offsets[self.number]

    @property
    def end(self) -> Outcome:
        """Return the outcome of the record's transaction, or OK for a record without one."""
        transaction = self.log.transactions[self.number]
        return self.log.ends[transaction] if transaction >= 0 else Outcome.OK

    @property
    def name(self) -> str:
        return f"{self.log.process} #{self.number} {self.log.values[self.number][:40]!r}"


def check(
    sends: Sequence[SendLog],
    reads: Sequence[ReadLog],
    commits: Sequence[CommitLog] = (),
    rules: Rules | None = None,
) -> Report:
    """Check a history. At least one of `reads` must be a full read, because only a full read can
    show that a record is lost."""
    rules = rules or Rules()
    assert any(one.is_full for one in reads), "a reader must read everything at the end"
    report = Report()
    _count(report, sends, reads, commits)
    by_place: dict[Place, dict[bytes, _Sent]] = {}
    for log in sends:
        for number, (place, value) in enumerate(zip(log.places, log.values, strict=True)):
            known = by_place.setdefault(place, {})
            assert value not in known, f"value {value!r} was sent twice: the test is wrong"
            known[value] = _Sent(log, number)
    places = set(by_place).union(*(one.offsets for one in reads))
    for place in sorted(places):
        judge = _Partition(place, by_place.get(place, {}), reads, rules, report)
        judge.run()
    for log in sends:
        _check_transactions(log, reads, report)
    for commit_log in commits:
        _check_commits(commit_log, report)
    return report


def _count(
    report: Report,
    sends: Sequence[SendLog],
    reads: Sequence[ReadLog],
    commits: Sequence[CommitLog],
) -> None:
    for log in sends:
        report.sent += len(log)
        report.acknowledged += log.outcomes.count(Outcome.OK)
        report.failed += log.outcomes.count(Outcome.FAILED)
        report.unknown += log.outcomes.count(Outcome.UNKNOWN)
    for read in reads:
        report.read += sum(
            len(offsets) - offsets.count(ReadLog.MOVED) for offsets in read.offsets.values()
        )
    report.commits = sum(kind == "ok" for one in commits for kind, _, _ in one.events)


class _Partition:
    """The check of one partition."""

    def __init__(
        self,
        place: Place,
        sent: Mapping[bytes, _Sent],
        reads: Sequence[ReadLog],
        rules: Rules,
        report: Report,
    ) -> None:
        self.place = place
        self.sent = sent
        self.reads = reads
        self.rules = rules
        self.report = report
        self.values_at: dict[int, bytes] = {}
        self.offsets_of: dict[bytes, list[int]] = {}
        self.start = 0
        """The log start offset at the end of the test."""

    def run(self) -> None:
        self._gather()
        self._check_presence()
        self._check_acknowledged_offsets()
        self._check_sending_order()
        self._check_real_time()
        for read in self.reads:
            self._check_reader(read)

    def _add(self, fault: Fault, detail: str) -> None:
        self.report.add(fault, self.place, detail)

    def _gather(self) -> None:
        """Collect the final content of the log."""
        for read in self.reads:
            if not read.is_full or self.place not in read.starts:
                continue
            self.start = max(self.start, read.starts[self.place])
            for offset, value in read.records(self.place):
                known = self.values_at.setdefault(offset, value)
                if known != value:
                    self._add(Fault.COLLISION, f"offset {offset} is {known!r} and {value!r}")
                found = self.offsets_of.setdefault(value, [])
                if offset not in found:
                    found.append(offset)
        self.report.standing += len(self.values_at)
        for value, offsets in self.offsets_of.items():
            if len(offsets) > 1 and not self.rules.may_double:
                self._add(Fault.DOUBLED, f"{value[:40]!r} stands at {offsets}")

    def _check_presence(self) -> None:
        if self.rules.is_compacted:
            self._check_last_of_keys()
            return
        missing: dict[bytes, _Sent] = {}
        readers = [one for one in self.reads if one.is_full and self.place in one.starts]
        assert readers or not self.sent, f"no reader has read {self.place} to its end"
        for read in readers:
            seen = set(read.values.get(self.place, ()))
            for value, one in self.sent.items():
                if one.outcome != Outcome.OK or value in seen or 0 <= one.offset < self.start:
                    continue
                if one.end is Outcome.OK or not read.is_read_committed:
                    missing[value] = one
        for one in missing.values():
            self._add(Fault.LOST, f"{one.name}, acknowledged at {one.offset}")

    def _check_last_of_keys(self) -> None:
        last_acknowledged: dict[bytes | None, int] = {}
        for one in self.sent.values():
            if one.outcome == Outcome.OK:
                key = one.log.keys[one.number]
                last_acknowledged[key] = max(last_acknowledged.get(key, -1), one.offset)
        standing: dict[bytes | None, int] = {}
        for value, offsets in self.offsets_of.items():
            if (found := self.sent.get(value)) is not None:
                key = found.log.keys[found.number]
                standing[key] = max(standing.get(key, -1), *offsets)
        for key, offset in last_acknowledged.items():
            if standing.get(key, -1) < offset:
                detail = f"key {key!r}: acknowledged {offset}, standing {standing.get(key, -1)}"
                self._add(Fault.STALE_KEY, detail)

    def _check_acknowledged_offsets(self) -> None:
        """Check that the log has the acknowledged record at each acknowledged offset."""
        claimed: dict[int, _Sent] = {}
        for value, one in self.sent.items():
            if one.outcome != Outcome.OK:
                continue
            if one.offset < 0:
                continue
            other = claimed.setdefault(one.offset, one)
            if other is not one:
                self._add(Fault.COLLISION, f"{one.offset} acknowledged: {other.name}, {one.name}")
            stands = self.values_at.get(one.offset)
            if stands is not None and stands != value:
                self._add(Fault.COLLISION, f"{one.name} at {one.offset}, where {stands!r} stands")
            elif stands is None and value in self.offsets_of:
                found = self.offsets_of[value]
                self._add(
                    Fault.COLLISION, f"{one.name} acknowledged at {one.offset}, is at {found}"
                )

    def _check_sending_order(self) -> None:
        """Check that a producer's records are in the order of sending. Duplicates are ignored."""
        last: dict[SendLog, tuple[int, _Sent]] = {}
        for value, one in self.sent.items():
            offset = min(self.offsets_of[value]) if value in self.offsets_of else one.offset
            if offset < 0:
                continue
            before = last.get(one.log)
            if before is not None and offset <= before[0]:
                self._add(Fault.REORDERED, f"{one.name} at {offset}, {before[1].name} {before[0]}")
            last[one.log] = (offset, one)

    def _check_real_time(self) -> None:
        """Check real-time order: a record sent after another's acknowledgement has a larger
        offset."""
        answered = sorted(
            (
                (one.offset, one.log.answered_ns[one.number], one.log.invoked_ns[one.number], one)
                for one in self.sent.values()
                if one.outcome == Outcome.OK and one.offset >= 0
            ),
            key=itemgetter(0),
        )
        earliest_ns = 2**63
        earliest: _Sent | None = None
        for offset, answered_ns, invoked_ns, one in reversed(answered):
            if invoked_ns > earliest_ns and earliest is not None:
                detail = f"{one.name} at {offset}, sent after {earliest.name} at {earliest.offset}"
                self._add(Fault.BACK_IN_TIME, detail)
            if answered_ns < earliest_ns:
                earliest_ns, earliest = answered_ns, one

    def _check_reader(self, read: ReadLog) -> None:
        if self.place not in read.offsets:
            return
        truth = self._visible_to(read)
        last = ReadLog.MOVED
        for offset, value in zip(read.offsets[self.place], read.values[self.place], strict=True):
            if offset == ReadLog.MOVED:
                last = ReadLog.MOVED
                continue
            self._check_record(read, offset, value)
            if last != ReadLog.MOVED:
                if offset <= last:
                    self._add(Fault.WRONG_WAY, f"{read.process} got {offset} after {last}")
                else:
                    self._check_gap(read, truth, last, offset)
            last = offset

    def _visible_to(self, read: ReadLog) -> array[int]:
        """Return the offsets that this reader must get when it reads the partition, in order."""
        if not read.is_read_committed:
            return array("q", sorted(self.values_at))
        kept = [
            offset
            for offset, value in self.values_at.items()
            if value in self.sent and self.sent[value].end is Outcome.OK
        ]
        return array("q", sorted(kept))

    def _check_gap(self, read: ReadLog, truth: array[int], last: int, offset: int) -> None:
        first, behind = bisect_right(truth, last), bisect_left(truth, offset)
        if first < behind:
            detail = f"{read.process} went from {last} to {offset} past {behind - first} records"
            self._add(Fault.SKIPPED, f"{detail}, the first at {truth[first]}")

    def _check_record(self, read: ReadLog, offset: int, value: bytes) -> None:
        one = self.sent.get(value)
        if one is None:
            self._add(Fault.PHANTOM, f"{read.process} read {value[:40]!r} at {offset}")
            return
        if one.outcome == Outcome.FAILED:
            self._add(Fault.FAILED_READ, f"{read.process} read {one.name}, which had failed")
        elif read.is_read_committed and one.end is Outcome.FAILED:
            self._add(Fault.FAILED_READ, f"{read.process} read {one.name}, which was aborted")
        if read.is_full:
            return
        stands = self.values_at.get(offset)
        if stands is not None and stands != value:
            self._add(Fault.COLLISION, f"{read.process} read {value!r} at {offset}, now {stands!r}")
        is_kept = not self.rules.is_compacted and offset >= self.start
        if stands is None and is_kept:
            self._add(Fault.VANISHED, f"{read.process} read {one.name} at {offset}")


def _check_transactions(log: SendLog, reads: Sequence[ReadLog], report: Report) -> None:
    """Check that a full read_committed reader gets each transaction completely or not at all."""
    if not log.ends:
        return
    for read in reads:
        if not (read.is_full and read.is_read_committed):
            continue
        seen = {(place, value) for place in read.values for _, value in read.records(place)}
        members: dict[int, list[int]] = {}
        for number, transaction in enumerate(log.transactions):
            if transaction >= 0 and log.outcomes[number] != Outcome.FAILED:
                members.setdefault(transaction, []).append(number)
        for transaction, numbers in members.items():
            visible = sum((log.places[one], log.values[one]) in seen for one in numbers)
            if visible and visible < len(numbers):
                detail = f"{log.process} transaction {transaction}: {visible} of {len(numbers)}"
                report.add(Fault.TORN, log.places[numbers[0]], detail)


def _check_commits(log: CommitLog, report: Report) -> None:
    """Check that each offset read back was requested and is not older than the last acknowledged
    one."""
    asked: dict[Place, set[int]] = {}
    promised: dict[Place, int] = {}
    for kind, place, offset in log.events:
        if kind == "invoke":
            asked.setdefault(place, set()).add(offset)
        elif kind == "ok":
            promised[place] = max(promised.get(place, -1), offset)
        elif offset < promised.get(place, -1):
            detail = f"group {log.group} is at {offset}, {promised[place]} was acknowledged"
            report.add(Fault.OFFSET_BACK, place, detail)
        elif offset >= 0 and offset not in asked.get(place, ()):
            report.add(Fault.OFFSET_BACK, place, f"group {log.group} is at {offset}: never asked")
        else:
            # A later read must not return an older offset, even if no client got the
            # acknowledgement of this commit.
            promised[place] = max(promised.get(place, -1), offset)
