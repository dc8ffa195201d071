import pytest

from broker.quorum.control_records import (
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    UnknownControlRecord,
    VoterName,
    Voters,
    build_control_batch,
    leader_change,
    read_control_batch,
    voter_sets_in,
    voters_of,
    voters_record,
)
from broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from protocol.errors import CorruptBatch, WireError
from protocol.types import Uuid
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch, check_batch, iterate_records, stamp_control
from tests.unit.broker.quorum.kit import ME, THREE_VOTERS, TWO

VOTERS = VoterSet(
    [
        Voter(ME, (Endpoint("BROKER", "broker-1", 19092), Endpoint("MILL", "::1", 65535)), 0, 1),
        Voter(TWO),
    ]
)
ALL: list[ControlRecord] = [
    leader_change(1, VOTERS, [ME]),
    SnapshotHeader(last_contained_log_timestamp=1_700_000_000_000),
    KRaftVersion(kraft_version=1),
    voters_record(VOTERS),
    SnapshotFooter(),
]


def test_every_kind_comes_back_with_its_offset() -> None:
    batch = build_control_batch(ALL, base_offset=40, epoch=6)
    header = check_batch(batch)
    assert header.is_control and header.partition_leader_epoch == 6
    assert read_control_batch(batch) == list(enumerate(ALL, start=40))
    assert voter_sets_in(batch) == [(43, VOTERS)]


def test_bytes_are_kafkas() -> None:
    """Keys and values have the layout of Kafka's ControlRecordType and message definitions."""
    batch = build_control_batch(
        [KRaftVersion(kraft_version=1), voters_record(VoterSet([Voter(TWO)])), ALL[0]],
        base_offset=0,
        epoch=1,
    )
    records = [(one.key or b"", one.value or b"") for one in iterate_records(batch)]
    directory = TWO.directory_id.bytes.hex()
    assert [(key.hex(), value.hex()) for key, value in records] == [
        ("00000005", "0000" "0001" "00"),
        # The fields: version; one voter with id and directory; no endpoints; versions 1 to 1 as a
        # struct; tags.
        ("00000006", "0000" "02" "00000002" + directory + "01" "0001" "0001" "00" "00" "00"),
        (
            "00000002",
            "0000" "00000001" + "03" "00000001" "00" "00000002" "00" + "02" "00000001" "00" "00",
        ),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("00000007", "0000"),
        ("00000002", "0002"),
        ("00000005", "0000000200"),
        ("00000006", "00000200000002" + "00" * 16 + "0100010001010000"),
    ],
)
def test_what_is_not_known_stops_the_node(key: str, value: str) -> None:
    with pytest.raises(UnknownControlRecord):
        read_control_batch(control(key, value))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", "0000"),
        ("0000", "0000"),
        ("00000006", ""),
        ("00000006", "000002"),
        ("00000001", "0000"),
    ],
)
def test_what_contradicts_itself_is_corrupt(key: str, value: str) -> None:
    with pytest.raises(WireError):
        read_control_batch(control(key, value))


def test_a_leader_change_with_directories_is_read_as_well() -> None:
    named = [VoterName(voter_id=1, voter_directory_id=ME.directory_id)]
    change = LeaderChange(version=1, leader_id=1, voters=named, granting_voters=named)
    batch = build_control_batch([change], base_offset=0, epoch=1)
    assert read_control_batch(batch) == [(0, change)]


def test_a_record_in_which_a_node_votes_twice_is_corrupt() -> None:
    record = voters_record(THREE_VOTERS)
    record.voters.append(voters_record(VoterSet([Voter(ReplicaKey(1, Uuid(int=9)))])).voters[0])
    assert isinstance(record, Voters)
    with pytest.raises(CorruptBatch, match="twice"):
        voters_of(record)


def control(key: str, value: str) -> bytearray:
    batch = build_batch([NewRecord(bytes.fromhex(key), bytes.fromhex(value), 0)])
    stamp_control(batch)
    return batch
