"""A voter alone: elected, deciding, surviving a power cut and a full disk, by the quorum's core."""

import random
from typing import Any

from broker.cluster.controller_driver import ControllerDriver
from broker.cluster.loader import Loader
from broker.cluster.metadata import Metadata
from broker.cluster.metadata_log import (
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    Hands,
    MetadataLog,
    vote_path,
)
from broker.cluster.quorum_driver import NoMessenger, QuorumDriver
from broker.config import LogConfig
from broker.controller.active import Limits
from broker.controller.controller import Controller
from broker.controller.outcome import AllocateProducerIds, RegisterBroker
from broker.metadata.features import METADATA_LEVEL, METADATA_VERSION
from broker.quorum import vote_file
from broker.quorum.log_view import LogView
from broker.quorum.quorum import Quorum
from broker.quorum.snapshot import BOOTSTRAP
from broker.quorum.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from broker.storage.log_manager import LogManager
from protocol.errors import ApiError, ErrorCode
from protocol.types import Uuid
from tests.sim.disk import SimDisk
from tests.sim.world import SimWorld
from tests.unit.storage.kit import DIRECTORY_ID, NOW, broker_config


class Quiet:
    """A publisher with nothing to bring into service."""

    def apply(self, delta: Any, image: Any, done: Any) -> None:
        done()

    def published(self, delta: Any) -> None:
        pass


def started(disk: SimDisk, world: SimWorld) -> tuple[Metadata, int]:
    """The metadata of one node on that disk, and the node's broker epoch."""
    config = broker_config()
    logs = LogManager(disk, config, DIRECTORY_ID)
    logs.open_all(NOW)
    log = logs.create(METADATA_PARTITION, METADATA_TOPIC_ID, LogConfig(), NOW)
    own = MetadataLog(disk, logs, log, world, lambda *refusal: None)
    path = vote_path(log.folder)
    election = vote_file.NEVER_VOTED
    if disk.exists(path):
        election = vote_file.decode(disk.read_all(path), path)
    me = ReplicaKey(config.node_id, logs.directory_id)
    view = LogView(list(log.leader_epochs.entries), log.log_end_offset, snapshot_id=BOOTSTRAP)
    quorum = Quorum(
        me,
        config.cluster_id,
        election=election,
        log=view,
        voters=VoterHistory(VoterSet([Voter(me)])),
        chance=random.Random(1),
        now_ms=world.clock.monotonic_ms(),
    )
    driver = QuorumDriver(quorum, own, world, NoMessenger())
    controller = ControllerDriver(Controller(config, world.chance), Limits(100, 50), driver, world)
    metadata = Metadata(own, driver, Loader(own, world.soon), controller)
    metadata.start()
    epochs: list[int] = []
    metadata.submit(RegisterBroker(1, Uuid(int=5), {}), epochs.append, lambda error: None)
    metadata.serve(Quiet(), Hands(world.jobs("metadata"), world.jobs("files")))
    return metadata, epochs[0]


def test_a_voter_alone_leads_a_new_epoch_in_each_life() -> None:
    disk = SimDisk()
    for life in range(1, 4):
        world = SimWorld(life, NOW, 1_000)
        metadata, broker_epoch = started(disk, world)
        assert metadata.quorum.quorum.replica.epoch == life
        # Broker epochs are offsets of the log, control batches included.
        assert metadata.image.brokers[1].broker_epoch == broker_epoch
        assert metadata.image.end_offset == metadata.log.log.log_end_offset == broker_epoch + 1
        assert metadata.image.features == {METADATA_VERSION: METADATA_LEVEL}
        disk.crash(random.Random(life))


def test_orders_are_answered_once_they_are_durable_and_one_that_is_not_written_is_undone() -> None:
    disk, world = SimDisk(), SimWorld(1, NOW, 1_000)
    metadata, broker_epoch = started(disk, world)
    order = AllocateProducerIds(1, broker_epoch)
    replies: list[range] = []
    refusals: list[ApiError] = []
    for _ in range(3):
        metadata.submit(order, replies.append, refusals.append)
    assert replies == []
    world.settle()
    assert replies == [range(0, 1_000), range(1_000, 2_000), range(2_000, 3_000)]
    disk.refuses = lambda path, operation: operation == "write"
    metadata.submit(order, replies.append, refusals.append)
    assert [error.code for error in refusals] == [ErrorCode.KAFKA_STORAGE_ERROR]
    disk.refuses = None
    metadata.submit(order, replies.append, refusals.append)
    world.settle()
    assert replies[3:] == [range(3_000, 4_000)]
    assert metadata.is_quiet


def test_whoever_waits_too_long_is_told_and_the_decision_stands() -> None:
    world = SimWorld(1, NOW, 1_000)
    metadata, broker_epoch = started(SimDisk(), world)
    held: list[Any] = []

    class Held(Quiet):
        def apply(self, delta: Any, image: Any, done: Any) -> None:
            held.append(done)

    metadata.loader.serve(Held())
    replies: list[range] = []
    refusals: list[ApiError] = []
    metadata.submit(AllocateProducerIds(1, broker_epoch), replies.append, refusals.append)
    world.run_for(31_000)
    assert [error.code for error in refusals] == [ErrorCode.REQUEST_TIMED_OUT]
    held.pop()()
    assert replies == []
    assert metadata.image.next_producer_id == 1_000
