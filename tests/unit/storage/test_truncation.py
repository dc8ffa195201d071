"""Truncating a log, and resetting it to another offset: no truncated record may come back."""

from __future__ import annotations

import random
from itertools import count

import pytest

from broker.storage.checkpoint import RECOVERY_POINTS
from broker.storage.errors import DiskError
from broker.storage.log import Log
from broker.storage.log_cleaning import dirt_in, plan_cleaning
from broker.storage.retention import drop_below, expire
from tests.unit.protocol.examples import SEED
from tests.unit.storage.kit import (
    MANY,
    NOW,
    Node,
    batch,
    batches_of,
    compact,
    records_of,
    values_of,
)

SMALL = {"segment.bytes": "200"}
COMPACT = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
POWER_CUTS = 12


def filled(count: int, topic: dict[str, str] | None = None) -> Node:
    """Return a log with this number of batches of one record each. All are durable and
    checkpointed."""
    node = Node(topic=topic)
    for number in range(count):
        value, key = b"%03d" % number * 10, b"%d" % (number % 3)
        node.put(batch(value, key=key, producer=(7, 0, number)), leader_epoch=number // 4)
    node.flush()
    node.manager.checkpoint().perform()
    return node


@pytest.mark.parametrize("topic", [None, SMALL])
def test_the_recovery_point_is_lowered_before_anything_is_cut(topic: dict[str, str] | None) -> None:
    for seed in range(SEED, SEED + POWER_CUTS):
        node = filled(10, topic)
        node.truncate(5)
        report = node.crash(random.Random(seed))
        assert report.offline == {}, f"MILLRACE_SEED={seed}"
        assert node.log.log_end_offset == 5


@pytest.mark.parametrize("target", [0, 4, 6])
def test_a_target_at_or_below_the_start_takes_the_start_along(target: int) -> None:
    node = filled(12, SMALL)
    node.log.advance_log_start(6)
    node.manager.checkpoint().perform()
    node.truncate(target)
    log = node.log
    assert (log.log_start_offset, log.log_end_offset) == (target, target)
    assert (log.high_watermark, log.recovery_point) == (target, target)
    node.put(batch(b"next"), leader_epoch=9)
    node.flush()
    node.crash(random.Random(SEED))
    assert (node.log.log_start_offset, values_of(node.log)) == (target, [b"next"])


@pytest.mark.parametrize("target", [0, 3, 7])
@pytest.mark.parametrize("topic", [None, SMALL])
def test_what_was_cut_does_not_come_back(target: int, topic: dict[str, str] | None) -> None:
    for seed in range(SEED, SEED + POWER_CUTS):
        node = filled(20, topic)
        before = values_of(node.log)
        node.truncate(target)
        node.manager.checkpoint().perform()
        node.crash(random.Random(seed))
        assert values_of(node.log) == before[:target], f"MILLRACE_SEED={seed}"


@pytest.mark.parametrize("reset", [False, True])
def test_a_truncation_that_dies_anywhere_can_be_done_again(reset: bool) -> None:
    """After a crash at any call of the truncation, the partition is not offline, no record below
    the target is lost, and the truncation can be repeated."""
    for call in count(1):
        node = filled(8, SMALL)
        before = values_of(node.log)
        target = 30 if reset else 5
        begin = node.manager.begin_reset if reset else node.manager.begin_truncation
        truncation = begin(node.log, target, NOW)
        assert truncation is not None
        node.sim.fail_at, node.sim.fails_on = node.sim.calls + call, True
        try:
            truncation.perform()
        except DiskError:
            is_over = False
        else:
            is_over = True
        node.sim.fail_at = None
        assert node.crash(random.Random(call)).offline == {}, call
        left = values_of(node.log)
        if reset:
            node.reset(target)
            assert (node.log.log_start_offset, node.log.log_end_offset) == (target, target)
        else:
            assert before[:target] == left[:target], call
            assert left == before[: len(left)], call
            node.truncate(target)
            assert values_of(node.log) == before[:target]
        if is_over:
            assert call > 20
            return


def test_a_checkpoint_taken_after_the_decision_holds_the_lowered_offsets() -> None:
    """Housekeeping goes on during the truncation. Its checkpoint can be planned before the
    truncation is performed, and written after it."""
    node = filled(10)
    truncation = node.manager.begin_truncation(node.log, 5, NOW)
    assert truncation is not None
    late = node.manager.checkpoint()
    loaded = truncation.perform()
    late.perform()
    node.log.truncated(loaded)
    assert node.crash(random.Random(SEED)).offline == {}
    assert node.log.log_end_offset == 5
    assert node.log.leader_epochs.entries == [(0, 0), (1, 4)]


def test_a_log_that_is_being_cut_is_neither_flushed_nor_cleaned_nor_shortened() -> None:
    node = filled(12, {**SMALL, "cleanup.policy": "compact,delete", "retention.bytes": "1"})
    assert dirt_in(node.log, NOW) is not None
    truncation = node.manager.begin_truncation(node.log, 9, NOW)
    assert truncation is not None
    assert node.log.flush_target() is None
    assert dirt_in(node.log, NOW) is None
    assert not expire(node.log, NOW)
    assert drop_below(node.log, 9, NOW) is None
    node.log.truncated(truncation.perform())
    assert dirt_in(node.log, NOW) is not None


def test_a_cleaning_is_given_up() -> None:
    """The segments of the compaction must not replace those of the truncated log, not even after a
    restart."""
    node = filled(12, {**SMALL, "cleanup.policy": "compact"})
    job = plan_cleaning(node.log, NOW, 1 << 20)
    assert job is not None
    while not node.manager.clean(node.log, job):
        pass
    assert any(name.endswith(".swap") for name in node.names())
    before = values_of(node.log)
    node.truncate(5)
    assert not any(name.endswith((".swap", ".cleaned")) for name in node.names())
    node.reopen()
    assert values_of(node.log) == before[:5]


@pytest.mark.parametrize("target", [0, 2])
def test_a_log_that_is_to_begin_lower_is_not_lost_on_the_way(target: int) -> None:
    """The power cut comes when the new log start is durable but the old segments still exist."""
    for seed in range(SEED, SEED + POWER_CUTS):
        node = filled(7)
        node.reset(50)
        node.manager.checkpoint().perform()
        begun = node.manager.begin_reset(node.log, target, NOW)
        node.sim.refuses = lambda path, operation: operation == "unlink"
        with pytest.raises(DiskError):
            begun.perform()
        node.sim.refuses = None
        assert node.crash(random.Random(seed)).offline == {}, f"MILLRACE_SEED={seed}"
        assert (node.log.log_start_offset, node.log.log_end_offset) == (target, target)


@pytest.mark.parametrize("topic", [None, SMALL])
def test_epochs_of_a_start_that_was_lost_are_rebuilt(topic: dict[str, str] | None) -> None:
    """The file of leader epochs is written before the log start. If the log start is lost, the
    epochs below it are missing. A diverging log of a follower would then seem equal."""
    for seed in range(SEED, SEED + POWER_CUTS):
        node = filled(12, topic)
        node.log.advance_log_start(9)
        node.manager.checkpoint_points().perform()
        node.crash(random.Random(seed))
        assert node.log.log_start_offset == 0
        assert node.log.leader_epochs.entries == [(0, 0), (1, 4), (2, 8)]
        assert node.log.end_offset_for_epoch(0, 3) == (0, 4)
        node.crash(random.Random(seed))
        assert node.log.leader_epochs.entries == [(0, 0), (1, 4), (2, 8)]


def cleaned() -> Node:
    """Return a log of two segments. The closed one was compacted and has gaps."""
    node = Node(topic={**COMPACT, "segment.bytes": "300"})
    for number, key in enumerate([b"a", b"a", b"b", b"c", b"c", b"c"]):
        node.put(batch(b"%03d" % number * 10, key=key))
    node.flush()
    compact(node)
    node.manager.checkpoint().perform()
    assert [one.base_offset for one in node.log.segments] == [0, 3]
    assert [one.offset for one in records_of(node.log)] == [1, 2, 3, 4, 5]
    return node


@pytest.mark.parametrize("is_finished", [True, False])
def test_gaps_below_the_end_of_a_segment_are_no_torn_tail(is_finished: bool) -> None:
    """A deposed leader of a compacted topic often truncates exactly its last segment."""
    for seed in range(SEED, SEED + POWER_CUTS):
        node = cleaned()
        truncation = node.manager.begin_truncation(node.log, 3, NOW)
        assert truncation is not None
        if is_finished:
            loaded = truncation.perform()
            assert loaded.truncated_reason == ""
            node.log.truncated(loaded)
        else:
            node.sim.refuses = lambda path, operation: path.endswith(".log")
            with pytest.raises(DiskError):
                truncation.perform()
            node.sim.refuses = None
        node.crash(random.Random(seed))
        node.truncate(3)
        left = [one.offset for one in records_of(node.log)]
        assert (left, node.log.log_end_offset) == ([1, 2], 3), f"MILLRACE_SEED={seed}"


@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize(("offset", "kept"), [(2, [1]), (1, [])])
def test_a_cut_into_a_cleaned_segment_is_no_damage(
    offset: int, kept: list[int], is_finished: bool
) -> None:
    """After an unclean election a replica can truncate into a compacted segment. The gaps must not
    count as a torn tail when the log is opened again."""
    for seed in range(SEED, SEED + POWER_CUTS):
        node = cleaned()
        truncation = node.manager.begin_truncation(node.log, offset, NOW)
        assert truncation is not None
        if is_finished:
            loaded = truncation.perform()
            assert loaded.truncated_reason == ""
            node.log.truncated(loaded)
            assert [one.offset for one in records_of(node.log)] == kept
        else:
            node.sim.refuses = lambda path, operation: path.endswith(".log")
            with pytest.raises(DiskError):
                truncation.perform()
            node.sim.refuses = None
        assert node.crash(random.Random(seed)).offline == {}
        node.truncate(offset)
        left = [one.offset for one in records_of(node.log)]
        assert left == kept, f"MILLRACE_SEED={seed}"


def test_a_reset_goes_on_at_any_offset() -> None:
    for offset in (0, 3, 7, 50, 2**40):
        node = filled(7, SMALL)
        node.reset(offset)
        log = node.log
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (offset,) * 3
        assert log.producer_state.active() == []
        node.put(batch(b"next"), leader_epoch=3)
        node.flush()
        assert log.leader_epochs.entries == [(3, offset)]
        node.manager.checkpoint().perform()
        assert node.crash(random.Random(offset)).offline == {}
        assert (node.log.log_start_offset, values_of(node.log)) == (offset, [b"next"])


@pytest.mark.parametrize("seed", range(SEED, SEED + 15))
def test_nothing_of_the_cut_history_is_told_of_the_next(seed: int) -> None:
    """Other producers and transactions follow after the truncation. Snapshots and indexes must
    contain only those.  The expected state is that of a log that never had the truncated batches.
    """
    chance = random.Random(seed)
    where = f"MILLRACE_SEED={seed}"
    node = Node(topic=SMALL)
    for epoch in range(4):
        base_offset = node.log.log_end_offset
        for _ in range(chance.randint(3, 25)):
            go_on(node, chance, epoch)
        if chance.random() < 0.7:
            node.flush()
            node.manager.checkpoint().perform()
        if chance.random() < 0.3:
            node.restart()
        node.flush()
        if epoch < 3:
            target = chance.randint(base_offset, node.log.log_end_offset)
            node.truncate(target)
            if chance.random() < 0.7:
                assert node.crash(chance).offline == {}, where
            assert node.log.log_end_offset == target, where
    assert node.crash(chance).offline == {}, where
    other = Node()
    other.log.follower_append(memoryview(b"".join(batches_of(node.log))), NOW)
    other.log.write_staged(NOW)
    assert batches_of(other.log) == batches_of(node.log), where
    assert told_by(other.log) == told_by(node.log), where
    assert other.log.leader_epochs.entries == node.log.leader_epochs.entries, where


def go_on(node: Node, chance: random.Random, epoch: int) -> None:
    """Append the next batch of a transaction, or end it."""
    state = node.log.producer_state
    producer = 10 * epoch + chance.randint(0, 2)
    if producer in state.transactions.open and chance.random() < 0.4:
        node.log.append_marker(producer, 0, chance.random() < 0.5, 0, epoch, NOW)
        node.log.write_staged(NOW)
        return
    known = state.producers.get(producer)
    sequence = known.batches[-1][1] + 1 if known else 0
    value = b"%d" % chance.randrange(1000) * chance.randint(1, 20)
    view = batch(value, producer=(producer, 0, sequence), is_transactional=True)
    node.put(view, leader_epoch=epoch)


def told_by(log: Log) -> tuple[object, ...]:
    """Return the state of the log's producers and transactions."""
    producers = sorted(
        (one.producer_id, one.producer_epoch, one.last_sequence, one.current_txn_start_offset)
        for one in log.producer_state.active()
    )
    return producers, log.aborted_transactions(0, MANY)


@pytest.mark.parametrize("operation", ["write", "unlink", "truncate", "open"])
def test_a_truncation_that_the_disk_refuses_is_performed_again(operation: str) -> None:
    for number in range(1, 5):
        node = filled(8, SMALL)
        before = values_of(node.log)
        truncation = node.manager.begin_truncation(node.log, 3, NOW)
        assert truncation is not None
        node.sim.refuses = Refusal(operation, number)
        for _ in range(2):
            try:
                loaded = truncation.perform()
            except DiskError as error:
                assert not error.is_final
        node.log.truncated(loaded)
        assert values_of(node.log) == before[:3]
        assert node.crash(random.Random(number)).offline == {}
        assert values_of(node.log) == before[:3]


class Refusal:
    """Refuses the n-th call of one operation, once."""

    def __init__(self, operation: str, number: int) -> None:
        self._operation = operation
        self._number = number

    def __call__(self, path: str, operation: str) -> bool:
        self._number -= operation == self._operation
        return operation == self._operation and self._number == 0


def test_a_newer_checkpoint_that_was_refused_does_not_stand_for_the_lowered_one() -> None:
    """A full disk refuses the truncation's checkpoint, and then a newer checkpoint. The next
    truncation must still write the lowered offsets."""
    for seed in range(SEED, SEED + POWER_CUTS):
        node = filled(10, SMALL)
        truncation = node.manager.begin_truncation(node.log, 5, NOW)
        assert truncation is not None
        node.sim.refuses = lambda path, operation: operation == "write" and RECOVERY_POINTS in path
        for refused in (truncation, node.manager.checkpoint()):
            with pytest.raises(DiskError):
                refused.perform()
        node.sim.refuses = None
        node.log.truncated(truncation.perform())
        report = node.crash(random.Random(seed))
        assert report.offline == {}, f"MILLRACE_SEED={seed}"
        assert node.log.log_end_offset == 5
