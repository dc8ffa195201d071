"""A single voter: it is elected, decides, and survives a power cut and a full disk."""

import errno
import random
from dataclasses import replace
from typing import Any

import pytest

from broker.cluster import quorum_state
from broker.cluster.controller_driver import ControllerDriver
from broker.cluster.loader import Loader
from broker.cluster.metadata import Metadata
from broker.cluster.metadata_log import RETRY_MS, DiskWorkers, MetadataLog
from broker.cluster.quorum_driver import QuorumDriver
from broker.cluster.snapshotter import SnapshotLimits, Snapshotter
from broker.config import LogConfig
from broker.controller.active import OrderLimits
from broker.controller.controller import Controller
from broker.controller.features import SAFE_DOWNGRADE, UPGRADE
from broker.controller.outcome import AllocateProducerIds
from broker.metadata.features import METADATA_LEVEL, METADATA_VERSION, OLDEST_LEVEL
from broker.metadata.image import METADATA_PARTITION, METADATA_TOPIC_ID, MetadataDelta
from broker.metadata.records import (
    TOPIC_RESOURCE,
    ConfigRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_record,
)
from broker.metadata.snapshot import records_of
from broker.quorum.events import FetchAnswer
from broker.quorum.quorum import Quorum
from broker.quorum.ready import BatchesToRead, Reply, Send
from broker.quorum.snapshot import SnapshotId, build_snapshot, file_name
from broker.quorum.voters import ReplicaKey, VoterSet
from broker.settings import LONG_MAX
from broker.storage.log import Log
from broker.storage.log_manager import LogManager
from broker.storage.segments import WARM_SEGMENTS_MAX
from protocol.errors import ApiError, ErrorCode
from protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.types import Uuid
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch
from tests.sim.disk import SimDisk
from tests.sim.world import SimWorld
from tests.unit.broker.cluster.kit import registration
from tests.unit.broker.security.acls import NotedDenials
from tests.unit.storage.kit import DIRECTORY_ID, NOW, broker_config

LOG_CONFIG = LogConfig(segment_bytes=1_000, segment_ms=LONG_MAX)


class Quiet:
    """A publisher that has nothing to apply."""

    def apply(self, delta: Any, image: Any, done: Any) -> None:
        done()

    def published(self, delta: Any) -> None:
        pass


class NoPeers:
    """A messenger without peers, because a single voter sends and receives no requests."""

    def send(self, send: Send) -> None:
        raise AssertionError(f"a voter alone asks node {send.node_id}")

    def reply(self, reply: Reply) -> None:
        raise AssertionError("no peer asks a single voter")


def started(
    disk: SimDisk, world: SimWorld, limits: SnapshotLimits | None = None
) -> tuple[Metadata, int]:
    """Start the metadata of one node on that disk. Return the metadata and the node's broker
    epoch."""
    config = broker_config()
    logs = LogManager(disk, config, DIRECTORY_ID)
    logs.open_all(NOW)
    log = logs.create(METADATA_PARTITION, METADATA_TOPIC_ID, LOG_CONFIG, NOW)
    own = MetadataLog(disk, logs, log, world, lambda *refusal: None)
    me = ReplicaKey(config.node_id, logs.directory_id)
    quorum_state.keep(disk, own, (me,))
    state = quorum_state.recover(disk, own)
    assert state is not None
    quorum = Quorum(
        me,
        config.cluster_id,
        election=state.election,
        log=state.log,
        voters=state.voters,
        chance=random.Random(1),
        now_ms=world.clock.monotonic_ms(),
    )
    driver = QuorumDriver(quorum, own, world, NoPeers())
    controller = ControllerDriver(
        Controller(config, world.chance, NotedDenials()), OrderLimits(100, 50), driver, world
    )
    snapshotter = Snapshotter(own, driver, world.clock, limits)
    metadata = Metadata(own, driver, Loader(own), controller, snapshotter)
    metadata.start(state.snapshot)
    epochs: list[int] = []
    order = registration(1, incarnation=5)
    metadata.submit(order, lambda one: epochs.append(one.broker_epoch), lambda error: None)
    metadata.serve(Quiet(), DiskWorkers(world.jobs("metadata"), world.jobs("files")))
    return metadata, epochs[0]


def test_a_voter_alone_leads_a_new_epoch_in_each_life() -> None:
    disk = SimDisk()
    for life in range(1, 4):
        world = SimWorld(life, NOW, 1_000)
        metadata, broker_epoch = started(disk, world)
        # A log without votes counts as epoch 1, so the first life leads epoch 2.
        assert metadata.quorum.epoch == life + 1
        # A broker epoch is the offset of its registration. Control batches take offsets as well.
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
    assert replies == [range(1_000), range(1_000, 2_000), range(2_000, 3_000)]
    disk.refuses = lambda path, operation: operation == "write"
    metadata.submit(order, replies.append, refusals.append)
    assert [error.code for error in refusals] == [ErrorCode.KAFKA_STORAGE_ERROR]
    disk.refuses = None
    metadata.submit(order, replies.append, refusals.append)
    world.settle()
    assert replies[3:] == [range(3_000, 4_000)]
    assert metadata.is_quiet


def test_a_snapshot_takes_the_place_of_the_image_in_one_step() -> None:
    """Objects that the snapshot lacks are removed, and changed objects are updated. The log
    continues behind the snapshot."""
    world = SimWorld(1, NOW, 1_000)
    metadata, _ = started(SimDisk(), world)
    loader = metadata.loader
    kept, gone, again = (Uuid(int=100 + number) for number in range(3))
    there = MetadataDelta(loader.image).replay_all(
        [
            TopicRecord(name=name, topic_id=one)
            for name, one in zip("kga", (kept, gone, again), strict=True)
        ]
    )
    loader.image = there.image(loader.image.end_offset)
    wanted = MetadataDelta(loader.image).replay_all(
        [
            RemoveTopicRecord(topic_id=gone),
            RemoveTopicRecord(topic_id=again),
            TopicRecord(name="a", topic_id=Uuid(int=200)),
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name="k", name="x", value="1"),
        ]
    )
    end_offset = loader.image.end_offset + 50
    image = wanted.image(end_offset)
    batch = build_batch([NewRecord(None, encode_record(one), NOW) for one in records_of(image)])
    content = build_snapshot(SnapshotId(end_offset, 2), VoterSet(), [batch])
    seen: list[MetadataDelta] = []
    held: list[Any] = []

    class Watching(Quiet):
        def apply(self, delta: Any, image: Any, done: Any) -> None:
            held.append(done)

        def published(self, delta: Any) -> None:
            seen.append(delta)

    loader.serve(Watching())
    loader.installed(content, end_offset)
    assert loader.image.end_offset < end_offset
    held.pop()()
    assert loader.image == image
    assert loader.is_idle
    (delta,) = seen
    assert {one.topic_id for one in delta.removed} == {gone, again}
    assert delta.touched == {"a", "k"}
    assert not delta.changes_nodes


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


def give(metadata: Metadata, world: SimWorld, broker_epoch: int, count: int) -> None:
    """Allocate this number of producer id blocks, one after the other."""
    for _ in range(count):
        metadata.submit(AllocateProducerIds(1, broker_epoch), lambda block: None, print)
        world.settle()


def ends(metadata: Metadata) -> list[int]:
    return [one.end_offset for one in metadata.log.snapshots.ids()]


class Trimmed:
    """A log that records which segments could be deleted, and deletes none."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def trim(self, log: Log, start_offset: int) -> None:
        self.offsets.append(start_offset)


def test_a_snapshot_is_taken_when_the_log_has_grown_by_so_many_records() -> None:
    disk, world = SimDisk(), SimWorld(1, NOW, 1_000)
    metadata, broker_epoch = started(disk, world, SnapshotLimits(records=10))
    trimmed = Trimmed()
    metadata.snapshotter.trim_with(trimmed)
    give(metadata, world, broker_epoch, 9)
    first = ends(metadata)[-1]
    # Two snapshots are kept, so the one at offset 0, with which the quorum started, still exists.
    assert ends(metadata) == [0, first]
    give(metadata, world, broker_epoch, 30)
    older, newest = ends(metadata)
    assert (older, newest) == (first + 20, first + 30)
    assert trimmed.offsets == [0, first, first + 10, first + 20]
    log = metadata.log.log
    assert log.log_start_offset == older
    assert metadata.quorum.quorum.replica.log.start_offset == older
    assert metadata.image.end_offset - newest < 10
    # A restart loads the newest snapshot, and its image equals the one before the crash.
    before = metadata.image
    disk.crash(random.Random(1))
    again, _ = started(disk, SimWorld(2, NOW, 1_000))
    assert again.image.next_producer_id == before.next_producer_id == 39_000
    assert again.image.features == before.features


def test_a_snapshot_is_taken_when_the_log_has_grown_by_so_many_bytes() -> None:
    world = SimWorld(1, NOW, 1_000)
    metadata, broker_epoch = started(SimDisk(), world, SnapshotLimits(size_bytes=2_000))
    give(metadata, world, broker_epoch, 60)
    older, newest = ends(metadata)
    assert 0 < older < newest
    sizes = metadata.log.log.size_bytes
    assert sizes / 61 * (newest - older) < 2_500


def level_order(level: int, kind: int) -> UpdateFeaturesRequest:
    key = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=kind)
    return UpdateFeaturesRequest(feature_updates=[key])


def test_a_snapshot_is_taken_when_the_level_falls() -> None:
    """The log below the snapshot can have records that the earlier version cannot read."""
    disk, world = SimDisk(), SimWorld(1, NOW, 1_000)
    metadata, broker_epoch = started(disk, world)
    give(metadata, world, broker_epoch, 3)
    assert ends(metadata) == [0]
    metadata.submit(level_order(OLDEST_LEVEL, SAFE_DOWNGRADE), lambda _: None, fail)
    world.settle()
    fell_at = metadata.image.end_offset
    assert ends(metadata) == [0, fell_at]
    metadata.submit(level_order(METADATA_LEVEL, UPGRADE), lambda _: None, fail)
    world.settle()
    assert metadata.image.features == {METADATA_VERSION: METADATA_LEVEL}
    assert ends(metadata) == [0, fell_at], "a rise needs no snapshot"


def test_a_snapshot_that_a_full_disk_refuses_is_tried_again_later() -> None:
    disk, world = SimDisk(), SimWorld(1, NOW, 1_000)
    metadata, broker_epoch = started(disk, world, SnapshotLimits(records=5))
    tried: list[str] = []

    def refuses(path: str, operation: str) -> bool:
        is_snapshot = operation == "write" and ".checkpoint" in path
        if is_snapshot:
            tried.append(path)
        return is_snapshot

    disk.refuses = refuses
    give(metadata, world, broker_epoch, 20)
    assert ends(metadata) == [0]
    assert len(tried) == 1
    disk.refuses = None
    world.run_for(1_000)
    give(metadata, world, broker_epoch, 1)
    assert ends(metadata) == [0, metadata.image.end_offset]


def test_a_damaged_snapshot_is_passed_over_for_the_one_before_it() -> None:
    disk, world = SimDisk(), SimWorld(1, NOW, 1_000)
    metadata, broker_epoch = started(disk, world, SnapshotLimits(records=10))
    give(metadata, world, broker_epoch, 40)
    newest = f"{metadata.log.log.folder}/{file_name(metadata.log.snapshots.ids()[-1])}"
    whole = disk.read_all(newest)
    disk.replace(newest, whole[: len(whole) // 2], is_durable=True)
    disk.crash(random.Random(1))
    again, _ = started(disk, SimWorld(2, NOW, 1_000))
    assert again.image.next_producer_id == 40_000


OF_A_SEGMENT = ".index", ".log"


def started_short(*operations: str, ends: tuple[str, ...] = ("",)) -> tuple[Any, ...]:
    """Start metadata whose log rolls a segment for every order.

    It is the second start, because a new log has no index files. While `disk.refuses` is set, the
    disk fails these operations with EMFILE on files whose names have these endings.
    """
    disk, world = SimDisk(), SimWorld(1, NOW, 1_000)
    started(disk, world)
    disk.crash(random.Random(1))
    metadata, broker_epoch = started(disk, world)
    metadata.log.log.use(replace(LOG_CONFIG, segment_bytes=120))
    disk.refusal = errno.EMFILE
    disk.refuses = lambda path, operation: operation in operations and path.endswith(ends)
    return disk, world, metadata, AllocateProducerIds(1, broker_epoch)


@pytest.mark.parametrize(
    ("operation", "ends"), [("sync folder", ("",)), ("open", (".timeindex",))], ids=str
)
def test_orders_wait_until_there_is_a_descriptor_to_sync_them_by(
    operation: str, ends: tuple[str, ...]
) -> None:
    disk, world, metadata, order = started_short(operation, ends=ends)
    replies: list[range] = []
    for _ in range(3):
        metadata.submit(order, replies.append, fail)
    world.timeline.run_for(3 * RETRY_MS)
    assert replies == []
    assert not metadata.is_quiet
    disk.refuses = None
    world.timeline.run_for(RETRY_MS)
    assert replies == [range(1_000), range(1_000, 2_000), range(2_000, 3_000)]
    assert metadata.is_quiet


def test_what_cannot_be_read_for_want_of_a_descriptor_is_replayed_later() -> None:
    disk, world, metadata, order = started_short("open", ends=OF_A_SEGMENT)
    disk.refuses, refuses = None, disk.refuses
    for _ in range(WARM_SEGMENTS_MAX + 3):
        metadata.submit(order, lambda ids: None, fail)
        world.settle()
    log = metadata.log
    disk.refuses = refuses
    answer = FetchAnswer(ErrorCode.NONE, 1, 2)
    read = BatchesToRead(0, log.log.log_end_offset, 1 << 20)
    assert log.filled(answer, read).batches == []
    loader = Loader(log)
    loader.serve(Quiet())
    loader.committed(log.log.log_end_offset)
    world.timeline.run_for(3 * RETRY_MS)
    was_idle = [loader.is_idle]
    disk.refuses = None
    world.timeline.run_for(RETRY_MS)
    assert [*was_idle, loader.is_idle] == [False, True]
    assert loader.image.next_producer_id == metadata.image.next_producer_id


def test_a_cut_waits_until_there_is_a_descriptor_to_find_its_place_by() -> None:
    disk, world, metadata, order = started_short("open", ends=OF_A_SEGMENT)
    disk.refuses, refuses = None, disk.refuses
    metadata.log.log.use(replace(LOG_CONFIG, segment_bytes=400))
    for _ in range(20):
        metadata.submit(order, lambda ids: None, fail)
        world.settle()
    log = metadata.log
    disk.refuses = refuses
    done: list[bool] = []
    offset = log.log.segments.base_of(2) - 1
    log.truncate_to(offset, lambda: done.append(True))
    world.timeline.run_for(3 * RETRY_MS)
    assert not done and log.is_truncating
    disk.refuses = None
    world.timeline.run_for(RETRY_MS)
    assert done and log.log.log_end_offset == offset


def fail(error: ApiError) -> None:
    raise AssertionError(error)
