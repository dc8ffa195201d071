"""Reads a node's quorum state from its disk (vote, voters, log), and stores the first voter set.

This module is synchronous and uses the `Disk` passed in. It is called before the node serves
requests. The snapshot and the log name the voters, never the settings. A new folder gets the vote
file before the voters, and both before the first batch. So a voter set without a vote file always
means damage, and so does a log without a voter set. `found` decides whether a broker with an
undamaged disk can start. `birth` decides about a broker with an empty disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from broker.cluster.found import FIRST_EPOCH, DiskReport
from broker.cluster.metadata_log import MetadataLog, vote_path
from broker.cluster.reports import BrokerReport, ReportedReplica, in_order
from broker.cluster.snapshots import MetadataSnapshot
from broker.metadata.image import METADATA_PARTITION
from broker.metadata.records import (
    MetadataRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
    decode_record,
    record_type,
)
from broker.quorum import vote_file
from broker.quorum.control_records import voter_sets_in
from broker.quorum.log_view import LogView
from broker.quorum.snapshot import BOOTSTRAP, build_snapshot
from broker.quorum.vote_file import ElectionState, VoteFileError
from broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterHistory, VoterSet
from broker.storage.disk import Disk
from broker.storage.errors import FolderError
from broker.storage.log_manager import LogManager
from protocol.types import NO_LEADER_EPOCH, ZERO_UUID
from protocol.wire.primitives import Buffer
from protocol.wire.records import BatchHeader, iterate_batches, iterate_records, read_header

READ_BYTES = 1 << 20


class Identity(NamedTuple):
    """The cluster id and the broker ids in the configuration. The ids are in ascending order."""

    cluster_id: str
    configured_ids: tuple[int, ...]
    joins: bool = False
    """True if this broker joins a cluster that exists."""


class QuorumState(NamedTuple):
    """The initial state of a metadata replica. The log continues where the snapshot ends.

    The log before the snapshots is deleted, so it does not start at offset 0. Load the newest
    snapshot first. The log always begins at or below the snapshot's end.
    """

    snapshot: MetadataSnapshot

    election: ElectionState
    log: LogView
    voters: VoterHistory


def look(
    disk: Disk, logs: LogManager, log: MetadataLog, me: ReplicaKey, identity: Identity
) -> tuple[DiskReport, QuorumState | None]:
    """Return a pair: the report on this broker's disk, and its quorum state.

    The report is for `found.found` and for the other brokers. The state is None if this broker is
    not yet a voter. Raises FolderError if the folder is damaged.
    """
    # A broker that is configured alone has never fetched a snapshot. So its log is damaged if it
    # ends before its snapshot.
    state = recover(disk, log, may_reset=len(identity.configured_ids) > 1)
    election = _read_vote(disk, log.log.folder)
    report = BrokerReport(
        identity.cluster_id,
        me,
        identity.configured_ids,
        log.log.log_end_offset,
        log.log.leader_epochs.latest,
        0 if state is None else state.snapshot.snapshot_id.end_offset,
        () if state is None else in_order(state.voters.latest),
        tuple(_replicas(logs)),
    )
    is_newcomer = state is not None and not len(state.voters.latest)
    vote_epoch = None if election is None else election.epoch
    return DiskReport(report, vote_epoch, is_newcomer, identity.joins), state


def keep(
    disk: Disk,
    log: MetadataLog,
    voters: Sequence[ReplicaKey],
    addresses: Mapping[int, Endpoint] = MappingProxyType({}),
) -> None:
    """Make a voter set durable. Write the vote file first if there is none. It is safe to call this
    again.

    `addresses` has the configured address of each voter, by node id. It is empty for a broker that
    is configured alone.

    An observer stores a set without voters. The log that it fetches names the voters.
    """
    if _read_vote(disk, log.log.folder) is None:
        vote = vote_file.encode(ElectionState(FIRST_EPOCH))
        disk.replace(vote_path(log.log.folder), vote, is_durable=True)
    # Later snapshots were fsynced before they were renamed to their final names. Only the bootstrap
    # snapshot can lack an fsync, if the process that wrote it was killed.
    newest = log.snapshots.newest()
    if newest is None:
        known = {key: addresses.get(key.node_id) for key in voters}
        voter_set = VoterSet(Voter(key, (one,) if one else ()) for key, one in known.items())
        log.snapshots.write(BOOTSTRAP, build_snapshot(BOOTSTRAP, voter_set, []))
    elif newest.snapshot_id == BOOTSTRAP:
        log.snapshots.make_durable(BOOTSTRAP)


def recover(disk: Disk, log: MetadataLog, *, may_reset: bool = False) -> QuorumState | None:
    """Return the quorum state; None if the disk has neither voters nor batches of a quorum.

    With `may_reset`, the log may end before the newest snapshot. This happens if the power
    failed after a snapshot was fetched and before the log was reset to its end. The reset is done
    here. Raises FolderError if the folder is damaged.
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
            "lost its vote could vote twice. Restore the file",
        )
    snapshot_end = snapshot.snapshot_id.end_offset
    if may_reset and snapshot_end > log.log.log_end_offset:
        log.reset_at_start(snapshot_end)
    if not log.log.log_start_offset <= snapshot_end <= log.log.log_end_offset:
        raise FolderError(
            folder,
            f"the newest undamaged snapshot ends at offset {snapshot_end}, the log goes from "
            f"{log.log.log_start_offset} to {log.log.log_end_offset}: the records between are lost",
        )
    if election.epoch < log.log.leader_epochs.latest:
        raise FolderError(
            folder,
            f"{vote_file.FILE_NAME} is in epoch {election.epoch}, but the log is already in "
            f"epoch {log.log.leader_epochs.latest}: one of them comes from another disk. "
            "Restore the file that belongs to this folder",
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
    """Raise FolderError if there are batches but no snapshot that names the voters."""
    damaged = [str(one) for one in log.snapshots.ids()]
    if damaged:
        raise FolderError(
            log.log.folder,
            (
                "all metadata snapshots (.checkpoint files) are damaged, so the voters are "
                "unknown. Restore one of the files from a copy"
            ),
        )
    if end_offset := log.log.log_end_offset:
        raise FolderError(
            log.log.folder,
            f"holds a log to offset {end_offset} and no snapshot, so the voters are unknown. "
            "Restore its .checkpoint files. If a version before 1.0.0-rc1 wrote the data folder, "
            "start with an empty one",
        )


def _read_voters(log: MetadataLog, voters: VoterHistory) -> None:
    """Add the voter sets in the log to `voters`."""
    for header, batch in _batches_from(log, log.log.log_start_offset):
        if header.is_control:
            for offset, named in voter_sets_in(batch):
                voters.append(offset, named)


def registrations_in_snapshot(state: QuorumState) -> Iterator[MetadataRecord]:
    """Yield the registrations in the snapshot."""
    return _registrations(iterate_batches(state.snapshot.content))


def registrations_since(log: MetadataLog, state: QuorumState) -> Iterator[MetadataRecord]:
    """Yield the registrations and their ends in the log after the snapshot, committed or not."""
    return _registrations(_batches_from(log, state.snapshot.snapshot_id.end_offset))


def _registrations(
    batches: Iterable[tuple[BatchHeader, Buffer]],
) -> Iterator[MetadataRecord]:
    """Decode the records that register brokers or end that. Skip others without decoding them."""
    kinds = (RegisterBrokerRecord.api_key, UnregisterBrokerRecord.api_key)
    for header, batch in batches:
        for record in () if header.is_control else iterate_records(batch):
            if record_type(record.value) in kinds:
                yield decode_record(record.value)


def _batches_from(log: MetadataLog, offset: int) -> Iterator[tuple[BatchHeader, Buffer]]:
    end_offset = log.log.log_end_offset
    while offset < end_offset:
        found = log.batches(offset, end_offset, READ_BYTES)
        assert found, "no batches below the end offset of the metadata log"
        for batch in found:
            header = read_header(batch)
            offset = header.last_offset + 1
            yield header, batch


def _replicas(logs: LogManager) -> Iterator[ReportedReplica]:
    """Yield all partitions except the metadata log. A partition with a damaged log gets the zero
    topic id, because its topic id can be lost with the log."""
    for partition, log in logs.logs.items():
        if partition != METADATA_PARTITION:
            yield ReportedReplica(
                log.topic_id, partition.partition, log.leader_epochs.latest, log.recovery_point
            )
    for partition, damage in logs.offline.items():
        yield ReportedReplica(ZERO_UUID, partition.partition, NO_LEADER_EPOCH, 0, damage)
