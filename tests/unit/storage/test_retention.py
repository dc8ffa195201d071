"""Retention by age, by size and below the log start, and which segments are always kept."""

from __future__ import annotations

import random

import pytest

from broker.storage.dropped import DroppedFiles
from broker.storage.errors import DiskError
from tests.unit.storage.kit import NOW, Node, batch, retain, values_of

HOUR = 3_600_000


def filled(topic: dict[str, str], count: int = 10, *, is_flushed: bool = True) -> Node:
    """Return a log with one batch per segment. The batches are one hour apart."""
    node = Node(topic={"segment.bytes": "200", "retention.ms": "-1", **topic})
    for number in range(count):
        at = NOW + number * HOUR
        node.put(batch(b"%03d" % number * 40, timestamp_ms=at, key=b"k"), now_ms=at)
    if is_flushed:
        node.flush()
    return node


def run(node: Node, now_ms: int) -> DroppedFiles | None:
    dropped = retain(node, now_ms)
    if dropped is not None:
        dropped.perform()
    return dropped


def test_nothing_goes_without_limits() -> None:
    node = filled({})
    assert run(node, NOW + 1000 * HOUR) is None
    assert len(values_of(node.log)) == 10


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    node = filled({"retention.ms": str(2 * HOUR)})
    assert run(node, NOW + 2 * HOUR) is None
    run(node, NOW + 6 * HOUR)
    assert node.log.log_start_offset == 4
    assert len(values_of(node.log)) == 6
    names = [name for name in node.names() if name.endswith(("log", "index", "metadata"))]
    assert len(names) == 6 * 3 - 2 + 1  # the active segment has no index files yet
    assert not any(name < f"{4:020d}" for name in node.names())


def test_an_idle_log_empties_altogether_and_goes_on() -> None:
    node = filled({"retention.ms": str(HOUR)})
    run(node, NOW + 1000 * HOUR)
    assert node.log.log_start_offset == node.log.log_end_offset == 10
    assert (values_of(node.log), node.log.size_bytes) == ([], 0)
    assert run(node, NOW + 2000 * HOUR) is None
    node.put(batch(b"more"), now_ms=NOW + 1000 * HOUR)
    node.flush()
    node.restart(NOW + 1000 * HOUR)
    assert values_of(node.log) == [b"more"]
    assert node.log.log_start_offset == 10


def test_segments_go_while_enough_bytes_are_left() -> None:
    node = filled({"retention.bytes": "600"})
    one = node.log.segments.active.size_bytes
    run(node, NOW)
    assert node.log.size_bytes >= 600
    assert node.log.size_bytes - one < 600


def test_segments_below_the_log_start_go_whatever_the_policy() -> None:
    node = filled({"cleanup.policy": "compact"})
    node.log.advance_log_start(7)
    run(node, NOW)
    assert node.log.segments.start_offset == 7


def test_a_compacted_log_keeps_its_old_segments() -> None:
    node = filled({"cleanup.policy": "compact", "retention.ms": "1", "retention.bytes": "1"})
    assert run(node, NOW + 1000 * HOUR) is None


def test_nothing_above_the_high_watermark_goes() -> None:
    node = filled({"retention.ms": "1"}, is_flushed=False)
    node.log.advance_high_watermark(3)
    run(node, NOW + 1000 * HOUR)
    assert node.log.log_start_offset == 3


def test_records_without_time_have_the_age_of_their_file() -> None:
    node = Node(topic={"retention.ms": str(HOUR), "segment.bytes": "200"})
    for number in range(3):
        node.put(batch(b"%03d" % number * 40, timestamp_ms=-1), now_ms=NOW + number * HOUR)
    node.flush()
    assert run(node, NOW + HOUR) is None
    run(node, NOW + HOUR + 1)
    assert node.log.log_start_offset == 1


def run_restarted(node: Node, now_ms: int, *, is_restarted: bool) -> None:
    if is_restarted:
        node.restart(now_ms)
        node.log.advance_high_watermark(node.log.log_end_offset)
    run(node, now_ms)


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("has_old", [False, True])
def test_records_without_time_are_as_old_as_their_arrival(
    *, has_old: bool, is_restarted: bool
) -> None:
    """The age of records without timestamps is the time since they were appended. Neither the
    segment's age nor an older record before them counts."""
    node = Node(topic={"retention.ms": str(HOUR)})
    first_ms = NOW - 5 * HOUR if has_old else -1
    node.put(batch(b"first", timestamp_ms=first_ms), now_ms=NOW)
    node.sim.now_ms = NOW + 3 * HOUR
    node.put(batch(b"young", timestamp_ms=-1), now_ms=NOW + 3 * HOUR)
    node.flush()
    run_restarted(node, NOW + 4 * HOUR, is_restarted=is_restarted)
    assert values_of(node.log) == [b"first", b"young"]
    run_restarted(node, NOW + 4 * HOUR + 1, is_restarted=is_restarted)
    assert values_of(node.log) == []


def test_records_with_times_are_as_old_as_these_say_whenever_they_came() -> None:
    node = Node(topic={"retention.ms": str(HOUR)})
    node.put(batch(b"old", timestamp_ms=NOW - 5 * HOUR))
    node.flush()
    run_restarted(node, NOW, is_restarted=True)
    assert values_of(node.log) == []


def test_a_write_taken_back_leaves_no_age() -> None:
    node = Node(topic={"retention.ms": str(HOUR), "segment.bytes": "400"})
    node.put(batch(b"old", timestamp_ms=NOW - 5 * HOUR))
    node.flush()
    roll = node.segment_path(2)
    node.sim.refuses = lambda path, operation: path == roll
    with pytest.raises(DiskError):
        node.put(batch(b"a", timestamp_ms=-1), batch(b"b" * 300, timestamp_ms=-1))
    node.sim.refuses = None
    run(node, NOW)
    assert values_of(node.log) == []


def test_dropped_files_are_renamed_at_once_and_unlinked_later() -> None:
    node = filled({"retention.ms": "1", "file.delete.delay.ms": "5000"})
    dropped = retain(node, NOW + 5 * HOUR)
    assert dropped is not None
    assert dropped.due_ms == NOW + 5 * HOUR + 5000
    assert any(name.endswith(".log.deleted") for name in node.names())
    dropped.perform()
    assert not any(name.endswith(".deleted") for name in node.names())
    dropped.perform()


def test_files_that_were_not_unlinked_go_at_the_next_start() -> None:
    node = filled({"retention.ms": "1"})
    assert retain(node, NOW + 5 * HOUR) is not None
    node.manager.checkpoint().perform()
    node.reopen()
    assert node.log.log_start_offset == 5
    assert not any(name.endswith(".deleted") for name in node.names())


def test_the_oldest_epoch_follows_the_log_start() -> None:
    node = Node(topic={"segment.bytes": "200", "retention.bytes": "0"})
    for number in range(6):
        node.put(batch(b"%03d" % number * 40), leader_epoch=number // 2)
    node.flush()
    run(node, NOW)
    assert node.log.leader_epochs.entries[0] == (2, node.log.log_start_offset)


def test_a_start_beyond_what_was_synced_survives_a_power_cut() -> None:
    """With `flush=interval`, retention can delete records that were never fsynced. So after a power
    cut the log start can be beyond the records on the disk."""
    for seed in range(12):
        topic = {"segment.bytes": "2000", "retention.bytes": "3000"} if seed % 2 else {}
        node = Node(topic={"retention.ms": "-1", **topic})
        for number in range(50):
            node.put(batch(b"%03d" % number * 100, producer=(7, 0, number)))
        node.log.advance_high_watermark(node.log.written_end_offset)
        if seed % 2:
            run(node, NOW)
        else:
            node.log.advance_log_start(50)
            node.manager.checkpoint().perform()
        start_offset = node.log.log_start_offset
        assert start_offset > 0
        node.crash(random.Random(seed))
        assert not node.manager.offline, seed
        assert node.log.log_start_offset == start_offset <= node.log.log_end_offset
        node.put(batch(b"more"))
        node.flush()
        node.restart()
        assert values_of(node.log)[-1:] == [b"more"]
