"""Limits on everything that clients can make the coordinators store."""

from typing import Any

from protocol.errors import ErrorCode
from protocol.messages.group import (
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.unit.broker.rig import Rig
from tests.unit.broker.txn_rig import TxnProducer, make_coordinators, settle

WITHOUT_MEMBER_ID, WITH_MEMBER_ID = 3, 4
"""Versions of JoinGroup. From version 4 on, a new member is first told its id."""


def prepared(**settings: Any) -> Rig:
    """Return a broker with one shard of each kind, whose groups do not wait for more members."""
    rig = Rig(
        None,
        group_initial_rebalance_delay_ms=0,
        offsets_topic_num_partitions=1,
        transaction_state_log_num_partitions=1,
        **settings,
    )
    rig.create("t")
    make_coordinators(rig)
    settle(rig)
    return rig


def join(rig: Rig, version: int, group_id: str = "g", **changes: Any) -> Any:
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        **{
            "member_id": "",
            "protocols": [JoinGroupRequestProtocol(name="range", metadata=b"")],
            **changes,
        },
    )
    return rig.ask(request, version)


def commit(rig: Rig, group_id: str) -> ErrorCode:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    answer = rig.ask(OffsetCommitRequest(group_id=group_id, topics=[topic]), 8)
    return ErrorCode(answer.topics[0].partitions[0].error_code)


def test_the_groups_of_a_shard_have_a_limit() -> None:
    rig = prepared(max_shard_groups=2)
    joined = join(rig, WITHOUT_MEMBER_ID, "a")
    assert join(rig, WITHOUT_MEMBER_ID, "b").error_code == ErrorCode.NONE
    assert join(rig, WITHOUT_MEMBER_ID, "c").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    again = join(rig, WITHOUT_MEMBER_ID, "a", member_id=joined.member_id)
    assert again.error_code == ErrorCode.NONE
    # Groups that have only offsets are counted separately.
    assert [commit(rig, name) for name in "cdec"] == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.NONE,
    ]  # fmt: skip


def test_the_member_ids_given_out_in_a_group_have_a_limit() -> None:
    rig = prepared(max_group_pending_members=2)
    told = [join(rig, WITH_MEMBER_ID) for _ in range(3)]
    assert [one.error_code for one in told] == [
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    rig.advance(10_000)
    assert join(rig, WITH_MEMBER_ID).error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_what_a_member_says_about_its_protocols_has_a_limit() -> None:
    rig = prepared(max_member_protocols_bytes=1_024)
    first = JoinGroupRequestProtocol(name="range", metadata=bytes(500))
    room = 1_024 - len("range") - 500 - len("sticky")
    for spare, code in ((-1, ErrorCode.MESSAGE_TOO_LARGE), (0, ErrorCode.NONE)):
        second = JoinGroupRequestProtocol(name="sticky", metadata=bytes(room - spare))
        joined = join(rig, WITHOUT_MEMBER_ID, protocols=[first, second])
        assert joined.error_code == code
        (group,) = rig.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
        assert len(group.members) == (code is ErrorCode.NONE)


def test_the_transactional_ids_of_a_shard_have_a_limit() -> None:
    rig = prepared(max_shard_transactional_ids=2)
    producers = [TxnProducer(rig, name) for name in ("a", "b", "c", "a")]
    assert [one.init() for one in producers] == [
        ErrorCode.NONE, ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.NONE,
    ]  # fmt: skip
