"""Committed offsets of groups without members: accepted, returned, and expired."""

from collections.abc import Iterator
from random import Random
from uuid import UUID

import pytest

from broker.coordinators.group_records import (
    CommittedOffset,
    decode_offset_key,
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from broker.coordinators.group_state import GroupState
from broker.coordinators.group_terms import GroupLimits, Moment
from broker.coordinators.offset_table import GroupPartition, OffsetTable
from broker.coordinators.offsets import GroupShard
from broker.coordinators.outcome import CoordinatorRecord
from protocol.errors import ApiError, CorruptBatch, ErrorCode
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.types import ZERO_UUID, TopicPartition

LOGS, NAMESAKE = UUID(int=7), UUID(int=8)
RETENTION_MS = 10_000
NOTE_MAX = 8
GROUP_COUNT_MAX = 9


def new_shard() -> GroupShard:
    limits = GroupLimits(0, 10, 1, 1000, GROUP_COUNT_MAX, 10, 1_000)
    shard = GroupShard(limits, NOTE_MAX, RETENTION_MS, Random(1))
    shard.loaded(at(0))
    return shard


def at(wall_ms: int) -> Moment:
    return Moment(0, wall_ms)


def topic_with(topic: str, index: int) -> UUID | None:
    return LOGS if topic == "logs" and index < 3 else None


def request(
    offset: int = 5,
    *,
    group_id: str = "g",
    partition: int = 0,
    topic: str = "logs",
    metadata: str | None = "note",
    leader_epoch: int = 2,
    generation_id: int = -1,
    member_id: str = "",
    retention_ms: int = -1,
) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation_id,
        member_id=member_id,
        retention_time_ms=retention_ms,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=offset,
                        committed_leader_epoch=leader_epoch,
                        committed_metadata=metadata,
                    )
                ],
            )
        ],
    )


def commit(shard: GroupShard, wanted: OffsetCommitRequest, now_ms: int = 100) -> ErrorCode:
    """Validate a commit, and replay the records that it writes."""
    try:
        outcome = shard.commit(wanted, at(now_ms), topic_with)
    except ApiError as error:
        return error.code
    for record in outcome.records:
        shard.replay(record.key, record.value)
    return ErrorCode(outcome.reply.topics[0].partitions[0].error_code)


def committed(shard: GroupShard, partition: int = 0) -> CommittedOffset | None:
    return shard.committed("g", TopicPartition("logs", partition))


def test_pitfall_30_metadata_and_leader_epoch_come_back_unchanged() -> None:
    shard = new_shard()
    assert commit(shard, request(5, metadata="ä|x", leader_epoch=7)) is ErrorCode.NONE
    assert committed(shard) == CommittedOffset(5, 7, "ä|x", 100, topic_id=LOGS)
    assert commit(shard, request(6, metadata="ä" * NOTE_MAX)) is ErrorCode.NONE


def test_a_commit_is_visible_only_when_replayed() -> None:
    shard = new_shard()
    outcome = shard.commit(request(5), at(100), topic_with)
    assert committed(shard) is None
    shard.replay(*outcome.records[0])
    assert committed(shard) is not None


def test_no_metadata_is_empty_metadata() -> None:
    shard = new_shard()
    commit(shard, request(metadata=None))
    found = committed(shard)
    assert found is not None
    assert found.metadata == ""


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (request(topic="none"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request(partition=3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (request(metadata="🌊🌊🌊🌊x"), ErrorCode.OFFSET_METADATA_TOO_LARGE),
        (request(generation_id=4, member_id="m"), ErrorCode.UNKNOWN_MEMBER_ID),
        (request(group_id="new", generation_id=0, member_id="m"), ErrorCode.ILLEGAL_GENERATION),
    ],
)
def test_refused_commits_write_nothing(wanted: OffsetCommitRequest, code: ErrorCode) -> None:
    shard = new_shard()
    commit(shard, request(1))
    before = committed(shard)
    assert commit(shard, wanted, now_ms=200) is code
    assert committed(shard) == before and shard.offsets.groups.keys() == {"g"}


def test_one_bad_partition_does_not_refuse_the_others() -> None:
    shard = new_shard()
    wanted = request()
    wanted.topics += request(topic="none").topics
    outcome = shard.commit(wanted, at(100), topic_with)
    assert [one.partitions[0].error_code for one in outcome.reply.topics] == [0, 3]
    assert len(outcome.records) == 1


def test_a_shard_has_a_limit_of_groups() -> None:
    shard = new_shard()
    shard.offsets.groups = {f"g{number}": {} for number in range(GROUP_COUNT_MAX)}
    assert commit(shard, request(group_id="one more")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert commit(shard, request(group_id="g7")) is ErrorCode.NONE


def commit_in_transaction(shard: GroupShard, group_id: str, log_offset: int) -> ErrorCode:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5)
    wanted = TxnOffsetCommitRequest(
        group_id=group_id,
        topics=[TxnOffsetCommitRequestTopic(name="logs", partitions=[partition])],
    )
    try:
        outcome = shard.commit_in_transaction(wanted, 100, topic_with)
    except ApiError as error:
        return error.code
    for record in outcome.records:
        shard.replay(record.key, record.value, log_offset, 1000)
    return ErrorCode(outcome.reply.topics[0].partitions[0].error_code)


def test_groups_that_only_a_transaction_knows_count_for_the_limit() -> None:
    shard = new_shard()
    commit(shard, request(group_id="g0"))
    names = [f"g{number}" for number in range(GROUP_COUNT_MAX)]
    for log_offset, name in enumerate([*names, *names]):
        assert commit_in_transaction(shard, name, log_offset) is ErrorCode.NONE
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert commit_in_transaction(shard, "one more", 99) is full
    assert commit(shard, request(group_id="one more")) is full
    assert commit(shard, request(group_id="g7")) is ErrorCode.NONE
    shard.offsets.resolve(1000, is_commit=False)
    assert commit_in_transaction(shard, "one more", 100) is ErrorCode.NONE


class OneByOne(OffsetTable):
    """A table that fails if all of it is iterated."""

    def places(self) -> Iterator[GroupPartition]:
        raise AssertionError("all places are looked at for the sake of one group")


def test_deleting_a_group_does_not_look_at_the_others() -> None:
    """A request can delete every group of a shard. If each deletion searched through all groups,
    the request would be slow."""
    shard = new_shard()
    shard.offsets = OneByOne()
    commit(shard, request(partition=1))
    commit_in_transaction(shard, "g", 1)
    commit(shard, request(group_id="other"))
    keys = {record.key for record in shard.delete_group("g")}
    assert keys == {encode_offset_key("g", "logs", partition) for partition in (0, 1)}


def test_pitfall_08_an_unknown_group_has_nothing_and_is_dead() -> None:
    shard = new_shard()
    assert committed(shard) is None
    assert shard.state("g") is GroupState.DEAD
    commit(shard, request())
    assert shard.state("g") is GroupState.EMPTY


def test_offsets_expire_from_their_commit_and_the_group_with_the_last() -> None:
    shard = new_shard()
    commit(shard, request(partition=0), now_ms=1_000)
    commit(shard, request(partition=1), now_ms=2_000)
    assert shard.expiry.due(1_000 + RETENTION_MS - 1) == []
    for end_ms in (1_000 + RETENTION_MS, 2_000 + RETENTION_MS):
        tombstones = shard.expiry.tombstones(shard.expiry.due(end_ms), end_ms)
        assert len(tombstones) == 1
        for record in tombstones:
            shard.replay(record.key, record.value)
    assert shard.state("g") is GroupState.DEAD


def test_a_commit_may_bring_its_own_expiry() -> None:
    shard = new_shard()
    commit(shard, request(retention_ms=50), now_ms=1_000)
    assert shard.expiry.due(1_049) == []
    assert len(shard.expiry.due(1_050)) == 1


def test_pitfall_45_offsets_of_a_deleted_topic_are_void() -> None:
    shard = new_shard()
    commit(shard, request())
    for record in shard.of_topics({"logs"}):
        shard.replay(record.key, record.value)
    assert committed(shard) is None


def test_what_was_under_way_behind_an_older_tombstone_goes_with_its_topic() -> None:
    """An offset was deleted and committed again. Then its topic was deleted before the commit was
    on disk, so the commit must be removed too."""
    shard = new_shard()
    (record,) = shard.commit(request(), at(100), topic_with).records
    tombstone = CoordinatorRecord(record.key, None)
    shard.replay(record.key, record.value, 4)
    shard.void([tombstone], 7)
    shard.replay(record.key, None, 5)
    shard.replay(record.key, record.value, 6)
    assert committed(shard) is None
    assert shard.voided() == [tombstone]
    shard.replay(record.key, None, 7)
    assert shard.voided() == []
    shard.replay(record.key, record.value, 8)
    assert committed(shard) is not None


def test_groups_are_listed_by_state_whatever_the_case() -> None:
    shard = new_shard()
    commit(shard, request())
    assert [one.group_id for one in shard.listed([])] == ["g"]
    assert [one.group_id for one in shard.listed(["empty", "Stable"])] == ["g"]
    assert not list(shard.listed(["Stable"]))


def test_keys_and_values_are_kafkas_bytes() -> None:
    assert encode_offset_key("grp", "t", 3) == (b"\x00\x01\x00\x03grp\x00\x01t\x00\x00\x00\x03")
    assert encode_offset_value(CommittedOffset(9, 2, "m", 256)) == (
        b"\x00\x03" b"\x00\x00\x00\x00\x00\x00\x00\x09" b"\x00\x00\x00\x02" b"\x00\x01m"
        b"\x00\x00\x00\x00\x00\x00\x01\x00"
    )  # fmt: skip
    assert encode_offset_value(CommittedOffset(9, 2, "m", 256, topic_id=LOGS)) == (
        b"\x00\x04" b"\x00\x00\x00\x00\x00\x00\x00\x09" b"\x00\x00\x00\x02" b"\x02m"
        b"\x00\x00\x00\x00\x00\x00\x01\x00" b"\x01\x00\x10" + LOGS.bytes
    )  # fmt: skip


def test_what_is_written_is_read_back() -> None:
    key = decode_offset_key(encode_offset_key("grp", "t", 3))
    assert key is not None
    assert (key.group, key.topic, key.partition) == ("grp", "t", 3)
    plain = CommittedOffset(9, 2, "m", 256)
    expiring = CommittedOffset(9, -1, "m", 256, 999)
    with_id = CommittedOffset(9, 2, "m", 256, topic_id=LOGS)
    for committed_offset in (plain, expiring, with_id):
        assert decode_offset_value(encode_offset_value(committed_offset)) == committed_offset


def test_other_kinds_of_keys_are_skipped_and_broken_ones_are_not() -> None:
    shard = new_shard()
    shard.replay(b"\x00\x03\x00\x01g", b"whatever")
    assert not shard.offsets.groups
    with pytest.raises(CorruptBatch):
        shard.replay(b"\x00\x01\x00\x09g", b"")


def test_a_tombstone_for_what_is_not_there_changes_nothing() -> None:
    shard = new_shard()
    shard.replay(*CoordinatorRecord(encode_offset_key("g", "logs", 0), None))
    assert not shard.offsets.groups


def test_an_offset_may_be_kept_for_longer_than_there_are_numbers() -> None:
    shard = new_shard()
    commit(shard, request(retention_ms=2**63 - 1), now_ms=1_000)
    assert shard.expiry.due(2**62) == []


@pytest.mark.parametrize(
    ("committed_for", "pending_for", "left", "is_empty"),
    [
        (LOGS, None, None, True),
        (NAMESAKE, None, 5, False),
        (ZERO_UUID, None, 5, False),
        (None, LOGS, None, True),
        (None, NAMESAKE, 6, False),
        (LOGS, LOGS, None, True),
        (LOGS, NAMESAKE, 6, False),
        (NAMESAKE, LOGS, 5, False),
    ],
)
def test_offsets_of_a_topic_that_went_are_none_of_its_namesakes(
    committed_for: UUID | None, pending_for: UUID | None, left: int | None, is_empty: bool
) -> None:
    """A committed offset without a topic id, as old versions wrote it, stays, because its topic is
    unknown."""
    table, place = OffsetTable(), GroupPartition("g", TopicPartition("logs", 0))
    if committed_for is not None:
        table.put(place, CommittedOffset(5, 2, "", 1, topic_id=committed_for, log_offset=1))
    if pending_for is not None:
        table.put_pending(
            7, place, CommittedOffset(6, 2, "", 1, topic_id=pending_for, log_offset=2)
        )
    assert table.remove_strange(lambda topic: NAMESAKE) == [place] * is_empty
    assert table.is_unstable(*place) is (pending_for is NAMESAKE)
    table.resolve(7, is_commit=True)
    found = table.get(*place)
    assert (found and found.offset) == left
    assert table.remove_strange(lambda topic: None) == [place] * (left is not None)
    assert not table.group_ids()
