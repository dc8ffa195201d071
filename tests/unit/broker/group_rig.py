"""Group requests to a whole broker, for tests."""

from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.group import (
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.unit.broker.group_scene import subscription
from tests.unit.broker.rig import Rig


def undelayed(**settings: Any) -> Rig:
    """Return a prepared broker whose groups do not wait for more members."""
    rig = Rig(None, group_initial_rebalance_delay_ms=0, **settings)
    prepare(rig)
    return rig


def prepare(rig: Rig) -> None:
    """Create the topic `logs`, and load the shards of the offsets topic."""
    rig.create("logs", 3)
    rig.ask(FindCoordinatorRequest(key="g"), 2)
    while rig.broker.parts.groups.is_loading:
        rig.turn()


def joining(member_id: str = "", **changes: Any) -> JoinGroupRequest:
    known: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=subscription("logs"))],
    }
    return JoinGroupRequest(**(known | changes))


def join(rig: Rig, version: int = 9, **changes: Any) -> Any:
    """Join a new member, in the steps that this version needs. Return the last response."""
    answer = rig.ask(joining(**changes), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = rig.ask(joining(answer.member_id, **changes), version)
    assert answer.error_code == 0, answer
    return answer


def sync(rig: Rig, joined: Any, version: int = 5, share: bytes = b"all") -> Any:
    return rig.ask(syncing(joined, version, share), version)


def syncing(joined: Any, version: int, share: bytes) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        protocol_type="consumer" if version >= 5 else None,
        protocol_name="range" if version >= 5 else None,
        assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=share)],
    )


def beat(rig: Rig, joined: Any, version: int = 4) -> ErrorCode:
    request = HeartbeatRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
    )
    return ErrorCode(rig.ask(request, version).error_code)


def commit(rig: Rig, offset: int, joined: Any = None, topic: str = "logs") -> ErrorCode:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=3,
        committed_metadata="note",
    )  # fmt: skip
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1 if joined is None else joined.generation_id,
        member_id="" if joined is None else joined.member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return ErrorCode(rig.ask(request, 8).topics[0].partitions[0].error_code)


def describe(rig: Rig) -> Any:
    return rig.ask(DescribeGroupsRequest(groups=["g"]), 5).groups[0]
