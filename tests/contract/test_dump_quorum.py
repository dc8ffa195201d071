"""Kafka's dump tool decodes the quorum's control records and snapshots."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.quorum.control_records import (
    ControlRecord,
    KRaftVersion,
    build_control_batch,
    leader_change,
    voters_record,
)
from broker.quorum.snapshot import SnapshotId, build_snapshot, check_snapshot, file_name
from broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from protocol.types import Uuid, uuid_to_base64
from tests.contract.test_dump_tool import complaints, dump

pytestmark = pytest.mark.slow

FIRST, SECOND = ReplicaKey(1, Uuid(int=2**100 + 1)), ReplicaKey(2, Uuid(int=2**100 + 2))
VOTERS = VoterSet([Voter(FIRST, (Endpoint("BROKER", "broker-1", 19092),)), Voter(SECOND)])


def test_kafkas_decoder_reads_the_quorums_records(tmp_path: Path) -> None:
    folder = tmp_path / "__cluster_metadata-0"
    folder.mkdir()
    records: list[ControlRecord] = [
        leader_change(1, VOTERS, [FIRST, SECOND]),
        KRaftVersion(kraft_version=1),
        voters_record(VOTERS),
    ]
    log = folder / f"{0:020}.log"
    second = build_control_batch([leader_change(2, VOTERS, [SECOND])], base_offset=3, epoch=2)
    log.write_bytes(build_control_batch(records, base_offset=0, epoch=1) + second)
    printed = dump("--files", str(log), "--cluster-metadata-decoder")
    assert not complaints(printed), printed
    assert "exit code 0" in printed
    for expected in (
        '"leaderId":1', '"leaderId":2', '"kRaftVersion":1', '"voterId":2',
        f'"voterDirectoryId":"{uuid_to_base64(FIRST.directory_id)}"',
        '"name":"BROKER","host":"broker-1","port":19092',
        '"kRaftVersionFeature":{"minSupportedVersion":1,"maxSupportedVersion":1}',
    ):  # fmt: skip
        assert expected in printed, printed


def test_kafkas_decoder_reads_a_snapshot(tmp_path: Path) -> None:
    snapshot_id = SnapshotId(4, 2)
    content = build_snapshot(snapshot_id, VOTERS, [], timestamp_ms=1_700_000_000_000)
    assert check_snapshot(content) == VOTERS
    path = tmp_path / file_name(snapshot_id)
    path.write_bytes(content)
    printed = dump("--files", str(path), "--cluster-metadata-decoder")
    assert not complaints(printed), printed
    assert "exit code 0" in printed
    for expected in ("SnapshotHeader", "SnapshotFooter", '"kRaftVersion":1', '"voterId":1'):
        assert expected in printed, printed
    assert "1700000000000" in printed
