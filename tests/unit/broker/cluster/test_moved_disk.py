"""A broker finds on its disk that it was moved, and remembers it until it has caught up."""

from __future__ import annotations

from collections.abc import Sequence

from broker.cluster import moved_disk, quorum_state
from broker.cluster.metadata_log import MetadataLog
from broker.cluster.moves import MovedBroker, MovedBrokers
from broker.config import BrokerConfig
from broker.metadata.records import (
    BrokerEndpoint,
    MetadataRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    encode_record,
)
from broker.quorum.voters import ReplicaKey
from protocol.types import Uuid
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch, patch
from tests.sim.disk import SimDisk
from tests.unit.broker.cluster.test_quorum_state import opened
from tests.unit.storage.kit import DIRECTORY_ID, NOW, broker_config

ME, TWO, THREE = (ReplicaKey(number, DIRECTORY_ID) for number in (1, 2, 3))
OTHER_DISK = Uuid(int=99)
UNKNOWN_RECORD = b"\x01\x63\x00"


def configured(own: str = "a", two: str = "b", three: str = "c") -> BrokerConfig:
    """Return the configuration of broker 1, with the hosts of all three."""
    listener = {"host": own, "port": 9, "advertised_host": own, "advertised_port": 9}
    voters = {"1": own, "2": two, "3": three}
    return broker_config(
        node_id=1,
        listeners={"BROKER": listener},
        voters={node_id: {"host": host, "port": 9} for node_id, host in voters.items()},
    )


def registration(node_id: int, host: str, directory_id: Uuid = DIRECTORY_ID) -> MetadataRecord:
    return RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=Uuid(int=node_id),
        end_points=[BrokerEndpoint(name="BROKER", host=host, port=9, security_protocol=0)],
        log_dirs=[directory_id],
    )


def write(log: MetadataLog, *values: bytes) -> None:
    batch = build_batch([NewRecord(None, value, NOW) for value in values])
    patch(batch, log.log.log_end_offset, 1)
    log.append([bytes(batch)])


def killed(disk: SimDisk) -> SimDisk:
    """Return the disk after a kill of its process, which loses nothing that was written."""
    disk.locked.clear()
    return disk


def disk_with(*records: MetadataRecord) -> SimDisk:
    """Return the disk of voter 1, with records that need not be committed."""
    disk = SimDisk()
    log = opened(disk)
    quorum_state.keep(disk, log, (ME, TWO, THREE))
    write(log, *(encode_record(one) for one in records))
    return killed(disk)


def start(disk: SimDisk, config: BrokerConfig) -> tuple[MetadataLog, MovedBrokers]:
    log = opened(killed(disk))
    state = quorum_state.recover(disk, log)
    return log, moved_disk.look(disk, log, state, ME, config)


def own_move(disk: SimDisk, config: BrokerConfig) -> MovedBroker | None:
    return start(disk, config)[1].own


AT_HOME: Sequence[MetadataRecord] = [
    registration(1, "a"),
    registration(2, "b"),
    registration(3, "c"),
]


def test_the_last_registration_counts() -> None:
    disk = disk_with(*AT_HOME)
    assert own_move(disk, configured()) is None
    assert own_move(disk, configured("x")) == MovedBroker(1, "a:9", "x:9")
    moved_before = disk_with(registration(1, "x"), *AT_HOME, NoOpRecord())
    assert own_move(moved_before, configured()) is None


def test_a_broker_that_left_the_cluster_has_no_address() -> None:
    left = UnregisterBrokerRecord(broker_id=2, broker_epoch=0)
    disk = disk_with(registration(1, "a"), registration(2, "b"), left)
    assert own_move(disk, configured("x")) is None, "no other voter is where it was"


def test_a_registration_with_another_disk_says_nothing_about_this_one() -> None:
    others = disk_with(registration(1, "a", OTHER_DISK), *AT_HOME[1:])
    assert own_move(others, configured("x")) is None


def test_a_record_of_a_later_version_is_skipped() -> None:
    disk = disk_with(*AT_HOME)
    log = opened(killed(disk))
    write(log, UNKNOWN_RECORD)
    assert own_move(disk, configured("x")) == MovedBroker(1, "a:9", "x:9")


def test_the_move_is_remembered_when_the_log_shows_it_no_more() -> None:
    disk = disk_with(*AT_HOME)
    assert own_move(disk, configured("x")) is not None
    log = opened(killed(disk))
    write(log, encode_record(registration(1, "x")))
    log, moves = start(disk, configured("x"))
    assert moves.own == MovedBroker(1, "a:9", "x:9")
    moved_disk.forget(disk, log)
    assert own_move(disk, configured("x")) is None


def test_a_broker_that_returns_to_its_old_address_is_believed() -> None:
    disk = disk_with(*AT_HOME)
    assert own_move(disk, configured("x")) is not None
    assert own_move(disk, configured()) is None
    assert moved_disk.MARK not in disk.list_folder(opened(killed(disk)).log.folder)


def test_an_empty_disk_has_not_moved() -> None:
    disk = SimDisk()
    log = opened(disk)
    assert moved_disk.look(disk, log, None, ME, configured("x")) == MovedBrokers()
