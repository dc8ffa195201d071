"""The search for the bad lines of a batch, with a double of Spark: attempts, messages, notes, and
skipped lines."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from protocol.status import PartState
from sinks.rows import OffsetRange
from stream.fold.counts import BatchCounts, PartitionCount
from stream.quarantine import bisection as module
from stream.quarantine import in_hand as in_hand_module
from stream.quarantine.bisection import (
    Bisection,
    CountedBatch,
    OffsetsDiffer,
    StopRequested,
    without_line,
)
from stream.quarantine.crash_record import CrashRecord
from stream.quarantine.in_hand import HANG_S, SEARCH_HANG_S, Hand
from stream.quarantine.search import BLAME_BELIEVED, BLAME_ENDED, Part, PartSize, size_of
from stream.source.checkpoint import EARLIEST
from stream.state import StreamState

RANGES = [OffsetRange("logs.t", 0, 10, 42), OffsetRange("logs.t", 1, 5, 5)]


class Doubtful(Exception):
    """A failure whose cause is unknown."""


class Away(OSError):
    """A failure that `judge` attributes to a JVM that does not answer."""


class Rig:
    """A batch in which counting a part fails if `refuse` raises for that part."""

    def __init__(self, folder: Path, refuse: Callable[[Part], None]) -> None:
        self.firsts = {("logs.t", 0): 30}
        self.state = StreamState("stream", [], 100)
        self.state.running()
        self.stop = threading.Event()
        self.crash_record = CrashRecord(folder / "suspects.json")
        self.size = PartSize()
        self.is_held = False
        self.bisection = Bisection(
            self.state, self.stop, self.crash_record, self.size, lambda: self.is_held
        )
        self.tried: list[Part] = []
        self.patience_s: list[float] = []
        self.said: list[str] = []
        self.checks = 0
        self.refuse = refuse

    def run(self, ranges: list[OffsetRange] | None = None) -> CountedBatch:
        batch = RANGES if ranges is None else ranges
        return self.bisection.count(batch, lambda: self.count(tuple(batch)), self)

    def count(self, part: Part) -> BatchCounts:
        in_hand = self.bisection.hand.holds
        assert in_hand is not None and in_hand.part == part
        self.patience_s.append(in_hand.until_s - time.monotonic())
        self.tried.append(part)
        self.said += [problem.text for problem in self.state.snapshot().problems]
        self.refuse(part)
        return BatchCounts(
            [],
            [],
            [
                PartitionCount(one.topic, one.partition, one.end - one.start, *ends(one), None)
                for one in part
                if one.end > one.start
            ],
        )

    def read_line(self, one: OffsetRange) -> tuple[str, bytes]:
        return f"file/{one.partition}", f"line {one.start}".encode()

    def first_offsets(self) -> dict[tuple[str, int], int]:
        return self.firsts

    def check(self) -> None:
        self.checks += 1


def ends(one: OffsetRange) -> tuple[int, int]:
    return max(one.start, 0), one.end - 1


def guilty(*offsets: int) -> Callable[[Part], None]:
    """Return a function that fails with an unknown error for parts that contain these offsets."""

    def refuse(part: Part) -> None:
        for one in part:
            for offset in offsets:
                if one.start <= offset < one.end:
                    raise Doubtful(f"task 7.{len(part)}: cannot count 'line {offset}'")

    return refuse


def test_a_batch_that_passes_is_counted_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path, guilty())
    found = rig.run()
    assert (found.ranges, found.counts.lines, found.poison) == (RANGES, 32, ())
    assert (len(rig.tried), rig.checks, rig.bisection.hand.holds) == (1, 0, None)
    assert HANG_S - 1 < rig.patience_s[0] < HANG_S + 1


def test_a_line_is_set_aside_and_said_in_words(tmp_path: Path) -> None:
    rig = Rig(tmp_path, guilty(17))
    found = rig.run()
    (line,) = found.poison
    assert (line.topic, line.file, line.partition, line.offset) == ("logs.t", "file/0", 0, 17)
    assert line.line == b"line 17"
    assert line.why == "Doubtful: task 7.1: cannot count '…'"
    (row,) = found.counts.unparsed
    assert (row.file, row.reason, row.count) == ("file/0", "poison", 1)
    assert found.counts.lines == 32
    assert rig.checks == 1
    assert all(SEARCH_HANG_S - 1 < s < SEARCH_HANG_S + 1 for s in rig.patience_s[2:])
    assert any(
        text.startswith(
            "one of these lines cannot be counted (Doubtful): logs.t, partition 0, offsets 10 to"
            " 41; the stream searches for the line, "
        )
        for text in rig.said
    )
    assert rig.said[-1].startswith(
        "file/0: the line at logs.t, partition 0, offset 17 cannot be counted and is set aside:"
        " Doubtful: task 7.1: cannot count '…'"
    )
    status = rig.state.snapshot()
    assert (status.state, status.problems[0].code) == (PartState.DEGRADED, "poison")


def test_what_is_in_doubt_is_tried_again_and_may_pass(tmp_path: Path) -> None:
    failures = [Doubtful("once")]

    def refuse(part: Part) -> None:
        if failures:
            raise failures.pop()

    rig = Rig(tmp_path, refuse)
    assert (rig.run().poison, len(rig.tried), rig.checks) == ((), 2, 0)


def test_what_fails_otherwise_each_time_is_no_line_s_fault(tmp_path: Path) -> None:
    failures = [Doubtful("this"), Doubtful("that")]

    def refuse(part: Part) -> None:
        raise failures.pop()

    rig = Rig(tmp_path, refuse)
    with pytest.raises(Doubtful, match="this"):
        rig.run()
    assert rig.bisection.hand.holds is None


def test_where_good_lines_fail_too_no_line_is_looked_for(tmp_path: Path) -> None:
    class Broken(Rig):
        def check(self) -> None:
            raise RuntimeError("Spark itself")

    with pytest.raises(RuntimeError, match="itself"):
        Broken(tmp_path, guilty(17)).run()


def test_a_jvm_that_is_gone_leaves_in_hand_what_it_counted(tmp_path: Path) -> None:
    def refuse(part: Part) -> None:
        raise Py4JError("An error occurred while calling o1.collectToPython")

    rig = Rig(tmp_path, refuse)
    with pytest.raises(Py4JError):
        rig.run()
    assert rig.bisection.hand.holds is not None
    assert rig.bisection.hand.holds.part == tuple(RANGES)


def test_a_jvm_that_ends_soon_after_an_error_ends_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor reports the failed task before it exits, so the end of the JVM is blamed on that
    part."""
    monkeypatch.setattr(module, "is_java_error", lambda _: True)
    blamed: list[Part | None] = []

    def refuse(part: Part) -> None:
        blamed.append(rig.bisection.hand.to_blame)
        if size_of(part) > 20:
            raise MemoryError

    rig = Rig(tmp_path, refuse)
    rig.run()
    assert set(blamed) == {tuple(RANGES)}
    assert rig.bisection.hand.to_blame == tuple(RANGES)
    monkeypatch.setattr(in_hand_module, "ERROR_S", 0.0)
    rig.size.offsets_max = None
    blamed.clear()
    rig.run()
    assert blamed == rig.tried[-len(blamed) :]
    assert rig.bisection.hand.to_blame is None


def test_a_batch_that_ended_the_jvm_twice_is_searched_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path, guilty())
    rig.crash_record.note("q", 1, tuple(RANGES), BLAME_BELIEVED - 1)
    rig.run()
    assert rig.tried == [tuple(RANGES)]
    rig.crash_record.note("q", 1, tuple(RANGES), 1)
    rig.tried.clear()
    assert rig.run().counts.lines == 32
    assert {size_of(part) for part in rig.tried} == {1}


def test_lives_and_deaths_end_with_the_line(tmp_path: Path) -> None:
    """Each attempt runs in a new driver, which reads the notes of the earlier attempts."""

    def refuse(part: Part) -> None:
        if any(one.partition == 0 and one.start <= 3_333 < one.end for one in part):
            raise Away("gone")

    ranges = [OffsetRange("logs.t", 0, 0, 5_000), OffsetRange("logs.t", 1, 0, 100)]
    for _ in range(20):
        rig = Rig(tmp_path, refuse)
        try:
            found = rig.run(ranges)
        except Away:
            in_hand = rig.bisection.hand.holds
            assert in_hand is not None
            rig.crash_record.note("q", 1, in_hand.part, BLAME_ENDED)
        else:
            break
    assert [(line.partition, line.offset) for line in found.poison] == [(0, 3_333)]
    assert found.counts.lines == 5_100
    assert found.poison[0].why == "Java ended or hung"


def test_a_partition_that_appeared_begins_at_what_the_broker_holds(tmp_path: Path) -> None:
    rig = Rig(tmp_path, guilty(31))
    found = rig.run([OffsetRange("logs.t", 0, EARLIEST, 42)])
    assert found.ranges == [OffsetRange("logs.t", 0, 30, 42)]
    assert found.counts.lines == 12


@pytest.mark.parametrize("held", [{}, {("logs.t", 0): -1}])
def test_where_a_partition_begins_that_the_broker_says_nothing_of_is_not_made_up(
    tmp_path: Path, held: dict[tuple[str, int], int]
) -> None:
    """If the start was made up, the ledger could include lines that no cell counts."""
    rig = Rig(tmp_path, guilty(31))
    rig.firsts = held
    with pytest.raises(OffsetsDiffer, match=r"logs\.t-0"):
        rig.run([OffsetRange("logs.t", 0, EARLIEST, 42)])


def test_a_heap_too_small_is_met_once_and_remembered(tmp_path: Path) -> None:
    def refuse(part: Part) -> None:
        if size_of(part) > 10:
            raise MemoryError

    rig = Rig(tmp_path, refuse)
    assert rig.run().poison == []
    assert rig.size.offsets_max == 8
    rig.tried.clear()
    assert rig.run().counts.lines == 32
    assert [size_of(part) for part in rig.tried] == [8, 8, 8, 8]
    assert rig.state.snapshot().problems != ()


def test_a_stop_ends_a_search(tmp_path: Path) -> None:
    rig = Rig(tmp_path, guilty(17))

    def stop_then_refuse(part: Part) -> None:
        if len(rig.tried) == 4:
            rig.stop.set()
        else:
            guilty(17)(part)

    rig.refuse = stop_then_refuse
    with pytest.raises(StopRequested):
        rig.run()


def test_a_search_is_given_up_for_a_query_that_counts_something_else(tmp_path: Path) -> None:
    rig = Rig(tmp_path, guilty(17))

    def hold_then_refuse(part: Part) -> None:
        rig.is_held = len(rig.tried) == 4
        guilty(17)(part)

    rig.refuse = hold_then_refuse
    with pytest.raises(StopRequested):
        rig.run()
    assert len(rig.tried) == 4


def test_a_batch_with_a_waiter_has_less_time() -> None:
    hand = Hand()
    hand.hurry()
    part = (OffsetRange("t", 0, 0, 5_000),)
    hand.take(part, HANG_S)
    hand.hurry()
    assert SEARCH_HANG_S + 4 < left_s(hand, part) <= SEARCH_HANG_S + 5
    hand.take(part, 1.0)
    hand.hurry()
    assert left_s(hand, part) <= 1.0
    hand.let_go()
    hand.hurry()
    assert hand.holds is None


def left_s(hand: Hand, part: Part) -> float:
    assert hand.holds is not None and hand.holds.part == part
    return hand.holds.until_s - time.monotonic()


def test_an_error_does_not_quote_the_whole_line() -> None:
    assert without_line("Bad record: a,b,c", b"a,b,c\r") == "Bad record: …"
    assert without_line("Bad record", b"") == "Bad record"
