"""When a transaction ends: at once for a single new line, by its size for a backlog."""

from collector.config.settings import BACKFILL_COMMIT_MS, COMMIT_MS, POSITIONS_INTERVAL_MS
from collector.timing.rhythm import Rhythm
from collector.timing.schedule import ReadQueue


def test_a_single_fresh_line_is_committed_at_once_and_the_next_after_the_least_time() -> None:
    rhythm = Rhythm(1000)
    assert not rhythm.is_due(10**15)
    rhythm.handed_out(ReadQueue.LIVE, 10, 5_000)
    assert rhythm.is_due(5_000)
    rhythm.cut(5_000)
    assert not rhythm.is_due(6_000)
    rhythm.handed_out(ReadQueue.LIVE, 10, 5_001)
    rhythm.handed_out(ReadQueue.LIVE, 10, 5_010)
    assert rhythm.deadline_ms == 5_000 + COMMIT_MS
    assert not rhythm.is_due(5_000 + COMMIT_MS - 1)
    assert rhythm.is_due(5_000 + COMMIT_MS)


def test_a_backlog_travels_by_the_amount_or_after_its_time() -> None:
    rhythm = Rhythm(1000)
    rhythm.handed_out(ReadQueue.BACKFILL, 999, 0)
    assert rhythm.deadline_ms == BACKFILL_COMMIT_MS
    rhythm.handed_out(ReadQueue.BACKFILL, 1, 1)
    assert rhythm.is_due(1)
    rhythm.cut(1)
    rhythm.handed_out(ReadQueue.BACKFILL, 500, 2)
    rhythm.handed_out(ReadQueue.LIVE, 1, 3)
    assert rhythm.deadline_ms == 1 + COMMIT_MS


def test_a_change_without_lines_has_time() -> None:
    rhythm = Rhythm(1000)
    rhythm.changed(100)
    rhythm.changed(200)
    assert rhythm.deadline_ms == 100 + POSITIONS_INTERVAL_MS


def test_a_longer_interval_holds_back_every_kind_of_change() -> None:
    rhythm = Rhythm(1000, 5_000)
    assert rhythm.gathers
    assert not Rhythm(1000).gathers
    rhythm.handed_out(ReadQueue.LIVE, 1, 100)
    assert rhythm.is_due(100), "the first line does not wait"
    rhythm.cut(100)
    rhythm.handed_out(ReadQueue.LIVE, 1, 200)
    assert rhythm.deadline_ms == 5_100
    rhythm.cut(5_100)
    rhythm.handed_out(ReadQueue.BACKFILL, 1, 5_200)
    rhythm.changed(5_200)
    assert rhythm.deadline_ms == 10_100
    rhythm.cut(10_100)
    rhythm.changed(15_000)
    assert rhythm.deadline_ms == 15_000 + POSITIONS_INTERVAL_MS


def test_a_full_transaction_does_not_wait_for_the_interval() -> None:
    rhythm = Rhythm(1000, 5_000)
    rhythm.cut(100)
    rhythm.handed_out(ReadQueue.LIVE, 999, 200)
    assert not rhythm.is_due(200)
    rhythm.handed_out(ReadQueue.LIVE, 1, 200)
    assert rhythm.is_due(200)
