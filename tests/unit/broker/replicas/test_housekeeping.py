"""The broker's periodic tasks when the disk refuses them: errors are logged, and the work is done
later."""

import errno
import logging
from collections.abc import Callable, Iterator

import pytest

from broker.node.serving import RETRY_MS
from broker.replicas.cleaning import REST_MS_MIN
from broker.replicas.housekeeping import POINTS_INTERVAL_MS
from broker.storage.checkpoint import RECOVERY_POINTS
from protocol.errors import ErrorCode
from protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from protocol.types import TopicPartition
from protocol.wire.records import HEADER_BYTES, read_header
from tests.harness.wire import batch_of, produce_request
from tests.unit.broker.replicas.test_leadership_moves import ME, OTHER, Controller
from tests.unit.broker.rig import Rig
from tests.unit.storage.kit import FOLDER, NOW, batch

PLACE = TopicPartition("t", 0)
CLEANER_MS = 1_000
RETENTION_MS = 60_000


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(
        log_cleaner_backoff_ms=CLEANER_MS,
        log_cleaner_min_cleanable_ratio=0,
        log_retention_check_interval_ms=RETENTION_MS,
    )
    yield rig


def fill(rig: Rig, count: int, size_bytes: int = 300) -> None:
    for number in range(count):
        value = b"%03d" % number + bytes(size_bytes)
        batch = batch_of([value], key=b"k", timestamp_ms=rig.clock.now_ms())
        asked = rig.send(produce_request("t", batch), 9)
        rig.flusher.sync()
        assert asked.answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def written_point(rig: Rig) -> str:
    data = rig.disk.read_all(f"{FOLDER}/{RECOVERY_POINTS}").decode()
    return next((line for line in data.splitlines() if line.startswith("t 0 ")), "")


def test_a_checkpoint_that_finds_no_room_is_written_later(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.create("t")
    fill(rig, 3)
    rig.disk.refuses = lambda path, operation: path.endswith(".tmp") and operation == "write"
    with caplog.at_level(logging.WARNING):
        rig.advance(POINTS_INTERVAL_MS)
    assert "could not write the checkpoint" in caplog.text
    assert written_point(rig) == ""
    rig.disk.refuses = None
    rig.advance(POINTS_INTERVAL_MS)
    assert written_point(rig) == "t 0 3"


def test_a_full_disk_frees_itself(rig: Rig) -> None:
    rig.create("t", segment_bytes="700", retention_ms="1000", file_delete_delay_ms="0")
    fill(rig, 6)
    rig.advance(POINTS_INTERVAL_MS)
    rig.disk.capacity_bytes = rig.disk.used_bytes()
    refused = rig.send(produce_request("t", batch_of([bytes(300)])), 9)
    answer = refused.answer.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    rig.advance(RETENTION_MS)
    fill(rig, 1)
    assert rig.broker.parts.replicas.find(*PLACE).log.log_start_offset == 6


def test_trap_17_a_follower_does_not_expire_by_itself(rig: Rig) -> None:
    """The follower's log start follows the leader's. If the follower deleted by its own clock and
    became the leader, it would report records as deleted that the former leader still had."""
    rig.create("t", segment_bytes="700", retention_ms="1000")
    fill(rig, 6)
    controller = Controller(rig)
    controller.change(PLACE, replicas=[ME, OTHER], isr=[ME, OTHER], leader=OTHER)
    log = rig.broker.parts.replicas.find_held(*PLACE).log
    rig.advance(RETENTION_MS)
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    controller.change(PLACE, leader=ME)
    rig.advance(RETENTION_MS)
    assert log.log_start_offset > 0


def test_a_deleted_topic_goes_only_when_no_checkpoint_names_it(rig: Rig) -> None:
    """Otherwise a start would take the missing folder for a loss, and would suspect the log of a
    new topic of this name."""
    rig.create("t")
    fill(rig, 3)
    rig.advance(POINTS_INTERVAL_MS)
    rig.disk.refuses = lambda path, operation: path.endswith(".tmp") and operation == "write"
    rig.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    assert [name for name in rig.disk.list_folder(FOLDER) if name.endswith("-delete")]
    rig.disk.refuses = None
    rig.advance(RETRY_MS)
    assert written_point(rig) == ""
    assert not [name for name in rig.disk.list_folder(FOLDER) if name.endswith("-delete")]


def test_a_cleaning_that_finds_no_room_changes_nothing_and_comes_again(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.create("t", cleanup_policy="compact", segment_bytes="700")
    fill(rig, 6)
    log = rig.broker.parts.replicas.find(*PLACE).log
    before = log.size_bytes
    rig.disk.refuses = lambda path, operation: path.endswith(".cleaned") and operation == "write"
    with caplog.at_level(logging.ERROR):
        clean(rig)
    assert "a log could not be compacted" in caplog.text
    assert log.size_bytes == before
    assert not [name for name in rig.disk.list_folder(log.folder) if name.endswith(".cleaned")]
    rig.disk.refuses = None
    clean(rig)
    assert log.size_bytes < before


def test_a_cleaning_that_meets_damage_has_found_the_log_damaged(rig: Rig) -> None:
    rig.create("t", cleanup_policy="compact", segment_bytes="700")
    fill(rig, 6)
    replica = rig.broker.parts.replicas.find(*PLACE)
    before = replica.log.size_bytes
    rig.disk.contents(f"{replica.log.folder}/{0:020d}.log")[HEADER_BYTES] ^= 1
    clean(rig)
    assert list(rig.broker.parts.replicas.damaged) == [replica]
    assert replica.log.size_bytes == before


def retain(rig: Rig) -> None:
    rig.advance(RETENTION_MS)


def write_points(rig: Rig) -> None:
    rig.advance(POINTS_INTERVAL_MS)


def make_topic(rig: Rig) -> None:
    rig.create("other")


def delete_topic(rig: Rig) -> None:
    rig.ask(DeleteTopicsRequest(topic_names=["t"]), 5)


def delete_records(rig: Rig) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    topic = DeleteRecordsTopic(name="t", partitions=[partition])
    rig.ask(DeleteRecordsRequest(topics=[topic]), 2)


@pytest.mark.parametrize("operation", ["sync folder", "fdatasync"])
@pytest.mark.parametrize("duty", [retain, write_points, make_topic, delete_topic, delete_records])
def test_a_failed_sync_ends_the_broker_whoever_meets_it(
    rig: Rig, duty: Callable[[Rig], None], operation: str
) -> None:
    """After a failed sync, the kernel can have dropped the dirty pages. It would report the next
    sync as successful, so the broker must end."""
    rig.create("t", segment_bytes="700", retention_bytes="1000", file_delete_delay_ms="0")
    fill(rig, 6)
    metadata = "/__cluster_metadata-0"
    rig.disk.refuses = lambda path, asked: asked == operation and metadata not in path
    rig.disk.refusal = errno.EIO
    with pytest.raises(AssertionError, match="the disk has failed"):
        duty(rig)
    rig.disk.refuses = None


def clean(rig: Rig) -> None:
    """Start the cleaner, and give it as many turns as it needs."""
    rig.advance(CLEANER_MS)
    for _ in range(20):
        rig.world.run_for(REST_MS_MIN)


def test_a_recovery_point_that_falls_is_written_though_another_has_risen(rig: Rig) -> None:
    """One recovery point falls and another rises, so their sum stays the same. If the checkpoint
    was not written, it would keep a point above the end of a truncated log."""
    rig.create("t", partitions=2)
    logs = [rig.broker.parts.replicas.find("t", index).log for index in (0, 1)]
    for log in logs:
        for _ in range(4):
            view = batch(b"v")
            log.append_own(view, read_header(view), 0, NOW)
        log.write_staged(NOW)
        target = log.flush_target()
        assert target is not None
        target.perform()
        log.flushed(target)
    rig.advance(POINTS_INTERVAL_MS)
    logs[0].recovery_point -= 2
    logs[1].recovery_point += 2
    rig.advance(POINTS_INTERVAL_MS)
    points = rig.disk.read_all(f"{FOLDER}/recovery-point-offset-checkpoint").decode()
    assert "t 0 2\n" in points and "t 1 6\n" in points


EXPIRATION_MS = 86_400_000
LOOK_MS = 600_000


def test_a_clock_that_is_set_ahead_forgets_no_producer_before_its_time() -> None:
    """A producer that is forgotten too early could repeat a batch, which would be appended
    again."""
    rig = Rig(
        producer_id_expiration_ms=EXPIRATION_MS,
        producer_id_expiration_check_interval_ms=LOOK_MS,
    )
    rig.create("t")
    known = rig.broker.parts.replicas.logs.logs[PLACE].producer_state.producers

    def send(sequence: int) -> None:
        stamp_ms = rig.clock.now_ms()
        sent = batch_of(
            [b"v"], timestamp_ms=stamp_ms, producer_id=7, producer_epoch=0, base_sequence=sequence
        )
        asked = rig.send(produce_request("t", sent), 9)
        rig.flusher.sync()
        assert asked.answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    send(0)
    rig.clock.set_wall_clock(rig.clock.now_ms() + 2 * EXPIRATION_MS)
    rig.advance(LOOK_MS)
    assert 7 in known
    send(1)
    # The jump of the clock does not delay the expiry after the last batch either.
    rig.advance(EXPIRATION_MS)
    assert 7 in known
    rig.advance(LOOK_MS)
    assert 7 not in known


MONTH_MS = 30 * 86_400_000


def test_a_clock_that_is_set_ahead_deletes_no_record_before_its_time(rig: Rig) -> None:
    rig.create("t", segment_bytes="700", retention_ms=str(MONTH_MS), file_delete_delay_ms="0")
    fill(rig, 6)
    log = rig.broker.parts.replicas.find(*PLACE).log
    rig.advance(RETENTION_MS)
    rig.clock.set_wall_clock(rig.clock.now_ms() + 2 * MONTH_MS)
    rig.advance(2 * RETENTION_MS)
    assert log.log_start_offset == 0
    rig.clock.set_wall_clock(rig.clock.now_ms() - 2 * MONTH_MS)
    rig.advance(2 * RETENTION_MS)
    assert log.log_start_offset == 0
    rig.advance(MONTH_MS)
    rig.advance(RETENTION_MS)
    assert log.log_start_offset == 6
