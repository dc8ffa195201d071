"""What a node's disk says of the quorum: its vote, the voters, the log; and how a birth is kept.

Floor: cluster. Synchronous, over the `Disk` passed in, before anybody is served. Who votes stands
in the snapshot and the log, never in the settings. A folder of a version without a quorum holds a
log in epoch 1 and nothing else: it gets what a new folder gets, the vote file before the voters, so
that voters without a vote file are always damage. Whether a disk that is whole may go on is judged
by `found`, and what an empty one becomes is decided by `birth`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from broker.cluster.found import LONE_EPOCH, Found
from broker.cluster.metadata_log import MetadataLog, vote_path
from broker.cluster.reports import Report, ReportedReplica, in_order
from broker.cluster.snapshots import Snapshot
from broker.metadata.image import METADATA_PARTITION
from broker.quorum import vote_file
from broker.quorum.control_records import voter_sets_in
from broker.quorum.log_view import LogView
from broker.quorum.snapshot import BOOTSTRAP, build_snapshot
from broker.quorum.vote_file import ElectionState, VoteFileError
from broker.quorum.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from broker.storage.disk import Disk
from broker.storage.errors import FolderError
from broker.storage.log_manager import LogManager
from protocol.types import NO_LEADER_EPOCH, ZERO_UUID
from protocol.wire.records import read_header

READ_BYTES = 1 << 20


class Identity(NamedTuple):
    """What a broker's configuration says of its cluster; the ids rise."""

    cluster_id: str
    configured_ids: tuple[int, ...]


class QuorumState(NamedTuple):
    """What a replica of the metadata log begins with; the log goes on where the snapshot ends.

    With snapshots the metadata log no longer begins at offset 0. Load the newest snapshot first:
    the log always reaches its end.
    """

    snapshot: Snapshot

    election: ElectionState
    log: LogView
    voters: VoterHistory


def look(
    disk: Disk, logs: LogManager, log: MetadataLog, me: ReplicaKey, identity: Identity
) -> tuple[Found, QuorumState | None]:
    """What there is, for `found` to judge and for others to hear of, and the state of a voter.

    Raises FolderError when the folder is damaged.
    """
    # Whoever is alone has fetched nothing.
    state = recover(disk, log, may_begin_anew=len(identity.configured_ids) > 1)
    election = _read_vote(disk, log.log.folder)
    report = Report(
        identity.cluster_id,
        me,
        identity.configured_ids,
        log.log.log_end_offset,
        log.log.leader_epochs.latest,
        0 if state is None else state.snapshot.snapshot_id.end_offset,
        () if state is None else in_order(state.voters.latest),
        tuple(_replicas(logs)),
    )
    return Found(report, None if election is None else election.epoch), state


def keep(disk: Disk, log: MetadataLog, voters: Sequence[ReplicaKey]) -> None:
    """Make a voter set durable that this disk may go on with: the vote file first, if there is
    none. Called again it does the same again."""
    if _read_vote(disk, log.log.folder) is None:
        vote = vote_file.encode(ElectionState(LONE_EPOCH))
        disk.replace(vote_path(log.log.folder), vote, is_durable=True)
    # Later snapshots were durable before they had their names; this one may be a process's that was
    # killed before.
    newest = log.snapshots.newest()
    if newest is None:
        bootstrap = build_snapshot(BOOTSTRAP, VoterSet(Voter(key) for key in voters), [])
        log.snapshots.write(BOOTSTRAP, bootstrap)
    elif newest.snapshot_id == BOOTSTRAP:
        log.snapshots.make_durable(BOOTSTRAP)


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
    if start_offset or last_epoch > LONE_EPOCH or _has_control_batch(log):
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


def _replicas(logs: LogManager) -> Iterator[ReportedReplica]:
    """All partitions but the metadata; of one that is damaged its topic's id may be lost."""
    for partition, log in logs.logs.items():
        if partition != METADATA_PARTITION:
            yield ReportedReplica(
                log.topic_id, partition.partition, log.leader_epochs.latest, log.recovery_point
            )
    for partition, damage in logs.offline.items():
        yield ReportedReplica(ZERO_UUID, partition.partition, NO_LEADER_EPOCH, 0, damage)
