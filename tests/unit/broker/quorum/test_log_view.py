import pytest

from broker.quorum.events import QuorumEpochEnd
from broker.quorum.log_view import LogView
from broker.quorum.snapshot import SnapshotId
from protocol.wire.records import read_header
from tests.harness.seed import seeded
from tests.unit.broker.quorum.kit import batch


def view(*epochs: int, start: int = 0, snapshot: SnapshotId | None = None) -> LogView:
    """Return a log that has a batch of one record for each named epoch."""
    log = LogView([], start, start_offset=start, snapshot_id=snapshot)
    for epoch in epochs:
        log.append(read_header(batch(offset=log.end_offset, epoch=epoch)))
    log.synced(log.end_offset)
    return log


def test_a_gap_below_the_log_is_damage() -> None:
    with pytest.raises(ValueError, match="records between them are missing"):
        LogView([(1, 5)], 9, start_offset=5)
    with pytest.raises(ValueError, match="records between them are missing"):
        LogView([(1, 5)], 9, start_offset=5, snapshot_id=SnapshotId(10, 1))


def test_a_batch_follows_the_end() -> None:
    with pytest.raises(AssertionError):
        view(1, 1).append(read_header(batch(offset=3, epoch=1)))


def test_what_is_committed_is_never_truncated() -> None:
    log = view(1, 1, 2)
    log.committed_offset = 2
    with pytest.raises(AssertionError):
        log.truncate_to(1)
    log.truncate_to(2)
    assert (log.end_offset, log.last_epoch, log.durable_end_offset) == (2, 1, 2)


def test_what_was_synced_before_a_truncation_says_nothing_of_what_comes_after() -> None:
    log = view(1, 1)
    log.append(read_header(batch(offset=2, epoch=1, count=8)))
    log.truncate_to(2)
    log.append(read_header(batch(offset=2, epoch=3, count=4)))
    assert not log.synced(10)
    assert log.durable_end_offset == 2
    log.truncated()
    assert log.synced(6)
    assert log.durable_end_offset == 6
    with pytest.raises(AssertionError):
        log.truncated()


def test_what_was_not_written_is_undone() -> None:
    log = view(1)
    log.append(read_header(batch(offset=1, epoch=2)))
    log.append(read_header(batch(offset=2, epoch=3)))
    log.committed_offset = 3
    log.unwritten(2)
    assert (log.end_offset, log.last_epoch, log.committed_offset) == (2, 2, 2)
    assert log.durable_end_offset == 1


def test_a_fetched_snapshot_is_the_log() -> None:
    log = view(1, 1, 2)
    log.reset_to(SnapshotId(50, 7))
    assert (log.start_offset, log.end_offset, log.committed_offset) == (50, 50, 50)
    assert log.last_epoch == 7
    with pytest.raises(AssertionError):
        log.reset_to(SnapshotId(49, 7))


def test_trap_28_the_log_never_begins_above_its_snapshot() -> None:
    log = view(1, 1, 2, 2)
    log.committed_offset = 3
    with pytest.raises(AssertionError):
        log.snapshotted(SnapshotId(3, 2), 4)
    with pytest.raises(AssertionError):
        log.snapshotted(SnapshotId(4, 2), 2)
    log.snapshotted(SnapshotId(3, 2), 2)
    with pytest.raises(AssertionError):
        log.snapshotted(SnapshotId(3, 2), 1)


def test_a_prefix_is_compared_by_offset_and_epoch() -> None:
    log = view(1, 1, 3, 3, 3)
    assert log.compare(0, -1) is None
    assert log.compare(2, 1) is None
    assert log.compare(5, 3) is None
    assert log.compare(3, 1) == QuorumEpochEnd(1, 2)
    assert log.compare(4, 2) == QuorumEpochEnd(1, 2)
    assert log.compare(6, 3) == QuorumEpochEnd(3, 5)


def test_below_its_start_a_log_has_only_the_snapshot() -> None:
    snapshot_id = SnapshotId(4, 3)
    log = view(1, 1, 3, 3, 5)
    log.committed_offset = 4
    log.snapshotted(snapshot_id, 2)
    assert log.compare(1, 1) == snapshot_id
    assert log.compare(0, -1) == snapshot_id
    # The other log ends exactly where this log begins. So its last epoch must be that of the record
    # before this log's start.
    assert log.compare(2, 1) is None
    assert log.compare(3, 3) is None
    assert log.compare(4, 2) == QuorumEpochEnd(1, 2)
    log.snapshotted(snapshot_id, 4)
    assert log.compare(4, 3) is None
    assert log.compare(4, 1) == snapshot_id
    assert log.compare(5, 4) == QuorumEpochEnd(3, 4)


def test_a_start_knows_the_epoch_in_front_of_its_log() -> None:
    log = LogView([(5, 4)], 6, start_offset=4, snapshot_id=SnapshotId(4, 3))
    assert log.compare(4, 3) is None
    assert log.compare(4, 2) == SnapshotId(4, 3)
    empty = LogView([], 4, start_offset=4, snapshot_id=SnapshotId(4, 3))
    assert empty.last_epoch == 3
    assert empty.compare(4, 3) is None


def test_an_answer_that_makes_no_sense_truncates_nothing() -> None:
    log = view(1, 1, 2)
    assert log.common_end(QuorumEpochEnd(-1, -1)) == log.end_offset
    assert log.common_end(QuorumEpochEnd(2, 9)) == log.end_offset
    assert view().common_end(QuorumEpochEnd(1, 2)) == 0


def test_in_an_epoch_that_is_unknown_here_the_leaders_end_says_nothing() -> None:
    """The leader's end of an epoch that the follower does not know can lie inside a batch of the
    follower. That batch has an older epoch and diverges at another offset."""
    log = view(1, 5, 5, 5, 7)
    assert log.common_end(QuorumEpochEnd(6, 3)) == 4
    assert log.common_end(QuorumEpochEnd(5, 3)) == 3


def test_kip_101_and_279_going_back_ends_at_the_common_prefix() -> None:
    chance = seeded("common prefix")
    for _ in range(300):
        common = sorted(chance.choices(range(1, 5), k=chance.randint(0, 5)))
        # Each epoch has one leader, so the tails of the two logs have different epochs.
        theirs = sorted(chance.choices((5, 7, 9), k=chance.randint(0, 4)))
        mine = sorted(chance.choices((6, 8, 10), k=chance.randint(0, 4)))
        leader = view(*common, *theirs, 11)
        follower = view(*common, *mine)
        for _ in range(20):
            found = leader.compare(follower.end_offset, follower.last_epoch)
            if found is None:
                break
            assert isinstance(found, QuorumEpochEnd)
            end_offset = follower.common_end(found)
            assert end_offset < follower.end_offset, "going back must come to an end"
            follower.truncate_to(end_offset)
        assert follower.end_offset == len(common)
