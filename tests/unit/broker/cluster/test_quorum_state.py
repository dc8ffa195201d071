"""The quorum's files on disk: they are used if they are complete, and refused otherwise."""

import random
from collections.abc import Callable

import pytest

from broker.cluster import quorum_state
from broker.cluster.found import DiskRefused, voters_found
from broker.cluster.metadata_log import (
    MetadataLog,
    vote_path,
)
from broker.config import LogConfig
from broker.metadata.image import METADATA_PARTITION, METADATA_TOPIC_ID
from broker.quorum import vote_file
from broker.quorum.control_records import LeaderChange, build_control_batch
from broker.quorum.snapshot import BOOTSTRAP, SnapshotId, build_snapshot, file_name
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from broker.storage.errors import DiskError, FolderError
from broker.storage.log_manager import LogManager
from protocol.types import Uuid
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch, patch
from tests.sim.disk import SimDisk
from tests.sim.world import SimWorld
from tests.unit.storage.kit import DIRECTORY_ID, NOW, broker_config

ME = ReplicaKey(broker_config().node_id, DIRECTORY_ID)


def opened_with_logs(disk: SimDisk) -> tuple[LogManager, MetadataLog]:
    logs = LogManager(disk, broker_config(), DIRECTORY_ID)
    logs.open_all(NOW)
    log = logs.create(METADATA_PARTITION, METADATA_TOPIC_ID, LogConfig(), NOW)
    return logs, MetadataLog(disk, logs, log, SimWorld(1, NOW), lambda *refusal: None)


def opened(disk: SimDisk) -> MetadataLog:
    return opened_with_logs(disk)[1]


def recovered(disk: SimDisk, me: ReplicaKey = ME) -> quorum_state.QuorumState:
    """Recover the quorum's state as the only configured voter does."""
    logs, log = opened_with_logs(disk)
    identity = quorum_state.Identity(broker_config().cluster_id, (me.node_id,))
    found, state = quorum_state.look(disk, logs, log, me, identity)
    quorum_state.keep(disk, log, voters_found(found) or (me,))
    state = state or quorum_state.recover(disk, log)
    assert state is not None
    return state


def again(disk: SimDisk) -> SimDisk:
    """Return the disk after a power cut that lost no synced data."""
    disk.crash(random.Random(1))
    return disk


def write(log: MetadataLog, batch: bytearray, epoch: int) -> None:
    patch(batch, log.log.log_end_offset, epoch)
    log.append([bytes(batch)])


def write_leader(log: MetadataLog, epoch: int) -> None:
    record = LeaderChange(leader_id=ME.node_id)
    offset = log.log.log_end_offset
    log.append([bytes(build_control_batch([record], base_offset=offset, epoch=epoch))])


def snapshot_path(log: MetadataLog) -> str:
    return f"{log.log.folder}/{file_name(BOOTSTRAP)}"


def test_a_new_folder_gets_a_vote_file_and_this_node_as_its_only_voter() -> None:
    disk = SimDisk()
    first = recovered(disk)
    assert first.election == ElectionState(1)
    assert list(first.voters.latest) == [ME]
    assert first.snapshot.snapshot_id == BOOTSTRAP
    second = recovered(again(disk))
    assert (second.election, second.snapshot) == (first.election, first.snapshot)


def test_a_log_of_a_version_without_a_quorum_is_refused() -> None:
    disk = SimDisk()
    write(opened(disk), build_batch([NewRecord(None, b"x", NOW)] * 3), 1)
    with pytest.raises(FolderError, match=r"offset 3 and no snapshot.*before 1\.0\.0-rc1"):
        recovered(again(disk))


def test_wherever_the_power_fails_while_a_voter_is_made_the_next_start_goes_on() -> None:
    for count in range(40):
        disk = SimDisk()
        log = opened(disk)
        left = [count]

        def refuses(path: str, operation: str, left: list[int] = left) -> bool:
            left[0] -= 1
            return left[0] < 0

        disk.refuses = refuses
        try:
            quorum_state.keep(disk, log, (ME,))
            is_whole = True
        except DiskError:
            is_whole = False
        disk.refuses = None
        disk.crash(random.Random(count))
        assert list(recovered(disk).voters.latest) == [ME]
        if is_whole:
            break
    assert is_whole and count > 2


def lose_vote(disk: SimDisk, log: MetadataLog) -> None:
    disk.unlink(vote_path(log.log.folder))


def damage_vote(disk: SimDisk, log: MetadataLog) -> None:
    disk.replace(vote_path(log.log.folder), b"{}", is_durable=True)


def lose_voters(disk: SimDisk, log: MetadataLog) -> None:
    disk.unlink(snapshot_path(log))


def damage_voters(disk: SimDisk, log: MetadataLog) -> None:
    whole = disk.read_all(snapshot_path(log))
    disk.replace(snapshot_path(log), whole[:-1], is_durable=True)


def go_back_in_epochs(disk: SimDisk, log: MetadataLog) -> None:
    vote = vote_file.encode(ElectionState(1))
    disk.replace(vote_path(log.log.folder), vote, is_durable=True)


def be_ahead(disk: SimDisk, log: MetadataLog) -> None:
    ahead = SnapshotId(100, 2)
    log.snapshots.write(ahead, build_snapshot(ahead, VoterSet([Voter(ME)]), []))


def grow(disk: SimDisk, log: MetadataLog) -> None:
    three = VoterSet([Voter(ME), *(Voter(ReplicaKey(node, Uuid(int=node))) for node in (2, 3))])
    log.snapshots.write(BOOTSTRAP, build_snapshot(BOOTSTRAP, three, []))


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lose_vote, "quorum-state is missing"),
        (damage_vote, "not a valid vote file"),
        (lose_voters, "the voters are unknown"),
        (damage_voters, "all metadata snapshots"),
        (go_back_in_epochs, "is in epoch 1, but the log is already in epoch 2"),
        (be_ahead, "the records between are lost"),
        (grow, "with the voters 1, 2, 3, but broker 1 is configured alone"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_what_is_not_whole_is_refused(
    harm: Callable[[SimDisk, MetadataLog], None], text: str
) -> None:
    disk = SimDisk()
    log = opened(disk)
    quorum_state.keep(disk, log, (ME,))
    log.save_vote(ElectionState(2, ME), lambda: None)
    write_leader(log, 2)
    harm(disk, log)
    disk.sync_folder(log.log.folder)
    with pytest.raises((FolderError, DiskRefused), match=text):
        recovered(again(disk))


def test_a_disk_that_was_emptied_or_exchanged_does_not_vote() -> None:
    disk = SimDisk()
    recovered(disk)
    stranger = ReplicaKey(ME.node_id, Uuid(int=77))
    with pytest.raises(DiskRefused, match="it was emptied or replaced"):
        recovered(again(disk), stranger)
