"""When a reassignment removes a replica from a broker, the broker deletes that replica's folder and
no other one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker.config import InForce
from broker.metadata.image import MetadataImage, TopicImage
from broker.metadata.partition_image import PartitionImage
from broker.node.serving import RETRY_MS
from broker.replicas.folder_rules import FolderRules
from broker.replicas.folders import Folders
from broker.replicas.housekeeping import POINTS_INTERVAL_MS
from broker.replicas.replica import Replica
from protocol.errors import ErrorCode
from protocol.types import Uuid
from protocol.wire.records import HEADER_BYTES
from tests.harness.wire import batch_of, fetch_request, produce_request
from tests.sim.world import SimWorld
from tests.unit.broker.cluster.kit import create_request
from tests.unit.broker.replicas.test_folders import write_and_flush
from tests.unit.broker.replicas.test_housekeeping import PLACE, fill, written_point
from tests.unit.broker.replicas.test_leadership_moves import ME, OTHER, Controller
from tests.unit.broker.rig import HeldWorker, Rig
from tests.unit.storage.kit import FOLDER, NOW, TP, Node

CLEANER_MS = 1_000
DELAY_MS = 60_000
"""`file.delete.delay.ms`."""
AWAY: dict[str, Any] = {"replicas": [OTHER], "isr": [OTHER], "leader": OTHER}
BACK: dict[str, Any] = {"replicas": [OTHER, ME], "isr": [OTHER], "leader": OTHER}
LOG = f"{FOLDER}/t-0/{0:020d}.log"


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(log_cleaner_backoff_ms=CLEANER_MS, log_cleaner_min_cleanable_ratio=0)
    yield rig


def filled(rig: Rig, delay_ms: int = DELAY_MS) -> tuple[Controller, Replica]:
    """Create a topic with three records, whose recovery point is in the checkpoint."""
    rig.create("t", file_delete_delay_ms=str(delay_ms))
    fill(rig, 3)
    rig.advance(POINTS_INTERVAL_MS)
    assert written_point(rig) == "t 0 3"
    return Controller(rig), rig.broker.parts.replicas.find(*PLACE)


def folders(rig: Rig) -> list[str]:
    """Return the folders of the partition, under their current names."""
    return [name for name in rig.disk.list_folder(FOLDER) if name.startswith("t-0")]


def gone(number: int) -> str:
    return f"t-0.{number:08d}-delete"


def produce_code(rig: Rig) -> ErrorCode:
    answer = rig.send(produce_request("t", batch_of([b"x"])), 9).answer.responses[0]
    return ErrorCode(answer.partition_responses[0].error_code)


# While the broker runs.


def test_its_folder_goes_when_its_delay_is_over(rig: Rig) -> None:
    controller, replica = filled(rig)
    controller.change(PLACE, **AWAY)
    assert folders(rig) == [gone(1)]
    assert written_point(rig) == ""
    assert not rig.broker.parts.replicas.holds(replica)
    rig.advance(DELAY_MS - 1)
    assert folders(rig) == [gone(1)]
    rig.advance(1)
    assert folders(rig) == []


def test_a_replica_that_follows_goes_as_well(rig: Rig) -> None:
    controller, _ = filled(rig)
    controller.change(PLACE, replicas=[ME, OTHER], isr=[ME, OTHER], leader=OTHER)
    assert folders(rig) == ["t-0"]
    controller.change(PLACE, replicas=[OTHER], isr=[OTHER])
    assert folders(rig) == [gone(1)]


def test_trap_9_its_clients_are_sent_to_the_leader(rig: Rig) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION would tell a client that the partition does not exist."""
    controller, _ = filled(rig)
    produced = rig.send(produce_request("t", batch_of([b"x"])), 9)
    fetched = rig.send(fetch_request("t", 3, max_wait_ms=500), 11)
    assert not produced.is_answered() and not fetched.is_answered()
    controller.change(PLACE, **AWAY)
    rig.turn()
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert produced.answer.responses[0].partition_responses[0].error_code == moved
    assert fetched.answer.responses[0].partitions[0].error_code == moved
    assert produce_code(rig) is moved


def test_other_partitions_of_its_topic_stay(rig: Rig) -> None:
    rig.create("t", 2)
    controller = Controller(rig)
    controller.change(PLACE, **AWAY)
    assert folders(rig) == [gone(1)]
    assert "t-1" in rig.disk.list_folder(FOLDER)
    assert rig.broker.parts.replicas.find("t", 1).is_led


def test_it_comes_back_empty_before_its_folder_is_unlinked(rig: Rig) -> None:
    controller, replica = filled(rig)
    controller.change(PLACE, **AWAY)
    controller.change(PLACE, **BACK)
    again = rig.broker.parts.replicas.find_held(*PLACE)
    assert again.log is not replica.log
    assert (again.log.log_end_offset, again.log.leader_epochs.entries) == (0, [])
    assert folders(rig) == ["t-0", gone(1)]
    # The replica can be removed again before its first folder is deleted.
    controller.change(PLACE, **AWAY)
    assert folders(rig) == [gone(1), gone(2)]
    controller.change(PLACE, **BACK)
    rig.advance(DELAY_MS)
    assert folders(rig) == ["t-0"]
    rig.power_cut(random.Random(0))
    assert rig.broker.parts.replicas.find_held(*PLACE).log.log_end_offset == 0


def test_a_disk_that_has_no_room_for_it_when_it_comes_back_is_named(rig: Rig) -> None:
    controller, _ = filled(rig)
    controller.change(PLACE, **AWAY)
    rig.disk.refuses = lambda path, operation: operation == "write" and "/t-0/" in path
    controller.change(PLACE, **BACK)
    assert produce_code(rig) is ErrorCode.KAFKA_STORAGE_ERROR
    rig.disk.refuses = None
    rig.advance(RETRY_MS)
    assert folders(rig) == ["t-0", gone(1)]


def test_no_work_under_way_comes_into_the_folder_of_its_successor(rig: Rig) -> None:
    """A compaction and a trim run for the removed log. Their results must not reach its
    successor."""
    worker = HeldWorker()
    rig = Rig(worker=worker, log_cleaner_backoff_ms=CLEANER_MS, log_cleaner_min_cleanable_ratio=0)
    rig.send(create_request("t", cleanup_policy="compact", segment_bytes="700"), 7)
    rig.flusher.sync()
    worker.work()
    fill(rig, 6)
    log = rig.broker.parts.replicas.find(*PLACE).log
    rig.advance(CLEANER_MS)
    assert log.cleaning is not None
    durable: list[str] = []
    log.advance_log_start(4)
    rig.broker.housekeeping.trim(log, 4, lambda: durable.append("trimmed"))
    controller = Controller(rig)
    controller.change(PLACE, **AWAY)
    worker.work()
    controller.change(PLACE, **BACK)
    worker.work()
    rig.advance(CLEANER_MS)
    worker.work()
    again = rig.broker.parts.replicas.find_held(*PLACE).log
    assert again is not log and again.log_start_offset == 0
    rig.broker.parts.checkpoints.write(lambda: None, lambda error: None)
    worker.work()
    rig.power_cut(random.Random(0))
    worker.work()
    again = rig.broker.parts.replicas.find_held(*PLACE).log
    assert (again.log_start_offset, again.log_end_offset) == (0, 0)
    assert not rig.broker.parts.replicas.logs.offline
    names = rig.disk.list_folder(again.folder)
    assert not [name for name in names if name.endswith((".cleaned", ".deleted"))]
    assert durable == [], "an offset of the log that is gone was reported for its successor"


def test_what_a_full_disk_still_names_is_kept_until_it_can_be_forgotten(rig: Rig) -> None:
    controller, _ = filled(rig, delay_ms=0)
    rig.disk.refuses = lambda path, operation: path.endswith(".tmp") and operation == "write"
    controller.change(PLACE, **AWAY)
    assert folders(rig) == [gone(1)]
    rig.disk.refuses = None
    rig.advance(RETRY_MS)
    assert folders(rig) == []
    assert written_point(rig) == ""


def test_a_folder_that_cannot_be_renamed_goes_at_the_next_start(rig: Rig) -> None:
    controller, replica = filled(rig, delay_ms=0)
    rig.disk.refuses = lambda path, operation: operation == "rename" and path.endswith("/t-0")
    controller.change(PLACE, **AWAY)
    assert folders(rig) == ["t-0"]
    assert not rig.broker.parts.replicas.holds(replica)
    assert produce_code(rig) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.disk.refuses = None
    rig.power_cut(random.Random(0))
    assert folders(rig) == []


def test_a_folder_that_cannot_be_renamed_is_not_taken_back(rig: Rig) -> None:
    """The log of that folder is closed and would never be fsynced again. So the connection that
    fetches for it would wait for ever."""
    controller, replica = filled(rig)
    rig.disk.refuses = lambda path, operation: operation == "rename" and path.endswith("/t-0")
    controller.change(PLACE, **AWAY)
    controller.change(PLACE, **BACK)
    replicas = rig.broker.parts.replicas
    assert folders(rig) == ["t-0"]
    assert not list(replicas)
    assert list(replicas.unmade) == [PLACE]
    assert produce_code(rig) is ErrorCode.KAFKA_STORAGE_ERROR
    rig.disk.refuses = None
    rig.advance(RETRY_MS)
    assert not replicas.unmade
    again = replicas.find_held(*PLACE)
    assert again.log is not replica.log
    assert again.log.log_end_offset == 0
    assert folders(rig) == ["t-0", gone(1)]
    rig.advance(DELAY_MS)
    assert folders(rig) == ["t-0"]


def test_a_folder_that_cannot_be_renamed_goes_with_the_next_change(rig: Rig) -> None:
    controller, _ = filled(rig, delay_ms=0)
    rig.disk.refuses = lambda path, operation: operation == "rename" and path.endswith("/t-0")
    controller.change(PLACE, **AWAY)
    rig.disk.refuses = None
    rig.create("u")
    assert folders(rig) == []
    assert written_point(rig) == ""


def test_a_replica_whose_folder_is_made_late_goes_as_well() -> None:
    """The replica is removed during the second attempt to create its folder."""
    worker = HeldWorker()
    rig = Rig(worker=worker)
    rig.disk.refuses = lambda path, operation: operation == "write" and "/t-0/" in path
    rig.send(create_request("t"), 7)
    rig.flusher.sync()
    worker.work()
    rig.disk.refuses = None
    replicas = rig.broker.parts.replicas
    assert list(replicas.unmade) == [PLACE]
    replicas.retry(lambda: None)
    Controller(rig).change(PLACE, **AWAY)
    worker.work()
    assert not replicas.unmade
    assert not list(replicas)
    assert PLACE not in replicas.logs.logs
    assert folders(rig) == [gone(1)]


def test_a_damaged_log_is_put_aside_when_its_replica_is_taken_away(rig: Rig) -> None:
    filled(rig)
    file = rig.disk.open(LOG)
    file.write([b"damage"], HEADER_BYTES)
    file.datasync()
    rig.power_cut(random.Random(0))
    logs = rig.broker.parts.replicas.logs
    assert PLACE in logs.offline
    assert produce_code(rig) is ErrorCode.KAFKA_STORAGE_ERROR
    Controller(rig).change(PLACE, **AWAY)
    assert folders(rig) == ["t-0.00000001-damaged"]
    assert not logs.offline
    assert produce_code(rig) is ErrorCode.NOT_LEADER_OR_FOLLOWER


# At a start.


def taken_away_while_down() -> Rig:
    """The process dies after the record is committed and before it is applied to the folders."""
    worker = HeldWorker()
    rig = Rig(worker=worker)
    rig.send(create_request("t"), 7)
    rig.flusher.sync()
    worker.work()
    fill(rig, 3)
    rig.broker.parts.checkpoints.write(lambda: None, lambda error: None)
    worker.work()
    Controller(rig).change(PLACE, **AWAY)
    assert worker.held
    worker.held.clear()
    assert folders(rig) == ["t-0"]
    return rig


def test_a_start_removes_what_was_taken_away_meanwhile() -> None:
    rig = taken_away_while_down()
    rig.power_cut(random.Random(0))
    assert folders(rig) == [gone(1)]
    assert written_point(rig) == ""
    assert not rig.broker.parts.replicas.logs.offline
    assert produce_code(rig) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_start_unlinks_what_the_process_before_it_renamed(rig: Rig) -> None:
    controller, _ = filled(rig)
    controller.change(PLACE, **AWAY)
    assert folders(rig) == [gone(1)]
    rig.power_cut(random.Random(0))
    assert folders(rig) == []
    assert not rig.broker.parts.replicas.logs.offline


class Start:
    """The folders of a starting broker, with one log of an earlier process on its disk."""

    def __init__(self, broker_epoch: int = 5) -> None:
        self.node = Node()
        write_and_flush(self.node)
        clock = SimWorld(1, NOW, 0).clock
        settings = InForce(self.node.config)
        self.folders = Folders(
            settings, clock, self.node.manager, HeldWorker(), broker_epoch=broker_epoch
        )

    def finish(self, topic_id: Uuid, end_offset: int, replicas: tuple[int, ...] = (OTHER,)) -> None:
        """Complete the start with an image that has the topic under this id, with these
        replicas."""
        partition = PartitionImage(replicas, replicas, replicas[0], 0, 0)
        topic = TopicImage(TP.topic, topic_id, (partition,) * (TP.partition + 1))
        image = MetadataImage(end_offset=end_offset, topics={TP.topic: topic})
        for files in self.folders.finish_removals(image, set()):
            files.perform()

    def names(self) -> list[str]:
        names = self.node.disk.list_folder(FOLDER)
        return [name for name in names if name.startswith(str(TP))]


def a_folder_whose_topic_is_not_known() -> None:
    """The folder has an unknown topic id. A topic of the same name on other brokers does not prove
    that the folder is useless."""
    start = Start()
    start.finish(Uuid(int=start.node.log.topic_id.int + 1), end_offset=6)
    assert start.names() == [f"{TP}.00000001-stray"], "the folder of an unknown topic is gone"


def test_guard_55_a_folder_of_an_unknown_topic_is_put_aside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_folder_whose_topic_is_not_known()
    monkeypatch.setattr(FolderRules, "_is_log_of", lambda self, topic, log: log is not None)
    with pytest.raises(AssertionError, match="unknown topic is gone"):
        a_folder_whose_topic_is_not_known()


def test_trap_11_a_start_deletes_only_what_is_known_and_taken_away() -> None:
    """KAFKA-13127 had this check inverted: it deleted the folders that were in use."""
    mine = Start()
    mine.finish(mine.node.log.topic_id, end_offset=6, replicas=(OTHER, ME))
    assert mine.names() == [str(TP)]
    early = Start()
    early.finish(early.node.log.topic_id, end_offset=5)
    assert early.names() == [str(TP)]
    others = Start()
    others.finish(others.node.log.topic_id, end_offset=6)
    assert others.names() == []
