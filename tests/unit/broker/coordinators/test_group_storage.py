"""The stored records of groups: Kafka's bytes, expiry by Kafka's rules, open transactions."""

from dataclasses import replace

import pytest

from broker.coordinators.group_records import (
    CommittedOffset,
    GroupMetadataMember,
    GroupMetadataValue,
    decode_group_key,
    decode_group_value,
    encode_group_record,
    encode_offset_key,
    encode_offset_value,
    subscribed_topics,
)
from broker.coordinators.group_state import GroupState
from broker.coordinators.offsets import GroupShard
from broker.coordinators.outcome import CoordinatorRecord
from protocol.errors import ApiError, CorruptBatch, ErrorCode
from protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.types import TopicPartition
from protocol.wire.record import NewRecord
from protocol.wire.records import BatchHeader, Marker, build_batch, read_header
from tests.unit.broker.group_scene import GROUP, LOGS_ID, RETENTION_MS, Client, Scene, subscription

T0 = TopicPartition("t", 0)

VALUE = GroupMetadataValue(
    protocol_type="consumer",
    generation=7,
    protocol="range",
    leader="a-1",
    current_state_timestamp=256,
    members=[
        GroupMetadataMember(
            member_id="a-1", group_instance_id="i1", client_id="a", client_host="/h",
            rebalance_timeout=30_000, session_timeout=10_000, subscription=b"\x01",
            assignment=b"\x02",
        )
    ],
)  # fmt: skip


def test_a_generation_is_kept_in_kafkas_bytes() -> None:
    record = encode_group_record("grp", VALUE)
    assert record.key == b"\x00\x02\x00\x03grp"
    assert record.value == (
        b"\x00\x03" b"\x00\x08consumer" b"\x00\x00\x00\x07" b"\x00\x05range" b"\x00\x03a-1"
        b"\x00\x00\x00\x00\x00\x00\x01\x00" b"\x00\x00\x00\x01"
        b"\x00\x03a-1" b"\x00\x02i1" b"\x00\x01a" b"\x00\x02/h"
        b"\x00\x00\x75\x30" b"\x00\x00\x27\x10" b"\x00\x00\x00\x01\x01" b"\x00\x00\x00\x01\x02"
    )  # fmt: skip
    assert decode_group_key(record.key) == "grp"
    assert decode_group_value(record.value) == VALUE


@pytest.mark.parametrize("version", range(5))
def test_a_generation_is_read_in_every_version_kafka_has_written(version: int) -> None:
    found = decode_group_value(version.to_bytes(2, "big") + VALUE.encode(version))
    assert (found.generation, found.leader, found.members[0].session_timeout) == (7, "a-1", 10_000)
    assert found.current_state_timestamp == (256 if version >= 2 else -1)
    assert found.members[0].rebalance_timeout == (30_000 if version >= 1 else -1)
    assert found.members[0].group_instance_id == ("i1" if version >= 3 else None)


def test_a_group_of_an_old_log_goes_on_too() -> None:
    """Version 0 has no rebalance timeout, so the session timeout is used."""
    scene = Scene()
    key = encode_group_record(GROUP, VALUE).key
    scene.log.append(CoordinatorRecord(key, b"\x00\x00" + VALUE.encode(0)))
    scene.restart()
    assert scene.group.roster.rebalance_timeout_ms == 10_000
    member = Client("a", member_id="a-1", generation=7)
    assert scene.heartbeat(member) is ErrorCode.NONE


def test_broken_records_are_not_skipped() -> None:
    record = encode_group_record("grp", VALUE)
    assert record.value is not None
    for key, value in ((record.key[:-1], record.value), (record.key, record.value[:-1])):
        scene = Scene()
        scene.log.append(CoordinatorRecord(key, value))
        with pytest.raises(CorruptBatch):
            scene.restart()


def test_topics_are_found_in_subscriptions_and_nowhere_else() -> None:
    known = subscribed_topics([subscription("a", "b"), subscription("b", "c")])
    assert known == frozenset("abc")
    assert subscribed_topics([]) == frozenset()
    assert subscribed_topics([subscription("a"), b"\x00"]) is None


# Expiry.


def forget(scene: Scene, now_ms: int) -> int:
    """Remove everything that has expired at this time. Return the number of tombstones."""
    scene.now_ms = now_ms
    tombstones = scene.shard.expiry.tombstones(scene.shard.expiry.due(now_ms), now_ms)
    scene.write(*tombstones)
    return len(tombstones)


def test_offsets_expire_from_when_the_group_became_empty() -> None:
    scene, a = Scene(), Client("a", session_ms=60_000)
    scene.join(a)
    scene.sync(a)
    scene.commit(a, 5)
    scene.pass_to(50_000)
    scene.leave(a)
    assert forget(scene, RETENTION_MS) == 0
    assert forget(scene, 50_000 + RETENTION_MS - 1) == 0
    assert forget(scene, 50_000 + RETENTION_MS) == 2, "the offset and the generation"
    assert scene.shard.state(GROUP) is GroupState.DEAD
    scene.restart()
    assert scene.shard.state(GROUP) is GroupState.DEAD


def test_when_a_group_became_empty_outlives_a_restart() -> None:
    scene, a = Scene(), Client("a", session_ms=60_000)
    scene.join(a)
    scene.sync(a)
    scene.commit(a, 5)
    scene.pass_to(50_000)
    scene.leave(a)
    scene.now_ms = 90_000
    scene.restart()
    assert forget(scene, 50_000 + RETENTION_MS - 1) == 0
    assert forget(scene, 50_000 + RETENTION_MS) == 2


def test_what_members_read_does_not_expire_and_what_they_left_does() -> None:
    scene, a = Scene(), Client("a", said=subscription("t"))
    scene.join(a)
    scene.sync(a)
    scene.commit(a, 5, "t")
    scene.commit(a, 5, "left")
    assert forget(scene, RETENTION_MS) == 1
    assert scene.shard.committed(GROUP, T0) is not None
    assert scene.shard.committed(GROUP, TopicPartition("left", 0)) is None


@pytest.mark.parametrize("client", [Client("a", said=b"?"), Client("a", protocol_type="connect")])
def test_without_known_subscriptions_nothing_expires(client: Client) -> None:
    scene = Scene()
    scene.join(client)
    scene.sync(client)
    scene.commit(client, 5)
    assert forget(scene, 10 * RETENTION_MS) == 0


def test_nothing_expires_while_a_group_rebalances() -> None:
    scene, a = Scene(), Client("a")
    scene.join(a)
    scene.sync(a)
    scene.commit(a, 5, "left")
    scene.join(Client("b"))
    assert scene.group.state is GroupState.PREPARING_REBALANCE
    assert forget(scene, 10 * RETENTION_MS) == 0


def test_an_offset_that_is_set_in_an_old_empty_group_gets_its_full_time() -> None:
    """Kafka would remove such an offset at the next sweep, because the group has been empty for
    long."""
    scene, a = Scene(), Client("a")
    scene.join(a)
    scene.leave(a)
    scene.now_ms = RETENTION_MS - 1
    scene.commit(Client("tool"), 5)
    assert forget(scene, 2 * RETENTION_MS - 2) == 0
    assert forget(scene, 2 * RETENTION_MS - 1) == 2


def test_a_group_without_offsets_goes_once_it_is_empty() -> None:
    scene, a = Scene(), Client("a")
    scene.join(a)
    assert forget(scene, 1) == 0
    scene.leave(a)
    assert forget(scene, 2) == 1
    assert scene.shard.state(GROUP) is GroupState.DEAD


def test_a_group_that_is_deleted_is_there_until_its_tombstone_is_committed() -> None:
    scene, a = Scene(), Client("a")
    scene.join(a)
    scene.leave(a)
    tombstones = scene.shard.delete_group(GROUP)
    assert scene.group.state is GroupState.EMPTY
    b = Client("b")
    scene.join(b)
    scene.write(*tombstones)
    assert scene.heartbeat(b) is ErrorCode.NONE, "who came meanwhile has a group"
    scene.leave(b)
    scene.write(*scene.shard.delete_group(GROUP))
    assert scene.shard.state(GROUP) is GroupState.DEAD


def test_what_is_used_again_after_it_was_found_does_not_expire() -> None:
    """One turn of the loop finds the expired offsets, and later turns write the tombstones. An
    offset that is committed in between must stay."""
    scene, a = Scene(), Client("a")
    scene.join(a)
    scene.sync(a)
    for topic in ("old", "used"):
        scene.commit(a, 5, topic)
    scene.leave(a)
    scene.now_ms = RETENTION_MS
    found = scene.shard.expiry.due(scene.now_ms)
    assert len(found) == 3
    scene.commit(Client("tool"), 6, "used")
    (tombstone,) = scene.shard.expiry.tombstones(found, scene.now_ms)
    scene.write(tombstone)
    assert [one.topic for one in scene.shard.offsets.of_group(GROUP)] == ["used"]
    assert scene.group.state is GroupState.EMPTY, "the group stays with what is left of it"


# Transactions.


def written(scene: Scene, offset: int, base_offset: int, producer_id: int | None = None) -> None:
    """Return a batch with one commit for partition 0, with or without a transaction."""
    committed = CommittedOffset(offset, 3, "note", 10)
    record = CoordinatorRecord(encode_offset_key(GROUP, *T0), encode_offset_value(committed))
    scene.shard.replay_batch(header(base_offset, producer_id), [record])


def header(base_offset: int, producer_id: int | None) -> BatchHeader:
    batch = build_batch(
        [NewRecord(b"k", b"v", 0)],
        base_offset=base_offset,
        producer_id=-1 if producer_id is None else producer_id,
        producer_epoch=-1 if producer_id is None else 0,
        is_transactional=producer_id is not None,
    )
    return read_header(batch)


def ended(scene: Scene, producer_id: int, *, is_commit: bool) -> None:
    marker = Marker(is_commit=is_commit, coordinator_epoch=0)
    scene.shard.replay_marker(header(99, producer_id), marker)


def seen(scene: Scene) -> tuple[int | None, bool]:
    """Return the committed offset, and True if a pending transaction can still change it."""
    found = scene.shard.committed(GROUP, T0)
    return None if found is None else found.offset, scene.shard.offsets.is_unstable(GROUP, T0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_offset_in_a_transaction_counts_with_its_marker(is_commit: bool) -> None:
    scene = Scene()
    written(scene, 5, 0)
    written(scene, 6, 1, producer_id=1000)
    assert seen(scene) == (5, True)
    ended(scene, 1001, is_commit=True)
    assert seen(scene) == (5, True), "another producer's marker"
    ended(scene, 1000, is_commit=is_commit)
    assert seen(scene) == (6 if is_commit else 5, False)


def test_what_was_written_later_counts_whenever_the_marker_comes() -> None:
    scene = Scene()
    written(scene, 6, 1, producer_id=1000)
    written(scene, 9, 2)
    ended(scene, 1000, is_commit=True)
    assert seen(scene) == (9, False)


def test_two_transactions_keep_a_place_unstable_until_both_have_ended() -> None:
    scene = Scene()
    written(scene, 6, 1, producer_id=1000)
    written(scene, 7, 2, producer_id=1001)
    written(scene, 8, 3, producer_id=1000)
    ended(scene, 1001, is_commit=True)
    assert seen(scene) == (7, True)
    ended(scene, 1000, is_commit=True)
    assert seen(scene) == (8, False)


def test_a_group_is_known_by_an_open_transaction_and_its_offsets_do_not_expire() -> None:
    scene = Scene()
    written(scene, 5, 0)
    written(scene, 6, 1, producer_id=1000)
    assert forget(scene, 10 * RETENTION_MS) == 0
    scene = Scene()
    written(scene, 6, 1, producer_id=1000)
    assert scene.shard.state(GROUP) is GroupState.EMPTY
    assert [one.group_id for one in scene.shard.listed([])] == [GROUP]


def test_deleting_takes_what_a_transaction_holds_too() -> None:
    scene = Scene()
    written(scene, 6, 1, producer_id=1000)
    scene.shard.replay_batch(header(2, None), scene.shard.delete_group(GROUP))
    ended(scene, 1000, is_commit=True)
    assert seen(scene) == (None, False)
    with pytest.raises(ApiError):
        scene.shard.delete_group(GROUP)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_tombstone_takes_nothing_that_was_written_behind_it(is_commit: bool) -> None:
    """The offsets of a transaction are replayed when they are written, but a tombstone only when it
    is committed. So a tombstone can be replayed after offsets that follow it in the log."""
    scene = Scene()
    written(scene, 5, 0)
    written(scene, 6, 1, producer_id=1000)
    written(scene, 8, 3, producer_id=1001)
    tombstone = CoordinatorRecord(encode_offset_key(GROUP, *T0), None)
    scene.shard.replay_batch(header(2, None), [tombstone])
    assert seen(scene) == (None, True)
    ended(scene, 1000, is_commit=True)
    assert seen(scene) == (None, True)
    ended(scene, 1001, is_commit=is_commit)
    assert seen(scene) == (8 if is_commit else None, False)


def transactional(client: Client, group_id: str = GROUP) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata="note"
    )
    return TxnOffsetCommitRequest(
        group_id=group_id,
        producer_id=1000,
        generation_id=client.generation,
        member_id=client.member_id,
        group_instance_id=client.instance,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


def judged(shard: GroupShard, request: TxnOffsetCommitRequest) -> ErrorCode:
    try:
        outcome = shard.commit_in_transaction(request, 0, lambda topic, index: LOGS_ID)
    except ApiError as error:
        return error.code
    code = ErrorCode(outcome.reply.topics[0].partitions[0].error_code)
    assert bool(outcome.records) == (code is ErrorCode.NONE)
    return code


def test_a_transactional_commit_fences_zombies_of_the_group() -> None:
    """KIP-447. A commit without a member id and a generation is not checked, as before version
    3."""
    scene, a = Scene(), Client("a", instance="i1")
    stranger = Client("x", member_id="stranger", generation=1)
    assert judged(scene.shard, transactional(Client("fresh"))) is ErrorCode.NONE
    assert judged(scene.shard, transactional(stranger)) is ErrorCode.UNKNOWN_MEMBER_ID
    scene.join(a)
    assert judged(scene.shard, transactional(a)) is ErrorCode.NONE, "also before it is stable"
    assert judged(scene.shard, transactional(stranger)) is ErrorCode.UNKNOWN_MEMBER_ID
    twin = Client("x", instance="i1", member_id="stranger", generation=1)
    assert judged(scene.shard, transactional(twin)) is ErrorCode.FENCED_INSTANCE_ID
    old = Client("x", instance="i1", member_id=a.member_id, generation=0)
    assert judged(scene.shard, transactional(old)) is ErrorCode.ILLEGAL_GENERATION
    assert judged(scene.shard, transactional(Client("fresh"))) is ErrorCode.NONE
    assert judged(scene.shard, transactional(a, "")) is ErrorCode.INVALID_GROUP_ID


def test_an_empty_group_takes_transactional_commits_of_anybody_without_a_generation() -> None:
    """A consumer that assigns its partitions itself can still have an instance id, for example in
    Java."""
    scene, a = Scene(), Client("a")
    alone = Client("x", instance="i1", member_id="x", generation=-1)
    assert judged(scene.shard, transactional(alone)) is ErrorCode.NONE
    scene.join(a)
    assert judged(scene.shard, transactional(alone)) is ErrorCode.UNKNOWN_MEMBER_ID
    scene.leave(a)
    assert judged(scene.shard, transactional(alone)) is ErrorCode.NONE


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_static_member_that_could_not_be_stored_leaves_the_others_what_they_agreed_on(
    is_complete: bool,
) -> None:
    """Member c supports only `sticky`. It was admitted because the returning member supports
    `sticky` too, so the group must keep that protocol."""
    a = Client("a", instance="i1", protocols=("range",), session_ms=60_000)
    b = Client("b", protocols=("range", "sticky"))
    scene = Scene()
    for client in (a, b, a):
        scene.join(client)
    for client in (a, b):
        scene.sync(client)
    scene.is_held = True
    back = scene.join(replace(a, member_id="", protocols=("range", "sticky")))
    answers = [back, scene.join(Client("c", protocols=("sticky",)))]
    scene.let_store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if is_complete:
        answers.append(scene.join(b))
    else:
        scene.pass_to(b.rebalance_ms)
    assert {one.joined.protocol_name for one in answers} == {"sticky"}
