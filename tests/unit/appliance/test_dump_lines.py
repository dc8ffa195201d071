"""The metadata quorum's control records are printed as Kafka's dump tool prints them."""

import base64
from uuid import UUID

from appliance.dump.decoders import metadata
from appliance.dump.lines import log_lines
from broker.metadata.records import UserScramCredentialRecord, encode_record
from broker.quorum.control_records import (
    KRaftVersion,
    LeaderChange,
    SnapshotFooter,
    SnapshotHeader,
    VoterEndpoint,
    VoterEntry,
    VoterName,
    Voters,
    build_control_batch,
)
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch, stamp_control

DIRECTORY = UUID("e306e7f4-2d56-4404-8c59-5f39f3bd6a9d")

SHOWN = (
    'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],'
    '"grantingVoters":[{"voterId":1}]}',
    'KRaftVersion {"version":0,"kRaftVersion":1}',
    'KRaftVoters {"version":0,"voters":[{"voterId":1,"voterDirectoryId":"4wbn9C1WRASMWV85871qnQ",'
    '"endpoints":[{"name":"BROKER","host":"h","port":9}],"kRaftVersionFeature":'
    '{"minSupportedVersion":1,"maxSupportedVersion":1}}]}',
    'SnapshotHeader {"version":0,"lastContainedLogTimestamp":7}',
    'SnapshotFooter {"version":0}',
)


def test_records_of_the_quorum() -> None:
    """Control batches need no decoder, so the output is the same with a decoder and without one."""
    voter = VoterEntry(voter_id=1, voter_directory_id=DIRECTORY, min_supported_version=1)
    voter.max_supported_version = 1
    voter.endpoints = [VoterEndpoint(name="BROKER", host="h", port=9)]
    names = [VoterName(voter_id=1)]
    batch = build_control_batch(
        [
            LeaderChange(leader_id=1, voters=names, granting_voters=names),
            KRaftVersion(kraft_version=1),
            Voters(voters=[voter]),
            SnapshotHeader(last_contained_log_timestamp=7),
            SnapshotFooter(),
        ],
        base_offset=0,
        epoch=1,
    )
    for decoder in (None, metadata):
        found = log_lines(memoryview(batch), 0, decoder=decoder, with_records=True)
        lines = [line for line in found if line.startswith("|")]
        assert [line.split(" headerKeys: [] ")[1] for line in lines] == list(SHOWN)


def test_pitfall_23_the_keys_of_a_user_are_not_printed() -> None:
    credential = UserScramCredentialRecord(
        name="shop",
        mechanism=2,
        salt=b"canary",
        stored_key=b"canary",
        server_key=b"canary",
        iterations=4_096,
    )
    batch = build_batch([NewRecord(None, encode_record(credential), 0)])
    (line,) = [
        line
        for line in log_lines(memoryview(batch), 0, decoder=metadata, with_records=True)
        if line.startswith("|")
    ]
    assert '"name":"shop","mechanism":2,"salt":"[hidden]","storedKey":"[hidden]"' in line
    assert base64.b64encode(b"canary").decode() not in line


def test_a_control_record_of_a_kind_that_is_not_known() -> None:
    batch = build_batch([NewRecord(b"\0\0\0\x63", b"\0\0", 0)])
    stamp_control(batch)
    *_, line = log_lines(memoryview(batch), 0, with_records=True)
    assert line.endswith(" headerKeys: [] controlType: UNKNOWN(99)")
