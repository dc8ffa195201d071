"""Group requests to a whole broker: every version of every request, restarts, and the stop."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.errors import ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.group import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
)
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from protocol.wire.primitives import STRING_BYTES_MAX
from tests.unit.broker.group_rig import (
    beat,
    commit,
    describe,
    join,
    joining,
    prepare,
    sync,
    syncing,
    undelayed,
)
from tests.unit.broker.group_scene import subscription
from tests.unit.broker.rig import Asked, Rig
from tests.unit.broker.txn_rig import Doubtful


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = undelayed()
    yield made


@pytest.mark.parametrize("version", ApiKey.JOIN_GROUP.valid_versions)
def test_every_version_of_join_tells_of_the_generation(rig: Rig, version: int) -> None:
    joined = join(rig, version)
    assert (joined.generation_id, joined.leader) == (1, joined.member_id)
    assert joined.protocol_name == "range"
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert [one.metadata for one in joined.members] == [subscription("logs")]
    refused = rig.ask(joining("stranger"), version)
    assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert refused.member_id == "stranger"
    assert refused.protocol_name == (None if version >= 7 else "")


def test_version_0_takes_the_session_for_the_rebalance(rig: Rig) -> None:
    joined = join(rig, 0)
    group = rig.broker.parts.groups.shard("g").members.groups["g"]
    assert group.roster.members[joined.member_id].rebalance_timeout_ms == 10_000


@pytest.mark.parametrize("version", ApiKey.SYNC_GROUP.valid_versions)
def test_every_version_of_sync_brings_the_share(rig: Rig, version: int) -> None:
    joined = join(rig)
    answer = sync(rig, joined, version)
    assert (answer.error_code, bytes(answer.assignment)) == (0, b"all")
    assert answer.protocol_name == ("range" if version >= 5 else None)


def test_sync_names_its_protocol_from_version_5_on(rig: Rig) -> None:
    joined = join(rig)
    for kind, name in ((None, "range"), ("consumer", None), ("consumer", "other")):
        request = syncing(joined, 5, b"")
        request.protocol_type, request.protocol_name = kind, name
        code = rig.ask(request, 5).error_code
        assert code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", ApiKey.HEARTBEAT.valid_versions)
def test_every_version_of_heartbeat(rig: Rig, version: int) -> None:
    joined = join(rig)
    sync(rig, joined)
    assert beat(rig, joined, version) is ErrorCode.NONE
    joined.generation_id = 7
    assert beat(rig, joined, version) is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", ApiKey.LEAVE_GROUP.valid_versions)
def test_every_version_of_leave(rig: Rig, version: int) -> None:
    joined = join(rig)
    member = MemberIdentity(member_id=joined.member_id)
    stranger = MemberIdentity(member_id="stranger", group_instance_id="i9")
    if version < 3:
        request = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
        assert rig.ask(request, version).error_code == 0
        assert rig.ask(request, version).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        request = LeaveGroupRequest(group_id="g", members=[member, stranger])
        answer = rig.ask(request, version)
        assert answer.error_code == 0
        left, refused = answer.members
        assert (left.member_id, left.group_instance_id, left.error_code) == (
            joined.member_id, None, 0,
        )  # fmt: skip
        assert (refused.member_id, refused.group_instance_id) == ("stranger", "i9")
        assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    unnamed = LeaveGroupRequest(group_id="")
    assert rig.ask(unnamed, version).error_code == ErrorCode.INVALID_GROUP_ID


def test_a_first_join_waits_for_the_delay_of_the_node() -> None:
    rig = Rig(group_initial_rebalance_delay_ms=500)
    prepare(rig)
    told = rig.ask(joining(), 9)
    asked = rig.send(joining(told.member_id), 9)
    rig.advance(499)
    assert not asked.is_answered()
    rig.advance(1)
    assert asked.answer.generation_id == 1


@pytest.mark.parametrize("instance_id", [None, "i" * STRING_BYTES_MAX])
def test_a_member_id_is_a_text_that_every_answer_can_carry(
    rig: Rig, instance_id: str | None
) -> None:
    """The member id is the client's name with a suffix, so a long name must be cut."""
    request = joining(group_instance_id=instance_id)
    asked = Asked(request, 5, "HOST", client_id="ü" * (STRING_BYTES_MAX // 2))
    rig.start_request(asked)
    member_id = asked.answer.member_id
    assert STRING_BYTES_MAX - 1 <= len(member_id.encode()) <= STRING_BYTES_MAX
    other = Asked(request, 5, "HOST", client_id="ü" * (STRING_BYTES_MAX // 2))
    rig.start_request(other)
    assert other.answer.member_id != member_id


def test_an_assignment_waits_for_the_disk(rig: Rig) -> None:
    joined = join(rig)
    asked = rig.send(syncing(joined, 5, b"all"), 5)
    assert not asked.is_answered()
    rig.flusher.sync()
    assert bytes(asked.answer.assignment) == b"all"


def test_a_group_goes_on_after_a_power_cut(rig: Rig) -> None:
    joined = join(rig)
    sync(rig, joined)
    assert commit(rig, 5, joined) is ErrorCode.NONE
    before = describe(rig)
    rig.power_cut(random.Random(1))
    while rig.broker.parts.groups.is_loading:
        rig.turn()
    assert beat(rig, joined) is ErrorCode.NONE
    assert commit(rig, 6, joined) is ErrorCode.NONE
    assert describe(rig) == before
    rig.advance(10_001)
    assert beat(rig, joined) is ErrorCode.UNKNOWN_MEMBER_ID
    assert describe(rig).group_state == "Empty"


def test_while_a_group_is_loaded_its_members_are_not_sent_away(rig: Rig) -> None:
    joined = join(rig)
    sync(rig, joined)
    # The shard is missing, as it is between the start and the end of a replay.
    rig.broker.parts.groups.find("g").shard = None
    assert rig.broker.parts.groups.is_loading
    assert beat(rig, joined) is ErrorCode.NONE
    assert sync(rig, joined).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    loading = rig.ask(joining(joined.member_id), 9)
    assert loading.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_broker_that_stops_lets_no_member_wait(rig: Rig) -> None:
    first = join(rig)
    sync(rig, first)
    second = rig.ask(joining(), 9)
    waiting = rig.send(joining(second.member_id), 9)
    assert not waiting.is_answered()
    rig.broker.parts.groups.stop()
    assert waiting.answer.error_code == ErrorCode.NOT_COORDINATOR
    assert beat(rig, first) is ErrorCode.NOT_COORDINATOR


def test_a_generation_too_large_for_the_log_is_refused_for_good() -> None:
    rig = undelayed(message_max_bytes=1_000)
    joined = join(rig)
    answer = sync(rig, joined, share=b"x" * 2_000)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert beat(rig, joined) is ErrorCode.REBALANCE_IN_PROGRESS


# Requests of tools.


@pytest.mark.parametrize("version", ApiKey.DESCRIBE_GROUPS.valid_versions)
def test_every_version_of_describe(rig: Rig, version: int) -> None:
    joined = join(rig)
    assert describe(rig).group_state == "CompletingRebalance"
    assert bytes(describe(rig).members[0].member_metadata) == b""
    sync(rig, joined)
    group = rig.ask(DescribeGroupsRequest(groups=["g", "none"]), version).groups
    assert [one.group_state for one in group] == ["Stable", "Dead"]
    assert [one.error_code for one in group] == [0, 0]
    assert (group[0].protocol_type, group[0].protocol_data) == ("consumer", "range")
    (member,) = group[0].members
    assert (member.client_id, member.client_host) == ("rig", "/127.0.0.1")
    assert bytes(member.member_metadata) == subscription("logs")
    assert bytes(member.member_assignment) == b"all"


def test_what_is_asked_for_again_and_again_is_answered_once(rig: Rig) -> None:
    """Otherwise a request of some kilobytes could have a response of gigabytes."""
    commit(rig, 5)
    described = rig.ask(DescribeGroupsRequest(groups=["g"] * 1_000 + ["h"]), 5).groups
    assert [one.group_id for one in described] == ["g", "h"]
    topic = OffsetFetchRequestTopic(name="logs", partition_indexes=[0] * 1_000 + [1])
    (answer,) = rig.ask(OffsetFetchRequest(group_id="g", topics=[topic] * 2), 7).topics
    assert [one.committed_offset for one in answer.partitions] == [5, -1]
    groups = [OffsetFetchRequestGroup(group_id=one, topics=None) for one in "ggggh"]
    answers = rig.ask(OffsetFetchRequest(groups=groups), 8).groups
    assert [(one.group_id, len(one.topics)) for one in answers] == [("g", 1), ("h", 0)]
    deleted = rig.ask(DeleteGroupsRequest(groups_names=["g"] * 1_000), 2).results
    assert [(one.group_id, one.error_code) for one in deleted] == [("g", 0)]


@pytest.mark.parametrize("version", ApiKey.LIST_GROUPS.valid_versions)
def test_every_version_of_list(rig: Rig, version: int) -> None:
    sync(rig, join(rig))
    found = rig.ask(ListGroupsRequest(), version).groups
    assert [(one.group_id, one.protocol_type) for one in found] == [("g", "consumer")]
    if version >= 4:
        assert found[0].group_state == "Stable"
        assert rig.ask(ListGroupsRequest(states_filter=["Empty"]), version).groups == []


@pytest.mark.parametrize("version", ApiKey.DELETE_GROUPS.valid_versions)
def test_every_version_of_delete(rig: Rig, version: int) -> None:
    joined = join(rig)
    sync(rig, joined)
    commit(rig, 5, joined)

    def delete() -> list[int]:
        answer = rig.ask(DeleteGroupsRequest(groups_names=["g", "none"]), version)
        return [one.error_code for one in answer.results]

    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert delete() == [ErrorCode.NON_EMPTY_GROUP, missing]
    rig.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 2)
    rig.flusher.sync()
    assert delete() == [0, missing]
    assert delete() == [missing, missing]
    rig.power_cut(random.Random(1))
    while rig.broker.parts.groups.is_loading:
        rig.turn()
    assert describe(rig).group_state == "Dead"
    assert join(rig).generation_id == 1


def live_longer_than_offsets(rig: Rig) -> None:
    """A member stays for more than 10 minutes, commits offset 5, and leaves."""
    joined = join(rig)
    sync(rig, joined)
    commit(rig, 5, joined)
    for _ in range(200):
        rig.advance(5_000)
        assert beat(rig, joined) is ErrorCode.NONE
    rig.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 2)


@pytest.mark.parametrize("version", ApiKey.OFFSET_FETCH.valid_versions)
def test_who_has_not_heard_of_the_offsets_topic_is_no_coordinator(version: int) -> None:
    """A broker that knows the offsets topic has sent the client here. Kafka has no other error code
    for this case in OffsetFetch. After COORDINATOR_NOT_AVAILABLE, aiokafka would pass the error to
    its application."""
    if version >= 8:
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        code = Rig().ask(asked, version).groups[0].error_code
    else:
        topic = OffsetFetchRequestTopic(name="logs", partition_indexes=[0])
        answer = Rig().ask(OffsetFetchRequest(group_id="g", topics=[topic]), version)
        code = answer.error_code or answer.topics[0].partitions[0].error_code
    assert code == ErrorCode.NOT_COORDINATOR


def test_a_group_whose_deletion_is_refused_stays_as_it_was() -> None:
    rig = undelayed(offsets_retention_minutes=10)
    live_longer_than_offsets(rig)
    rig.flusher.sync()
    before = describe(rig)
    rig.disk.capacity_bytes = 0
    answer = rig.ask(DeleteGroupsRequest(groups_names=["g"]), 2)
    assert answer.results[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.disk.capacity_bytes = None
    assert describe(rig) == before
    # The retention starts when the group became empty. That time would be lost with the group.
    rig.broker.parts.groups.expire(rig.clock.now_ms())
    rig.flusher.sync()
    assert stored(rig) == {"logs": 5}


@pytest.mark.parametrize("api_key", [ApiKey.DELETE_GROUPS, ApiKey.OFFSET_DELETE])
def test_what_is_deleted_may_take_more_than_one_batch(api_key: ApiKey) -> None:
    rig = undelayed(message_max_bytes=1_000)
    rig.create("many", 100)
    for index in range(100):
        partition = OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
        topic = OffsetCommitRequestTopic(name="many", partitions=[partition])
        rig.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
    request: Any = DeleteGroupsRequest(groups_names=["g"])
    if api_key is ApiKey.OFFSET_DELETE:
        partitions = [OffsetDeleteRequestPartition(partition_index=one) for one in range(100)]
        doomed = OffsetDeleteRequestTopic(name="many", partitions=partitions)
        request = OffsetDeleteRequest(group_id="g", topics=[doomed])
    asked = rig.send(request, api_key.valid_versions[-1])
    assert not asked.is_answered()
    rig.flusher.sync()
    (result,) = asked.answer.results if api_key is ApiKey.DELETE_GROUPS else [asked.answer]
    assert result.error_code == 0
    assert stored(rig) == {}


def test_offsets_of_topics_that_are_read_are_not_deleted(rig: Rig) -> None:
    rig.create("others")
    joined = join(rig)
    sync(rig, joined)
    for topic in ("logs", "others"):
        assert commit(rig, 5, joined, topic) is ErrorCode.NONE
    topics = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
        )
        for name in ("logs", "others", "none")
    ]

    def delete(group_id: str = "g") -> Any:
        return rig.ask(OffsetDeleteRequest(group_id=group_id, topics=topics), 0)

    assert [one.partitions[0].error_code for one in delete().topics] == [
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]  # fmt: skip
    assert stored(rig) == {"logs": 5}
    assert delete("none").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete("").error_code == ErrorCode.INVALID_GROUP_ID
    rig.ask(LeaveGroupRequest(group_id="g", member_id=joined.member_id), 2)
    assert delete().topics[0].partitions[0].error_code == 0
    assert stored(rig) == {}


def stored(rig: Rig) -> dict[str, int]:
    """Return every offset that the group has committed, by topic."""
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    (group,) = rig.ask(asked, 8).groups
    return {one.name: one.partitions[0].committed_offset for one in group.topics}


def test_in_doubt_no_offset_is_said_to_be_deleted(rig: Rig) -> None:
    """The partition has no offset here, so the broker writes nothing. But the next coordinator can
    have one, so the broker must not report success."""
    assert commit(rig, 1) is ErrorCode.NONE
    place = OffsetDeleteRequestPartition(partition_index=1)
    topic = OffsetDeleteRequestTopic(name="logs", partitions=[place])
    request = OffsetDeleteRequest(group_id="g", topics=[topic])
    assert rig.ask(request, 0).error_code == 0
    rig.broker.parts.replicas.place = Doubtful(rig.clock)
    assert rig.ask(request, 0).error_code == ErrorCode.NOT_COORDINATOR


def test_offsets_of_a_group_of_another_kind_are_left_alone(rig: Rig) -> None:
    joined = join(rig, protocol_type="connect")
    rig.send(syncing(joined, 3, b"all"), 3)
    topic = OffsetDeleteRequestTopic(name="logs", partitions=[])
    answer = rig.ask(OffsetDeleteRequest(group_id="g", topics=[topic]), 0)
    assert answer.error_code == ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("version", ApiKey.OFFSET_FETCH.valid_versions)
def test_pitfall_08_every_version_of_fetch_knows_nothing_of_an_unknown_group(
    rig: Rig, version: int
) -> None:
    if version >= 8:
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="?", topics=None)])
        (group,) = rig.ask(asked, version).groups
        assert (group.error_code, group.topics) == (0, [])
        return
    topic = OffsetFetchRequestTopic(name="logs", partition_indexes=[0])
    answer = rig.ask(OffsetFetchRequest(group_id="?", topics=[topic]), version)
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (0, -1)


@pytest.mark.parametrize("version", ApiKey.OFFSET_FETCH.valid_versions)
def test_a_refused_fetch_of_offsets_never_looks_like_nothing_committed(
    rig: Rig, version: int
) -> None:
    """A consumer that reads a refusal as "no committed offset" would start at one end of the
    log."""
    commit(rig, 5)
    rig.broker.parts.groups.find("g").shard = None
    wanted = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if version >= 8:
        asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        (group,) = rig.ask(asked, version).groups
        assert (group.group_id, group.error_code, group.topics) == ("g", wanted, [])
        return
    topic = OffsetFetchRequestTopic(name="logs", partition_indexes=[0, 2])
    answer = rig.ask(OffsetFetchRequest(group_id="g", topics=[topic]), version)
    if version >= 2:
        assert answer.error_code == wanted
        return
    # Version 1 has no error code for the whole response, so each partition has the code.
    found = [(one.partition_index, one.error_code) for one in answer.topics[0].partitions]
    assert found == [(0, wanted), (2, wanted)]


def test_a_commit_too_large_for_the_log_says_so() -> None:
    """Each metadata text is within its limit, but together they exceed the size of a batch."""
    rig = undelayed(message_max_bytes=1_000)
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=7, committed_metadata="x" * 600
        )
        for index in range(3)
    ]

    def codes_of(count: int) -> list[ErrorCode]:
        topic = OffsetCommitRequestTopic(name="logs", partitions=partitions[:count])
        answer = rig.ask(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
        return [ErrorCode(one.error_code) for one in answer.topics[0].partitions]

    assert codes_of(3) == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 3
    assert stored(rig) == {}
    assert codes_of(1) == [ErrorCode.NONE]


def test_groups_and_offsets_are_forgotten_in_their_time() -> None:
    rig = undelayed(offsets_retention_minutes=10, offsets_retention_check_interval_ms=1_000)
    # Offsets do not expire while the group has members. The retention starts when the last member
    # leaves.
    live_longer_than_offsets(rig)
    rig.advance(9 * 60_000)
    rig.flusher.sync()
    assert stored(rig) == {"logs": 5}
    rig.advance(61_000)
    rig.flusher.sync()
    assert stored(rig) == {}
    assert describe(rig).group_state == "Dead"


def test_a_parked_join_delays_no_other_group(rig: Rig) -> None:
    """Heartbeats of other groups are answered while a join waits, because they use other
    connections."""
    first = join(rig)
    sync(rig, first)
    second = rig.ask(joining(), 9)
    waiting: Asked = rig.send(joining(second.member_id), 9)
    assert beat(rig, first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert not waiting.is_answered()
    join(rig, member_id=first.member_id)
    assert waiting.answer.generation_id == 2
