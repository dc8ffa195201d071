"""The quorum's control records: leader changes, voters, and the start and end of a snapshot.

This module is pure. A record's key is `version int16 (0), type int16`. Its value starts with the
value's own version as int16, which is also the version of the schema. The fields are Kafka's, so
Kafka's tools can read this log.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct as Packed
from struct import error as StructError

from broker.quorum.voters import KRAFT_VERSION, Endpoint, ReplicaKey, Voter, VoterSet
from protocol.errors import CorruptBatch
from protocol.types import NO_NODE, NO_TIMESTAMP, Uuid
from protocol.wire.primitives import Buffer
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch, iterate_records, stamp_control
from protocol.wire.schema import (
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid_,
)

_KEY = Packed(">hh")
_VERSION = Packed(">h")

_TYPES_OF_TRANSACTIONS = (0, 1)


class VoterName(Struct):
    """A voter in a leader change record."""

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid_(since=1, ignorable=True)


class LeaderChange(Message, api_key=2, versions=(0, 1), flexible=0):
    """The first record of an epoch. No older record is committed before this record is committed.

    It is written in version 0, because Kafka's tools read no other version.
    """

    version: int = int16()
    leader_id: int = int32(default=NO_NODE)
    voters: list[VoterName] = array(VoterName)
    granting_voters: list[VoterName] = array(VoterName)


class SnapshotHeader(Message, api_key=3, versions=(0, 0), flexible=0):
    """The first record of a snapshot."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


class SnapshotFooter(Message, api_key=4, versions=(0, 0), flexible=0):
    """The last record of a snapshot. A snapshot without this record is incomplete."""

    version: int = int16()


class KRaftVersion(Message, api_key=5, versions=(0, 0), flexible=0):
    """The version of the quorum's protocol, valid from this record on."""

    version: int = int16()
    kraft_version: int = int16()


class VoterEndpoint(Struct):
    """The address of one listener of a voter."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class VoterEntry(Struct):
    """A voter in the voter set.

    Kafka's schema nests the supported versions in a struct of their own. `feature_tags` is the
    number of that struct's tagged fields, which is always 0.
    """

    voter_id: int = int32()
    voter_directory_id: Uuid = uuid_()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    min_supported_version: int = int16()
    max_supported_version: int = int16()
    feature_tags: int = int8()


class Voters(Message, api_key=6, versions=(0, 0), flexible=0):
    """The voter set, valid from this record on."""

    version: int = int16()
    voters: list[VoterEntry] = array(VoterEntry)


ControlRecord = LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | Voters

_CLASSES: dict[int, type[Message]] = {
    cls.api_key: cls for cls in (LeaderChange, SnapshotHeader, SnapshotFooter, KRaftVersion, Voters)
}


class UnknownControlRecord(Exception):
    """The log has a control record that this version cannot read, so the node must not continue.

    The record may name the voters. If it were skipped, there could be two leaders.
    """


def build_control_batch(
    records: Sequence[ControlRecord],
    *,
    base_offset: int,
    epoch: int,
    timestamp_ms: int = NO_TIMESTAMP,
) -> bytearray:
    """Return one control batch, with its base offset and epoch filled in."""
    encoded = [
        NewRecord(_KEY.pack(0, record.api_key), record.encode(record.version), timestamp_ms)
        for record in records
    ]
    batch = build_batch(encoded, base_offset=base_offset, partition_leader_epoch=epoch)
    stamp_control(batch)
    return batch


def read_control_batch(batch: Buffer) -> list[tuple[int, ControlRecord]]:
    """Return the records of a control batch with their offsets.

    Raises WireError for malformed bytes, and UnknownControlRecord for an unknown type or version.
    """
    return [(one.offset, decode_control(one.key, one.value)) for one in iterate_records(batch)]


def decode_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Return one record of a control batch. Raises the same errors as `read_control_batch`."""
    try:
        _, kind = _KEY.unpack_from(key or b"")
        (version,) = _VERSION.unpack_from(value or b"")
    except StructError as error:
        raise CorruptBatch(
            f"a control record of the metadata log is shorter than its schema: {error}"
        ) from None
    if kind in _TYPES_OF_TRANSACTIONS:
        raise CorruptBatch(
            "the metadata log has a commit or abort marker, but it never has transactions"
        )
    cls = _CLASSES.get(kind)
    if cls is None or version not in cls.valid_versions:
        raise UnknownControlRecord(
            f"the metadata log has a control record of type {kind}, version {version}, which "
            "this version of the broker cannot read: run the version that wrote it"
        )
    record, _ = cls.decode(value or b"", version)
    if isinstance(record, KRaftVersion) and record.kraft_version != KRAFT_VERSION:
        found = record.kraft_version
        raise UnknownControlRecord(
            f"the metadata log has kraft.version {found}, expected {KRAFT_VERSION}"
        )
    if isinstance(record, Voters) and any(entry.feature_tags for entry in record.voters):
        raise UnknownControlRecord(
            "a voter in the metadata log has an unknown tagged field in its supported "
            "versions: run the version of the broker that wrote it"
        )
    return record  # type: ignore[return-value]  # one of the classes of _CLASSES


def leader_change(leader_id: int, voters: VoterSet, granting: Sequence[ReplicaKey]) -> LeaderChange:
    """Return the record with which a leader starts its epoch."""
    return LeaderChange(
        leader_id=leader_id,
        voters=[VoterName(voter_id=key.node_id) for key in voters],
        granting_voters=[VoterName(voter_id=key.node_id) for key in granting],
    )


def voters_record(voters: VoterSet) -> Voters:
    """Return the record that names the voters."""
    return Voters(
        voters=[
            VoterEntry(
                voter_id=voter.key.node_id,
                voter_directory_id=voter.key.directory_id,
                endpoints=[
                    VoterEndpoint(name=one.name, host=one.host, port=one.port)
                    for one in voter.endpoints
                ],
                min_supported_version=voter.kraft_version_min,
                max_supported_version=voter.kraft_version_max,
            )
            for voter in voters.voters
        ]
    )


def voters_of(record: Voters) -> VoterSet:
    """Return the voter set in a record. Raises CorruptBatch if a node is in it twice."""
    try:
        return VoterSet(
            Voter(
                ReplicaKey(entry.voter_id, entry.voter_directory_id),
                tuple(Endpoint(one.name, one.host, one.port) for one in entry.endpoints),
                entry.min_supported_version,
                entry.max_supported_version,
            )
            for entry in record.voters
        )
    except ValueError as error:
        raise CorruptBatch(str(error)) from None


def voter_sets_in(batch: Buffer) -> list[tuple[int, VoterSet]]:
    """Return the voter sets in a control batch, with the offsets of their records."""
    return [
        (offset, voters_of(record))
        for offset, record in read_control_batch(batch)
        if isinstance(record, Voters)
    ]
