"""Compaction: which records are removed and which stay, when a log is dirty enough, and that
readers are not disturbed."""

from __future__ import annotations

import pytest

from broker.storage.cleaner import CleaningJob
from broker.storage.dropped import DroppedFiles
from broker.storage.errors import CorruptionError
from broker.storage.log_cleaning import adopt_cleaned, cleaning_failed, dirt_in, plan_cleaning
from broker.storage.offset_map import ENTRY_BYTES
from broker.storage.rewrite import delete_horizon
from broker.storage.txn_index import AbortedRange
from protocol.wire.record import Record
from protocol.wire.records import (
    Codec,
    NewRecord,
    build_batch,
    check_crc,
    iterate_records,
    read_header,
)
from tests.unit.storage.kit import EVERYTHING, MAP_BYTES, NOW, Node, batches_of, records_of, retain

DAY = 86_400_000
COMPACT = {
    "cleanup.policy": "compact",
    "segment.bytes": "700",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}


def node_with(**topic: str) -> Node:
    settings = {key.replace("_", "."): value for key, value in topic.items()}
    return Node({"log.index.interval.bytes": 150}, topic=COMPACT | settings)


def put(
    node: Node,
    *records: tuple[str, str | None],
    at_ms: int = NOW,
    producer: tuple[int, int, int] = (-1, -1, -1),
    is_transactional: bool = False,
    codec: int = Codec.NONE,
) -> int:
    new = [
        NewRecord(key.encode(), None if value is None else value.encode(), at_ms, (("h", b"x"),))
        for key, value in records
    ]
    view = memoryview(
        build_batch(
            new,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            is_transactional=is_transactional,
        )
    )
    return node.put(view)[0].base_offset


def end(node: Node, producer: int, *, is_commit: bool) -> int:
    offset = node.log.append_marker(producer, 0, is_commit, 0, 0, NOW).base_offset
    node.log.write_staged(NOW)
    return offset


def roll(node: Node) -> None:
    """Roll the active segment by appending large records."""
    put(node, ("filler", "f" * 560))
    put(node, ("filler", "f" * 560))
    node.flush()


def perform(job: CleaningJob) -> int:
    slices = 1
    while not job.perform():
        slices += 1
    return slices


def clean(node: Node, now_ms: int = NOW, map_bytes: int = MAP_BYTES) -> CleaningJob | None:
    job = plan_cleaning(node.log, now_ms, map_bytes)
    if job is not None:
        perform(job)
        job.commit()
        dropped = adopt_cleaned(node.log, job, now_ms)
        assert isinstance(dropped, DroppedFiles)
        dropped.perform()
        node.manager.checkpoint().perform()
    return job


def table(node: Node) -> dict[str, str | None]:
    """Return the last value of each key, as a reader of the whole log keeps it."""
    found: dict[str, str | None] = {}
    for record in data_of(node):
        value = record.value
        found[(record.key or b"").decode()] = None if value is None else value.decode()
    found.pop("filler", None)
    return found


def data_of(node: Node) -> list[Record]:
    return [
        record
        for one in batches_of(node.log)
        if not read_header(one).is_control
        for record in iterate_records(one)
    ]


def offsets(node: Node) -> list[int]:
    return [one.offset for one in data_of(node) if one.key != b"filler"]


def test_the_newest_record_of_each_key_stays_at_its_offset() -> None:
    node = node_with()
    put(node, ("a", "1"), ("b", "1"), ("a", "2"))
    put(node, ("c", "1"), ("b", "2"))
    roll(node)
    before = {one.offset: one for one in records_of(node.log)}
    assert clean(node) is not None
    assert offsets(node) == [2, 3, 4]
    assert table(node) == {"a": "2", "b": "2", "c": "1"}
    # A record that stays is unchanged in its bytes, timestamp and headers.
    assert all(before[one.offset] == one for one in records_of(node.log))
    first = read_header(batches_of(node.log)[0])
    assert (first.base_offset, first.last_offset, first.record_count) == (0, 2, 1)
    assert all(check_crc(one) for one in batches_of(node.log))


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compressed_batch_stays_compressed(codec: Codec) -> None:
    node = node_with()
    put(node, ("a", "1" * 40), ("b", "1" * 40), ("c", "1"), codec=codec)
    put(node, ("a", "2"))
    roll(node)
    clean(node)
    assert read_header(batches_of(node.log)[0]).codec is codec
    assert table(node) == {"a": "2", "b": "1" * 40, "c": "1"}


def test_the_active_segment_is_never_cleaned() -> None:
    node = node_with()
    for number in range(3):
        put(node, ("a", str(number)))
    node.flush()
    assert clean(node) is None
    roll(node)
    put(node, ("a", "x"))
    put(node, ("a", "y"))
    node.flush()
    clean(node)
    values = [one.value for one in records_of(node.log) if one.key == b"a"]
    assert values == [b"2", b"x", b"y"]


def test_nothing_is_cleaned_above_what_may_still_change() -> None:
    node = node_with()
    put(node, ("a", "1"))
    put(node, ("t", "1"), producer=(5, 0, 0), is_transactional=True)
    roll(node)
    assert node.log.last_stable_offset == 1
    assert clean(node) is None
    end(node, 5, is_commit=True)
    node.flush()
    assert clean(node) is not None
    other = node_with()
    put(other, ("a", "1"))
    put(other, ("filler", "f" * 560))
    put(other, ("filler", "f" * 560))
    assert clean(other) is None
    other.flush()
    assert clean(other) is not None


def test_cleaning_waits_for_the_dirty_ratio() -> None:
    node = node_with(min_cleanable_dirty_ratio="0.5")
    for _ in range(4):
        roll(node)
    assert clean(node) is not None
    for number in range(12):
        put(node, (f"k{number}", "v" * 500))
    node.flush()
    clean(node)
    clean_bytes = sum(one.size_bytes for one in node.log.segments.closed())
    rolled = 0
    while (dirt := dirt_in(node.log, NOW)) is None:
        roll(node)
        rolled += 1
    assert rolled > 2
    assert 0.5 <= dirt.ratio < 0.7
    assert sum(one.size_bytes for one in dirt.segments) > 2 * clean_bytes


def test_the_lags_hold_cleaning_back_and_force_it() -> None:
    node = node_with(min_compaction_lag_ms="1000")
    put(node, ("a", "1"))
    roll(node)
    assert clean(node, NOW + 999) is None
    assert clean(node, NOW + 1001) is not None
    node = node_with(min_cleanable_dirty_ratio="1", max_compaction_lag_ms="5000")
    put(node, ("a", "1"))
    roll(node)
    clean(node, NOW + 6000)
    put(node, ("a", "2"))
    roll(node)
    assert clean(node, NOW + 4000) is None
    assert clean(node, NOW + 6000) is not None


def test_records_without_time_are_held_back_from_their_arrival_on() -> None:
    node = node_with(min_compaction_lag_ms="1000")
    put(node, ("a", "1"), at_ms=NOW - DAY)
    view = memoryview(build_batch([NewRecord(b"a", b"2", -1)]))
    node.put(view, now_ms=NOW + 5000)
    roll(node)
    assert clean(node, NOW + 5999) is None
    assert clean(node, NOW + 6001) is not None


def test_a_segment_is_rolled_in_time_for_the_greatest_lag() -> None:
    node = node_with(max_compaction_lag_ms="5000", segment_bytes="100000")
    put(node, ("a", "1"), at_ms=NOW)
    put(node, ("a", "2"), at_ms=NOW + 5000)
    assert len(node.log.segments) == 1
    put(node, ("a", "3"), at_ms=NOW + 5001)
    assert len(node.log.segments) == 2


def test_a_tombstone_outlives_the_cleaning_that_meets_it() -> None:
    node = node_with(delete_retention_ms="1000")
    put(node, ("a", "1"))
    put(node, ("a", None), ("b", "1"))
    roll(node)
    clean(node)
    assert table(node) == {"a": None, "b": "1"}
    (met,) = [one for one in batches_of(node.log) if read_header(one).base_offset == 1]
    assert delete_horizon(read_header(met)) == NOW + 1000
    assert [one.timestamp_ms for one in iterate_records(met)] == [NOW, NOW]
    roll(node)
    clean(node, NOW + 999)
    assert table(node) == {"a": None, "b": "1"}
    roll(node)
    clean(node, NOW + 1000)
    assert table(node) == {"b": "1"}


def test_a_tombstone_does_not_go_before_what_it_deletes() -> None:
    node = node_with(delete_retention_ms="0")
    put(node, ("a", "1"))
    roll(node)
    put(node, ("a", None))
    roll(node)
    clean(node)
    assert "1" not in table(node).values()
    roll(node)
    clean(node, NOW + 1)
    assert table(node) == {}


def test_aborted_data_goes_and_its_marker_later() -> None:
    node = node_with(delete_retention_ms="1000")
    put(node, ("a", "old"))
    put(node, ("a", "aborted"), producer=(5, 0, 0), is_transactional=True)
    end(node, 5, is_commit=False)
    put(node, ("b", "committed"), producer=(6, 0, 0), is_transactional=True)
    end(node, 6, is_commit=True)
    roll(node)
    assert node.log.aborted_transactions(0, EVERYTHING) == [AbortedRange(5, 1)]
    clean(node)
    assert table(node) == {"a": "old", "b": "committed"}
    markers = [one for one in batches_of(node.log) if read_header(one).is_control]
    assert [read_header(one).producer_id for one in markers] == [5, 6]
    # The producer is still known, so its last batch stays without records. So its marker stays too.
    roll(node)
    clean(node, NOW + 1)
    left = [read_header(one) for one in batches_of(node.log)]
    assert [one.record_count for one in left if one.producer_id == 5] == [0, 1]
    assert node.log.aborted_transactions(0, EVERYTHING) == [AbortedRange(5, 1)]
    # After the producer has expired, one cleaning removes its batch, the next one sets the marker's
    # delete horizon, and a cleaning after the horizon removes the marker.
    node.log.producer_state.expire(NOW + 2 * DAY)
    counts = []
    for later in (2, 3, 1002, 1003):
        roll(node)
        clean(node, NOW + later)
        left = [read_header(one) for one in batches_of(node.log)]
        counts.append(sum(one.producer_id == 5 for one in left))
    assert counts == [1, 1, 1, 0]
    assert node.log.aborted_transactions(0, EVERYTHING) == []
    assert table(node) == {"a": "old", "b": "committed"}


def test_a_commit_after_an_abort_in_a_clean_segment_counts() -> None:
    """The segment with the abort marker is clean, so the cleaner's first pass does not read it
    again. It must not take the later commit for an abort."""
    node = node_with(delete_retention_ms="1000")
    put(node, ("K", "old"))
    put(node, ("x", "a"), producer=(5, 0, 0), is_transactional=True)
    end(node, 5, is_commit=False)
    roll(node)
    clean(node)
    tombstone = put(node, ("K", None), producer=(5, 0, 1), is_transactional=True)
    end(node, 5, is_commit=True)
    roll(node)
    clean(node, NOW + 1)
    assert offsets(node) == [tombstone]
    roll(node)
    clean(node, NOW + 5_000)
    assert "K" not in table(node)


def test_the_last_sequence_of_a_producer_survives_without_its_records() -> None:
    node = node_with()
    put(node, ("a", "1"), ("a", "2"), producer=(7, 0, 0))
    put(node, ("a", "3"), ("a", "4"), producer=(7, 0, 2))
    put(node, ("a", "5"))
    roll(node)
    clean(node)
    assert table(node) == {"a": "5"}
    (kept,) = [one for one in batches_of(node.log) if read_header(one).producer_id == 7]
    header = read_header(kept)
    assert (header.record_count, header.base_offset, header.last_offset) == (0, 2, 3)
    assert check_crc(kept)
    for name in node.names():
        if name.endswith(".snapshot"):
            node.disk.unlink(node.path(name))
    node.reopen()
    producer = node.log.producer_state.producers[7]
    assert producer.batches[-1][1] == 3


def test_readers_cross_a_gap_at_the_end_of_a_segment() -> None:
    """Pitfall 21: a read returns the first records at or after the requested offset."""
    node = node_with()
    put(node, ("keep", "1"))
    for number in range(20):
        put(node, ("a", str(number) * 30))
    roll(node)
    clean(node)
    kept = [one.offset for one in records_of(node.log)]
    assert kept[0] == 0 and kept[1] > 2
    for offset in range(node.log.log_end_offset):
        found = node.log.read(offset, EVERYTHING, EVERYTHING).region
        assert found is not None, offset
        first = read_header(found.read())
        expected = min(one for one in kept if one >= offset)
        assert first.base_offset <= expected <= first.last_offset


def test_neighbours_become_one_segment() -> None:
    node = node_with()
    for number in range(60):
        put(node, (f"k{number % 3}", str(number) * 20))
    roll(node)
    count = len(node.log.segments)
    clean(node)
    roll(node)
    before_bytes = node.log.size_bytes
    # The first cleaning has made the segments so small that the second one can join them.
    assert clean(node) is not None
    assert len(node.log.segments) < count / 2
    assert node.log.size_bytes < before_bytes
    assert node.log.size_bytes == sum(one.size_bytes for one in node.log.segments)
    assert not [name for name in node.names() if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_a_log_that_cannot_shrink_is_left_alone() -> None:
    node = node_with()
    for number in range(8):
        put(node, (f"k{number}", "v" * 300))
    node.flush()
    before = {name: node.disk.modified_ms(node.path(name)) for name in node.names()}
    node.sim.now_ms += 1000
    clean(node)
    assert all(
        node.disk.modified_ms(node.path(name)) == at
        for name, at in before.items()
        if name.endswith(".log") and node.disk.exists(node.path(name))
    )
    assert clean(node) is None


def test_what_does_not_fit_into_memory_waits_for_the_next_cleaning() -> None:
    node = node_with()
    for number in range(40):
        put(node, (f"k{number % 20}", str(number)))
    roll(node)
    job = clean(node, map_bytes=8 * ENTRY_BYTES)
    assert job is not None and job.end_offset == 8
    assert len(offsets(node)) == 40
    rounds = 0
    while (job := clean(node, map_bytes=8 * ENTRY_BYTES)) is not None:
        rounds += 1
        assert job.end_offset > 8
    assert rounds > 2
    assert table(node) == {f"k{number}": str(number + 20) for number in range(20)}


def test_damage_stops_a_cleaning_and_nothing_is_changed() -> None:
    node = node_with()
    put(node, ("a", "1"))
    put(node, ("a", "2"))
    roll(node)
    content = node.sim.contents(node.segment_path())
    content[70] ^= 1
    damaged = bytes(content)
    job = plan_cleaning(node.log, NOW, MAP_BYTES)
    assert job is not None
    with pytest.raises(CorruptionError):
        perform(job)
    job.abandon()
    cleaning_failed(node.log, job)
    assert node.sim.contents(node.segment_path()) == damaged
    assert not [name for name in node.names() if name.endswith(".cleaned")]


def test_a_cleaned_log_opens_as_it_was() -> None:
    node = node_with()
    for number in range(60):
        put(node, (f"k{number % 5}", str(number) * 20), producer=(3, 0, number))
        if number % 10 == 0:
            put(node, ("t", str(number)), producer=(5, 0, number // 10), is_transactional=True)
            end(node, 5, is_commit=number % 20 == 0)
    roll(node)
    clean(node)
    expected = (
        records_of(node.log),
        [(one.base_offset, one.next_offset, one.size_bytes) for one in node.log.segments],
        node.log.aborted_transactions(0, EVERYTHING),
    )
    for restart in (node.reopen, node.restart, node.restart, node.reopen):
        assert restart().offline == {}
        assert records_of(node.log) == expected[0]
        assert [
            (one.base_offset, one.next_offset, one.size_bytes) for one in node.log.segments
        ] == expected[1]
        node.log.advance_high_watermark(EVERYTHING)
        assert node.log.aborted_transactions(0, EVERYTHING) == expected[2]
        assert node.log.cleaned_offset > 0
    assert clean(node) is None


def test_compact_and_delete_does_both() -> None:
    node = node_with(cleanup_policy="compact,delete", retention_ms=str(DAY))
    put(node, ("a", "1"))
    put(node, ("b", "1"))
    roll(node)
    put(node, ("a", "2"), at_ms=NOW + DAY // 30)
    roll(node)
    clean(node, NOW)
    assert table(node) == {"b": "1", "a": "2"}
    dropped = retain(node, NOW + DAY + 1)
    assert dropped is not None
    assert table(node) == {"a": "2"}


def test_retention_waits_for_a_cleaning() -> None:
    node = node_with(cleanup_policy="compact,delete", retention_ms=str(DAY))
    put(node, ("a", "1"))
    roll(node)
    job = plan_cleaning(node.log, NOW, MAP_BYTES)
    assert job is not None
    assert plan_cleaning(node.log, NOW, MAP_BYTES) is None
    assert retain(node, NOW + 3 * DAY) is None
    cleaning_failed(node.log, job)
    assert retain(node, NOW + 3 * DAY) is not None
