"""All logs of a broker: their identity, lock and checkpoints, and how they are created and
deleted."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from broker.storage.disk import OsDisk
from broker.storage.errors import CorruptionError, DiskError, FolderError
from broker.storage.folder import folder_name, parse_folder_name
from broker.storage.log_manager import LogManager
from broker.storage.txn_index import ENTRY_BYTES
from protocol.types import TopicPartition
from protocol.wire.records import read_header
from tests.unit.storage.kit import (
    DIRECTORY_ID,
    FOLDER,
    NOW,
    TOPIC_ID,
    TP,
    Node,
    batch,
    broker_config,
    retain,
    values_of,
)


def test_the_folder_holds_what_kafkas_would() -> None:
    node = Node()
    node.put(batch(b"a"))
    node.flush()
    node.manager.close_clean()
    assert set(node.disk.list_folder(FOLDER)) == {
        ".kafka_cleanshutdown",
        ".lock",
        ".reserve",
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "logs.access-0",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    assert set(node.names()) == {
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000001.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    read = node.disk.read_all
    assert read(f"{FOLDER}/meta.properties") == (
        b"cluster.id=AAAAAAAAAAAAAAAAAAAAAA\ndirectory.id=DRvwoktUTI6dWjwcXB9PAQ\n"
        b"node.id=1\nversion=1\n"
    )
    assert read(f"{FOLDER}/recovery-point-offset-checkpoint") == b"0\n1\nlogs.access 0 1\n"
    assert read(f"{FOLDER}/replication-offset-checkpoint") == b"0\n1\nlogs.access 0 1\n"
    assert read(f"{FOLDER}/log-start-offset-checkpoint") == b"0\n0\n"
    assert read(f"{FOLDER}/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":-1}'


def test_the_clean_marker_is_good_for_one_start() -> None:
    node = Node()
    node.put(batch(b"a"))
    assert node.restart().was_clean
    assert not node.disk.exists(f"{FOLDER}/.kafka_cleanshutdown")
    assert not node.reopen().was_clean


def test_a_second_process_is_kept_out_of_the_folder(tmp_path: Path) -> None:
    config = broker_config(log_dir=str(tmp_path / "data"))
    manager = LogManager(OsDisk(), config, DIRECTORY_ID)
    attempt = (
        "from broker.storage.disk import OsDisk\n"
        "from broker.storage.errors import FolderError\n"
        "from broker.storage.log_manager import LogManager\n"
        "from tests.unit.storage.kit import DIRECTORY_ID, broker_config\n"
        "import sys\n"
        "try:\n    LogManager(OsDisk(), broker_config(log_dir=sys.argv[1]), DIRECTORY_ID)\n"
        "except FolderError as error:\n    sys.exit(f'refused: {error.reason}')\n"
    )
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", attempt, config.log_dir]
    held = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert "refused: another broker process uses this data folder" in held.stderr
    manager.release()
    free = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert (free.returncode, free.stderr) == (0, "")


def test_creating_twice_gives_the_same_log() -> None:
    node = Node()
    node.put(batch(b"a"))
    assert node.manager.create(TP, TOPIC_ID, node.log_config, NOW) is node.log
    with pytest.raises(FolderError, match="another topic id"):
        node.manager.create(TP, uuid.uuid4(), node.log_config, NOW)


def test_a_topic_name_never_becomes_a_path() -> None:
    node = Node()
    for topic in ("", ".", "..", "a/b", "a\0b", "ü", "x" * 250):
        with pytest.raises(ValueError, match="cannot name the folder of"):
            node.manager.create(TopicPartition(topic, 0), TOPIC_ID, node.log_config, NOW)
    node.manager.create(TopicPartition("x" * 249, 0), TOPIC_ID, node.log_config, NOW)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a-0", TopicPartition("a", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("__consumer_offsets-5", TopicPartition("__consumer_offsets", 5)),
        ("a", None),
        ("-0", None),
        ("a-", None),
        ("a-01", None),
        ("a-0.2f1e-delete", None),
        ("a--1", TopicPartition("a-", 1)),
        ("meta.properties", None),
    ],
)
def test_only_a_partitions_folder_is_taken_for_one(name: str, found: TopicPartition | None) -> None:
    assert parse_folder_name(name) == found
    if found is not None:
        assert folder_name(found) == name


def test_a_deleted_partition_is_gone_at_once_and_its_files_later() -> None:
    node = Node()
    node.put(batch(b"a"))
    region = node.log.read(0, 1000, 1000).region
    assert region is not None
    dropped = node.manager.delete(TP)
    assert dropped is not None
    assert node.manager.get(TP) is None
    assert not node.disk.exists(f"{FOLDER}/{TP}")
    assert node.manager.delete(TP) is None
    dropped.perform()
    assert not [name for name in node.disk.list_folder(FOLDER) if name.endswith("-delete")]
    assert read_header(region.read()).base_offset == 0


def test_a_deletion_cut_short_is_finished_at_the_next_start() -> None:
    node = Node()
    node.manager.delete(TP)
    report = node.reopen()
    assert node.manager.get(TP) is None
    assert report.dropped is not None
    report.dropped.perform()
    assert not [name for name in node.disk.list_folder(FOLDER) if name.endswith("-delete")]


def test_a_namesake_of_a_deleted_partition_starts_empty() -> None:
    node = Node()
    for _ in range(3):
        node.put(batch(b"a"), leader_epoch=5)
    node.flush()
    node.manager.checkpoint().perform()
    node.manager.delete(TP)
    node.log = node.manager.create(TP, uuid.uuid4(), node.log_config, NOW)
    node.put(batch(b"new"))
    report = node.reopen()
    assert report.offline == {}
    assert values_of(node.log) == [b"new"]
    assert node.log.leader_epochs.entries == [(0, 0)]


def test_a_namesake_waits_for_room_to_forget_the_deleted_partition() -> None:
    """The checkpoint before the new topic must not contain the deleted log. If it cannot be
    written, creating the partition is refused. Only a failed disk ends the broker."""
    node = Node()
    node.put(batch(b"a"))
    node.flush()
    node.manager.checkpoint().perform()
    node.manager.delete(TP)
    there = node.manager.create(TopicPartition("there", 0), TOPIC_ID, node.log_config, NOW)
    wanted = [TP, there.topic_partition]
    node.sim.refuses = lambda path, operation: path.endswith(".tmp") and operation == "write"
    for refusal in (errno.ENOSPC, errno.EMFILE):
        node.sim.refusal = refusal
        made, refused = node.manager.create_all(wanted, TOPIC_ID, node.log_config, NOW)
        assert made == {there.topic_partition: there}
        assert isinstance(refused[TP], DiskError)
    node.sim.refusal = errno.EIO
    with pytest.raises(DiskError):
        node.manager.create_all(wanted, TOPIC_ID, node.log_config, NOW)
    node.sim.refuses = None
    made, refused = node.manager.create_all(wanted, TOPIC_ID, node.log_config, NOW)
    assert (set(made), refused) == (set(wanted), {})
    assert node.reopen().offline == {}


def test_an_older_checkpoint_never_overwrites_a_newer_one() -> None:
    node = Node()
    node.put(batch(b"a"))
    older = node.manager.checkpoint()
    node.flush()
    node.manager.checkpoint().perform()
    older.perform()
    data = node.disk.read_all(f"{FOLDER}/recovery-point-offset-checkpoint")
    assert data == b"0\n1\nlogs.access 0 1\n"


def test_a_checkpoint_survives_the_deletion_of_a_partition_it_names() -> None:
    node = Node()
    node.put(batch(b"a"))
    late = node.manager.checkpoint()
    node.manager.delete(TP)
    late.perform()
    assert node.reopen().offline == {}


def test_the_high_watermark_comes_back_from_its_checkpoint() -> None:
    node = Node()
    for _ in range(5):
        node.put(batch(b"a"))
    node.log.advance_high_watermark(3)
    node.restart()
    assert node.log.high_watermark == 3


def test_the_epoch_of_a_clean_stop_is_told_apart_from_that_of_a_running_process() -> None:
    node = Node()
    node.manager.marks.running(7)
    node.reopen()
    marks = node.manager.marks
    assert (marks.previous_broker_epoch, marks.clean_broker_epoch) == (7, -1)
    node.manager.close_clean(8)
    node.reopen()
    marks = node.manager.marks
    assert (marks.previous_broker_epoch, marks.clean_broker_epoch) == (8, 8)


def test_a_damaged_checkpoint_stops_the_start() -> None:
    node = Node()
    node.manager.close_clean()
    node.disk.replace(f"{FOLDER}/recovery-point-offset-checkpoint", b"0\n2\n", is_durable=True)
    manager = LogManager(node.disk, node.config, DIRECTORY_ID)
    with pytest.raises(CorruptionError, match="recovery-point"):
        manager.open_all(NOW)


def test_an_interrupted_creation_leaves_nothing() -> None:
    node = Node()
    node.disk.make_folder(f"{FOLDER}/half-0")
    node.disk.open(f"{FOLDER}/half-0/00000000000000000000.log", create=True)
    node.reopen()
    assert not node.disk.exists(f"{FOLDER}/half-0")
    node.manager.create(TopicPartition("half", 0), TOPIC_ID, node.log_config, NOW)


def test_data_without_a_topic_id_goes_offline() -> None:
    node = Node()
    node.put(batch(b"a"))
    node.disk.unlink(node.path("partition.metadata"))
    assert "this file with the topic id is missing" in node.reopen().offline[TP]
    with pytest.raises(FolderError, match="this file with the topic id is missing"):
        node.manager.create(TP, TOPIC_ID, node.log_config, NOW)
    node.manager.close_clean()
    assert not node.reopen().was_clean
    assert node.manager.delete(TP) is not None
    node.manager.create(TP, TOPIC_ID, node.log_config, NOW)


def test_one_damaged_partition_does_not_keep_the_others_down() -> None:
    node = Node()
    other = node.manager.create(TopicPartition("other", 0), TOPIC_ID, node.log_config, NOW)
    node.put(batch(b"a"))
    node.flush()
    node.manager.checkpoint().perform()
    node.sim.contents(node.segment_path())[20] ^= 1
    report = node.reopen()
    assert set(report.offline) == {TP}
    assert set(node.manager.logs) == {other.topic_partition}


def test_a_partition_that_comes_back_from_offline_starts_where_it_did() -> None:
    """The checkpoint keeps the log start of an offline partition. Otherwise its deleted first
    segments would later count as missing."""
    node = Node({"log.segment.bytes": 200}, topic={"retention.bytes": "400"})
    for number in range(8):
        node.put(batch(b"%d" % number * 50))
    node.flush()
    dropped = retain(node, NOW)
    assert dropped is not None
    start_offset = node.log.log_start_offset
    assert start_offset > 0
    path = node.path("partition.metadata")
    identity = bytes(node.sim.contents(path))
    node.sim.contents(path)[:] = b"?"
    assert TP in node.reopen().offline
    node.manager.checkpoint().perform()
    node.sim.contents(path)[:] = identity
    assert node.reopen().offline == {}
    assert node.log.log_start_offset == start_offset


def test_a_created_log_is_there_after_a_power_cut() -> None:
    for seed in range(20):
        node = Node()
        report = node.crash(random.Random(seed))
        assert report.offline == {}
        assert node.manager.get(TP) is not None
        assert node.log.topic_id == TOPIC_ID


def test_a_missing_partition_folder_is_reported_and_never_recreated() -> None:
    node = Node()
    node.put(batch(b"a", b"b"))
    node.flush()
    node.manager.checkpoint().perform()
    folder = f"{FOLDER}/{TP}"
    kept = {name: node.disk.read_all(f"{folder}/{name}") for name in node.names()}
    node.disk.remove_folder(folder)
    for _ in range(2):
        assert "its records up to offset 2 had been synced to the disk" in node.reopen().offline[TP]
        with pytest.raises(FolderError, match="is missing"):
            node.manager.create(TP, TOPIC_ID, node.log_config, NOW)
        # A new checkpoint must keep the offset that proves that the folder is missing.
        node.manager.checkpoint().perform()
    node.disk.make_folder(folder)
    for name, data in kept.items():
        node.disk.replace(f"{folder}/{name}", data, is_durable=True)
    assert node.reopen().offline == {}
    assert values_of(node.log) == [b"a", b"b"]


def test_a_topic_whose_folder_is_missing_can_be_deleted_and_made_again() -> None:
    node = Node()
    node.put(batch(b"a"))
    node.flush()
    node.manager.checkpoint().perform()
    node.disk.remove_folder(f"{FOLDER}/{TP}")
    node.reopen()
    assert node.manager.delete(TP) is not None
    node.log = node.manager.create(TP, TOPIC_ID, node.log_config, NOW)
    assert node.reopen().offline == {}
    assert values_of(node.log) == []


def test_a_folder_that_was_deleted_is_not_missed() -> None:
    for is_forgotten in (False, True):
        node = Node()
        node.put(batch(b"a"))
        node.flush()
        node.manager.checkpoint().perform()
        dropped = node.manager.delete(TP)
        assert dropped is not None
        if is_forgotten:
            node.manager.checkpoint().perform()
            dropped.perform()
        report = node.reopen()
        assert report.offline == {}
        assert (report.dropped is None) is is_forgotten


def test_an_empty_partition_that_vanished_has_lost_nothing() -> None:
    node = Node()
    node.manager.checkpoint().perform()
    node.disk.remove_folder(f"{FOLDER}/{TP}")
    assert node.reopen().offline == {}


def test_many_partitions_of_one_request_wait_for_the_device_together() -> None:
    node = Node()
    wanted = [TopicPartition("wide", number) for number in range(50)]
    synced: list[str] = []

    def note(path: str, operation: str) -> bool:
        if operation == "sync folder":
            synced.append(path)
        return False

    node.sim.refuses = note
    made, refused = node.manager.create_all(wanted, TOPIC_ID, node.log_config, NOW)
    node.sim.refuses = None
    assert (set(made), refused) == (set(wanted), {})
    # The parent folder is synced once for all partitions, and each partition's folder once.
    assert synced.count(FOLDER) == 1
    assert len(synced) == 51
    node.sim.crash(random.Random(1))
    node.reopen()
    assert set(node.manager.logs) == {TP, *wanted}


def test_what_cannot_be_made_does_not_stop_the_others() -> None:
    node = Node()
    wanted = [TopicPartition("wide", number) for number in range(5)]
    node.sim.refuses = lambda path, operation: "wide-3" in path and operation == "write"
    made, refused = node.manager.create_all(wanted, TOPIC_ID, node.log_config, NOW)
    assert set(refused) == {wanted[3]}
    assert set(made) == set(wanted) - set(refused)
    node.sim.refuses = None
    made, refused = node.manager.create_all(wanted, TOPIC_ID, node.log_config, NOW)
    assert (set(made), refused) == (set(wanted), {})
    node.sim.refuses = lambda path, operation: operation == "sync folder"
    with pytest.raises(DiskError):
        node.manager.create_all([TopicPartition("x", 0)], TOPIC_ID, node.log_config, 0)


def test_recovery_points_are_written_alone() -> None:
    node = Node()
    node.manager.checkpoint().perform()
    node.put(batch(b"a"))
    node.flush()
    before = node.sim.calls
    written: list[str] = []

    def note(path: str, operation: str) -> bool:
        if operation == "rename":
            written.append(path)
        return False

    node.sim.refuses = note
    node.manager.checkpoint_points().perform()
    node.sim.refuses = None
    assert [path.rpartition("/")[2] for path in written] == [
        "leader-epoch-checkpoint.tmp",
        "recovery-point-offset-checkpoint.tmp",
    ]
    assert node.sim.calls - before < 20
    node.sim.contents(node.segment_path())[node.log.size_bytes - 1] ^= 1
    assert TP in node.reopen().offline


def test_a_full_disk_does_not_keep_the_logs_from_opening() -> None:
    node = Node()
    node.put(batch(b"a", b"b"))
    node.flush()
    node.sim.capacity_bytes = 0
    node.reopen()
    assert values_of(node.log) == [b"a", b"b"]
    # The checkpoint could not be written, so the next start must recover the log again.
    node.reopen()
    node.sim.capacity_bytes = None
    node.manager.checkpoint().perform()
    node.restart()
    assert values_of(node.log) == [b"a", b"b"]


def test_aborted_transactions_that_do_not_fit_are_written_by_a_later_flush() -> None:
    """If the transaction index cannot be written, the aborted transactions are only in memory.
    Recovery finds them again in the batches."""
    node = Node()
    node.put(batch(b"v", producer=(9, 0, 0), is_transactional=True))
    node.log.append_marker(9, 0, False, 0, 0, NOW)
    node.log.write_staged(NOW)
    node.sim.capacity_bytes = 0
    node.flush()
    for _ in range(2):
        assert node.reopen().offline == {}
        assert node.log.aborted_transactions(0, 10) == [(9, 0)]
    node.flush()
    node.sim.capacity_bytes = None
    node.flush()
    index = node.disk.read_all(node.segment_path(suffix=".txnindex"))
    assert len(index) == ENTRY_BYTES
    node.restart()
    assert node.log.aborted_transactions(0, 10) == [(9, 0)]
    assert node.disk.read_all(node.segment_path(suffix=".txnindex")) == index


def test_a_broken_disk_does() -> None:
    node = Node()
    node.put(batch(b"a"))
    node.sim.refuses = lambda path, operation: path.endswith(".tmp") and operation == "write"
    node.sim.refusal = errno.EIO
    with pytest.raises(DiskError):
        node.reopen()


def test_two_runs_of_the_same_deletions_leave_the_same_names() -> None:
    def names() -> list[str]:
        node = Node()
        for _ in range(3):
            node.manager.delete(TP)
            node.log = node.manager.create(TP, TOPIC_ID, node.log_config, NOW)
        return node.sim.list_folder(FOLDER)

    found = names()
    assert found == names()
    assert len([name for name in found if name.endswith("-delete")]) == 3
