"""What a node's disk says of the quorum: its vote, the voters, the log; and the birth of a voter
that is configured alone.

Floor: cluster. Synchronous, over the `Disk` passed in, before anybody is served. Who votes stands
in the snapshot and the log, never in the settings. A folder of a version without a quorum holds a
log in epoch 1 and nothing else: it gets what a new folder gets, the vote file before the voters, so
that voters without a vote file are always damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.cluster.metadata_log import MetadataLog, vote_path
from broker.cluster.snapshots import Snapshot
from broker.quorum import vote_file
from broker.quorum.control_records import voter_sets_in
from broker.quorum.log_view import LogView
from broker.quorum.snapshot import BOOTSTRAP, build_snapshot
from broker.quorum.vote_file import ElectionState, VoteFileError
from broker.quorum.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from broker.storage.disk import Disk
from broker.storage.errors import FolderError
from protocol.types import uuid_to_base64
from protocol.wire.records import read_header

EPOCH_BEFORE_VOTES = 1
"""In which a version without a quorum wrote; the first election takes the next one."""

READ_BYTES = 1 << 20


class QuorumState(NamedTuple):
    """What a replica of the metadata log begins with; the log goes on where the snapshot ends."""

    snapshot: Snapshot

    election: ElectionState
    log: LogView
    voters: VoterHistory


def recover_alone(disk: Disk, log: MetadataLog, me: ReplicaKey) -> QuorumState:
    """The state of a node that is configured alone; one that has none is made the only voter.

    Raises FolderError when the folder is damaged, or another node's, or one of several voters';
    DiskError for what the disk refuses.
    """
    state = recover(disk, log)
    if state is None:
        found(disk, log, VoterSet([Voter(me)]))
        state = recover(disk, log)
        assert state is not None
    if list(state.voters.latest) != [me]:
        raise FolderError(
            log.log.folder,
            f"the metadata names as its voters {_named(state.voters.latest)}; this is {_name(me)}, "
            "and it is configured to be the only one: give it the folder it had, or an empty one",
        )
    return state


def found(disk: Disk, log: MetadataLog, voters: VoterSet) -> None:
    """Begin a quorum: durably, the vote file first. Called again it does the same again."""
    if _read_vote(disk, log.log.folder) is None:
        vote = vote_file.encode(ElectionState(EPOCH_BEFORE_VOTES))
        disk.replace(vote_path(log.log.folder), vote, is_durable=True)
    log.snapshots.write(BOOTSTRAP, build_snapshot(BOOTSTRAP, voters, []))


def recover(disk: Disk, log: MetadataLog, *, may_begin_anew: bool = False) -> QuorumState | None:
    """Read the state; None where nothing says who votes, and no quorum has written here.

    `may_begin_anew`: a snapshot may be one that was fetched when the log was behind it, and the
    power failed before the log had been begun anew there; that is done now. Raises FolderError
    when the folder is damaged.
    """
    folder = log.log.folder
    election = _read_vote(disk, folder)
    snapshot = log.snapshots.newest()
    if snapshot is None:
        _refuse_lost_voters(log)
        return None
    if election is None:
        raise FolderError(
            folder,
            f"names the voters of its cluster, but {vote_file.FILE_NAME} is missing: a voter that "
            "has forgotten its vote could give a second one; put it back",
        )
    snapshot_end = snapshot.snapshot_id.end_offset
    if may_begin_anew and snapshot_end > log.log.log_end_offset:
        log.begin_anew(snapshot_end)
    if not log.log.log_start_offset <= snapshot_end <= log.log.log_end_offset:
        raise FolderError(
            folder,
            f"the newest snapshot that is whole ends at offset {snapshot_end}, the log goes from "
            f"{log.log.log_start_offset} to {log.log.log_end_offset}: what is between them is lost",
        )
    if election.epoch < log.log.leader_epochs.latest:
        raise FolderError(
            folder,
            f"{vote_file.FILE_NAME} is in epoch {election.epoch}, the log in "
            f"{log.log.leader_epochs.latest}: one of them is not this disk's",
        )
    voters = VoterHistory(snapshot.voters)
    _read_voters(log, voters)
    return QuorumState(
        snapshot,
        election,
        LogView(
            list(log.log.leader_epochs.entries),
            log.log.log_end_offset,
            start_offset=log.log.log_start_offset,
            snapshot_id=snapshot.snapshot_id,
        ),
        voters,
    )


def _read_vote(disk: Disk, folder: str) -> ElectionState | None:
    path = vote_path(folder)
    if not disk.exists(path):
        return None
    try:
        return vote_file.decode(disk.read_all(path), path)
    except VoteFileError as error:
        raise FolderError(folder, str(error)) from error


def _refuse_lost_voters(log: MetadataLog) -> None:
    """A log that a quorum has written, and nothing that says who votes."""
    damaged = [str(one) for one in log.snapshots.ids()]
    if damaged:
        raise FolderError(log.log.folder, "no snapshot of the metadata is whole; put one back")
    start_offset, last_epoch = log.log.log_start_offset, log.log.leader_epochs.latest
    if start_offset or last_epoch > EPOCH_BEFORE_VOTES or _has_control_batch(log):
        raise FolderError(
            log.log.folder,
            f"holds a log from offset {start_offset} to epoch {last_epoch} and no snapshot, so "
            "nothing says who may vote; put its .checkpoint files back",
        )


def _read_voters(log: MetadataLog, voters: VoterHistory) -> None:
    """Take in the voters that the log names."""
    for batch in _control_batches(log):
        for offset, named in voter_sets_in(batch):
            voters.append(offset, named)


def _has_control_batch(log: MetadataLog) -> bool:
    return any(True for _ in _control_batches(log))


def _control_batches(log: MetadataLog) -> Iterator[bytes]:
    offset, end_offset = log.log.log_start_offset, log.log.log_end_offset
    while offset < end_offset:
        found = log.batches(offset, end_offset, READ_BYTES)
        assert found, "the metadata log ends before its end offset"
        for batch in found:
            header = read_header(batch)
            offset = header.last_offset + 1
            if header.is_control:
                yield batch


def _named(voters: VoterSet) -> str:
    return ", ".join(_name(key) for key in voters)


def _name(key: ReplicaKey) -> str:
    return f"broker {key.node_id} with directory {uuid_to_base64(key.directory_id)}"
