"""A follower's log: it stores the leader's bytes with their gaps and markers, and survives power
cuts."""

from __future__ import annotations

import random
import struct

import pytest

from broker.storage.errors import DiskError
from broker.storage.follower_append import BeginsBelow, GapsUnmarked
from broker.storage.gap_mark import gap_mark_path
from broker.storage.log import Log
from broker.storage.lookup import first_batch_offset
from protocol.errors import CorruptBatch
from protocol.wire.crc32c import crc32c
from protocol.wire.records import iterate_batches, read_header
from tests.unit.protocol.examples import SEED
from tests.unit.storage.kit import MANY, NOW, TP, Node, batch, batches_of, compact, values_of

COMPACT = {"cleanup.policy": "compact", "segment.bytes": "300", "min.cleanable.dirty.ratio": "0"}
CRC_AT, ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, EPOCH_AT = 17, 21, 23, 12


def fetch(leader: Log, offset: int, max_bytes: int = 1 << 20) -> memoryview:
    """Return the bytes of one Fetch response in writable memory."""
    region = leader.read(offset, max_bytes, MANY).region
    return memoryview(bytearray(region.read() if region is not None else b""))


def follow(follower: Node, leader: Node, max_bytes: int = 1 << 20) -> None:
    """Fetch until the follower has everything. Write the gap mark before the first gap is
    appended."""
    while follower.log.log_end_offset < leader.log.log_end_offset:
        records = fetch(leader.log, follower.log.log_end_offset, max_bytes)
        try:
            follower.log.follower_append(records, NOW)
        except GapsUnmarked:
            follower.log.gap_mark().perform()
            follower.log.gaps_are_marked()
            continue
        follower.log.write_staged(NOW)


def compacted(count: int = 40) -> Node:
    """Return a leader whose log was compacted, so that most offsets are missing."""
    leader = Node(topic=COMPACT)
    for number in range(count):
        leader.put(
            batch(b"%03d" % number * 10, key=b"%d" % (number % 3)), leader_epoch=number // 15
        )
    leader.flush()
    compact(leader)
    assert len(batches_of(leader.log)) < count // 2
    return leader


def led(chance: random.Random) -> Node:
    """Return a leader whose log has producers, transactions and several leader epochs."""
    leader = Node(topic={"segment.bytes": "400"})
    for number in range(60):
        epoch = number // 20
        producer = chance.randint(1, 4)
        state = leader.log.producer_state
        if producer in state.transactions.open and chance.random() < 0.5:
            leader.log.append_marker(producer, 0, chance.random() < 0.5, 0, epoch, NOW)
            leader.log.write_staged(NOW)
            continue
        known = state.producers.get(producer)
        sequence = known.batches[-1][1] + 1 if known else 0
        values = [b"%03d" % number * chance.randint(1, 9)] * chance.randint(1, 3)
        is_transactional = producer > 2
        view = batch(*values, producer=(producer, 0, sequence), is_transactional=is_transactional)
        leader.put(view, leader_epoch=epoch)
    leader.flush()
    return leader


@pytest.mark.parametrize("seed", range(SEED, SEED + 8))
def test_a_followers_log_has_the_leaders_bytes_and_knows_its_producers(seed: int) -> None:
    leader = led(random.Random(seed))
    follower = Node(topic={"segment.bytes": "700", "message.timestamp.type": "LogAppendTime"})
    follow(follower, leader, max_bytes=900)
    assert batches_of(follower.log) == batches_of(leader.log), f"MILLRACE_SEED={seed}"
    assert not follower.log.has_gap_mark
    for _ in range(2):
        ours, theirs = follower.log, leader.log
        assert ours.leader_epochs.entries == theirs.leader_epochs.entries
        producers = [sorted(one.producer_state.active()) for one in (ours, theirs)]
        assert producers[0] == producers[1], f"MILLRACE_SEED={seed}"
        assert ours.aborted_transactions(0, MANY) == theirs.aborted_transactions(0, MANY)
        ours.advance_high_watermark(theirs.high_watermark)
        assert ours.last_stable_offset == theirs.last_stable_offset
        follower.flush()
        assert follower.crash(random.Random(seed)).truncated == []


def test_gaps_above_the_recovery_point_survive_a_power_cut() -> None:
    leader = compacted()
    for seed in range(SEED, SEED + 10):
        follower = Node(topic=COMPACT)
        follow(follower, leader)
        assert batches_of(follower.log) == batches_of(leader.log)
        target = follower.log.flush_target()
        assert target is not None
        target.perform()
        report = follower.crash(random.Random(seed))
        assert (report.truncated, report.offline) == ([], {}), f"MILLRACE_SEED={seed}"
        assert batches_of(follower.log) == batches_of(leader.log)
        assert follower.log.leader_epochs.latest == leader.log.leader_epochs.latest
        follower.manager.checkpoint().perform()
        assert follower.crash(random.Random(seed)).offline == {}
        assert follower.restart().offline == {}
        assert batches_of(follower.log) == batches_of(leader.log)


def test_under_a_mark_what_a_power_cut_takes_of_a_closed_segment_is_missed() -> None:
    """A power cut can take the end of a closed segment although the next segment is on the disk.
    Recovery must not take this for a gap of the leader's log."""
    leader = compacted()
    expected = batches_of(leader.log)
    for seed in range(SEED, SEED + 100):
        follower = Node(topic=COMPACT)
        follow(follower, leader)
        follower.crash(random.Random(seed))
        left = batches_of(follower.log)
        assert left == expected[: len(left)], f"MILLRACE_SEED={seed}"
        follow(follower, leader)
        follower.flush()
        follower.manager.checkpoint().perform()
        assert follower.crash(random.Random(seed)).truncated == []
        assert batches_of(follower.log) == expected, f"MILLRACE_SEED={seed}"


def test_without_its_mark_such_a_log_would_be_cut_at_the_first_gap() -> None:
    """Guard 40: without the gap mark, recovery takes the first gap for a torn tail."""
    follower = Node(topic=COMPACT)
    follow(follower, compacted())
    end_offset = follower.log.log_end_offset
    follower.flush()
    follower.disk.unlink(gap_mark_path(follower.log.folder))
    report = follower.reopen()
    assert report.truncated[0][0] == TP
    assert follower.log.log_end_offset < end_offset


def test_no_gap_is_appended_before_it_is_marked() -> None:
    leader = compacted()
    follower = Node(topic=COMPACT)
    with pytest.raises(GapsUnmarked):
        follower.log.follower_append(fetch(leader.log, 0), NOW)
    assert follower.log.log_end_offset == 0
    assert follower.log.flush_target() is None
    mark = follower.log.gap_mark()
    follower.sim.refuses = lambda path, operation: operation == "fdatasync"
    with pytest.raises(DiskError):
        mark.perform()


def is_marked(node: Node) -> bool:
    return node.log.has_gap_mark and node.disk.exists(gap_mark_path(node.log.folder))


def test_the_mark_goes_when_the_log_is_emptied_and_no_earlier() -> None:
    follower = Node(topic=COMPACT)
    follow(follower, compacted())
    follower.flush()
    follower.truncate(30)
    assert is_marked(follower)
    follower.flush()
    assert follower.crash(random.Random(SEED)).truncated == []
    assert is_marked(follower)
    follower.reset(0)
    assert not is_marked(follower)
    follower.crash(random.Random(SEED))
    assert not is_marked(follower)


def test_under_a_mark_checksums_and_epochs_still_count() -> None:
    follower = Node(topic={**COMPACT, "segment.bytes": "100000"})
    follow(follower, compacted())
    target = follower.log.flush_target()
    assert target is not None
    target.perform()
    batches = batches_of(follower.log)
    content = follower.sim.contents(follower.segment_path())
    assert len(batches) > 3
    content[len(b"".join(batches[:2])) + 70] ^= 0xFF
    report = follower.reopen()
    assert "checksum" in report.truncated[0][2]
    assert batches_of(follower.log) == batches[:2]


def test_a_gap_wider_than_an_index_can_tell_begins_a_segment() -> None:
    for has_data in (False, True):
        far = leaders(batch(b"far"), 2**33, 0)
        follower = Node()
        if has_data:
            follower.put(batch(b"near"))
        follower.log.gap_mark().perform()
        follower.log.gaps_are_marked()
        follower.log.follower_append(far, NOW)
        follower.log.write_staged(NOW)
        for _ in range(2):
            expected = [b"near", b"far"] if has_data else [b"far"]
            assert values_of(follower.log) == expected
            assert follower.log.log_end_offset == 2**33 + 1
            follower.flush()
            assert follower.crash(random.Random(SEED)).offline == {}


def resealed(view: bytearray) -> bytearray:
    struct.pack_into(">I", view, CRC_AT, crc32c(bytes(view[ATTRIBUTES_AT:])))
    return view


def damaged(kind: str) -> bytearray:
    """Return a batch at offset 0 with one fault for which a log must reject it."""
    view = bytearray(batch(b"a", b"b"))
    if kind == "checksum":
        view[-1] ^= 1
    elif kind == "last offset delta":
        struct.pack_into(">i", view, LAST_OFFSET_DELTA_AT, -1)
        resealed(view)
    elif kind == "epoch":
        struct.pack_into(">i", view, EPOCH_AT, 3)
    elif kind == "batch length":
        struct.pack_into(">i", view, 8, 3)
    return view


@pytest.mark.parametrize("kind", ["checksum", "last offset delta", "epoch", "batch length"])
def test_what_no_log_may_hold_is_refused_and_changes_nothing(kind: str) -> None:
    follower = Node()
    follower.log.follower_append(leaders(batch(b"0"), 0, 4), NOW)
    follower.log.write_staged(NOW)
    good, bad = leaders(batch(b"1"), 1, 4), damaged(kind)
    struct.pack_into(">q", bad, 0, 2)
    if kind != "epoch":
        struct.pack_into(">i", bad, EPOCH_AT, 4)
    with pytest.raises(CorruptBatch, match=kind):
        follower.log.follower_append(memoryview(bytearray(bytes(good) + bytes(bad))), NOW)
    assert values_of(follower.log) == [b"0"]
    assert follower.log.log_end_offset == 1


def test_offsets_below_the_end_are_refused_also_in_the_middle_of_a_batch() -> None:
    follower = Node()
    follower.put(batch(b"a"), batch(b"b"))
    for offset in (0, 1):
        with pytest.raises(CorruptBatch, match=f"begins at offset {offset}, .* log end offset 2"):
            follower.log.follower_append(leaders(batch(b"x", b"y", b"z"), offset, 0), NOW)


def test_an_empty_log_restarts_at_the_batch_that_contains_its_start() -> None:
    """The leader's log start is in the middle of a batch, and the leader still has the whole
    batch."""
    leader = Node()
    leader.put(batch(b"a", b"b"), batch(b"c", b"d", b"e"))
    leader.flush()
    leader.log.advance_log_start(4)
    assert first_batch_offset(leader.log.segments, 4) == 2
    follower = Node()
    follower.reset(4)
    with pytest.raises(BeginsBelow) as raised:
        follower.log.follower_append(fetch(leader.log, 4), NOW)
    assert (raised.value.base_offset, follower.log.log_end_offset) == (2, 4)
    follower.reset(2)
    follower.log.follower_append(fetch(leader.log, 4), NOW)
    follower.log.write_staged(NOW)
    follower.log.advance_high_watermark(5)
    follower.log.advance_log_start(4)
    assert batches_of(follower.log) == batches_of(leader.log)


def test_a_batch_that_is_cut_short_is_left_for_the_next_fetch() -> None:
    follower = Node()
    whole = bytes(leaders(batch(b"a"), 0, 0)) + bytes(leaders(batch(b"b"), 1, 0))
    follower.log.follower_append(memoryview(bytearray(whole[:-1])), NOW)
    follower.log.write_staged(NOW)
    assert values_of(follower.log) == [b"a"]
    follower.log.follower_append(memoryview(bytearray(b"")), NOW)
    follower.log.write_staged(NOW)
    assert follower.log.log_end_offset == 1


def test_a_write_that_fails_takes_back_producers_and_epochs() -> None:
    leader = led(random.Random(SEED))
    follower = Node(topic={"segment.bytes": "400"})
    half = fetch(leader.log, 0, 900)
    follower.log.follower_append(half, NOW)
    follower.log.write_staged(NOW)
    end_offset = follower.log.log_end_offset
    producers = sorted(follower.log.producer_state.active())
    follower.log.follower_append(fetch(leader.log, end_offset), NOW)
    follower.sim.refuses = lambda path, operation: operation == "write" and path.endswith(".log")
    with pytest.raises(DiskError):
        follower.log.write_staged(NOW)
    follower.sim.refuses = None
    assert follower.log.log_end_offset == end_offset
    assert sorted(follower.log.producer_state.active()) == producers
    follow(follower, leader)
    assert batches_of(follower.log) == batches_of(leader.log)
    assert sorted(follower.log.producer_state.active()) == sorted(
        leader.log.producer_state.active()
    )


def test_a_follower_that_becomes_leader_knows_its_producers_retries() -> None:
    """A producer retries a batch that the former leader acknowledged. The new leader must not
    append the batch again."""
    leader = Node()
    leader.put(batch(b"once", timestamp_ms=NOW - 400 * 86_400_000, producer=(7, 0, 0)))
    follower = Node()
    follow(follower, leader)
    follower.log.producer_state.expire(NOW)
    view = batch(b"once", timestamp_ms=NOW - 400 * 86_400_000, producer=(7, 0, 0))
    again = follower.log.append(view, read_header(view), 5, NOW)
    assert (again.is_duplicate, again.base_offset) == (True, 0)


def leaders(view: memoryview, base_offset: int, leader_epoch: int) -> memoryview:
    """Return the batch with the base offset and epoch that its leader has written."""
    ((header, _),) = iterate_batches(view)
    assert header.base_offset == 0
    out = bytearray(view)
    struct.pack_into(">q", out, 0, base_offset)
    struct.pack_into(">i", out, EPOCH_AT, leader_epoch)
    return memoryview(out)
