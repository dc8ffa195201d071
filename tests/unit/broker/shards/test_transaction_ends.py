"""Ends of transactions in a whole broker: markers, failures, offsets, and the answers about
them."""

import random

import pytest

from broker.coordinators.txn import TxnShard
from broker.metadata.image import OFFSETS_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
)
from protocol.messages.topics import DeleteTopicsRequest
from protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    ProducersTopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.types import TopicPartition
from protocol.wire.records import iterate_batches
from tests.unit.broker.rig import Begun, Rig
from tests.unit.broker.txn_rig import (
    ABORT_CHECK_MS,
    GROUP,
    TRANSACTION,
    A,
    B,
    TxnProducer,
    fetch,
    make_coordinators,
    plain,
    read_stable,
    settle,
)

# Markers and their failures.


def test_pitfall_26_a_decision_is_finished_after_a_restart(rig: Rig) -> None:
    producer = TxnProducer(rig).ready()
    producer.add(A, B)
    producer.put(A, b"a")
    producer.put(B, b"b")
    assert producer.end() is ErrorCode.NONE
    # EndTxn is answered, so the decision is on the disk, but the markers are not.
    rig.power_cut(random.Random(1))
    settle(rig)
    assert read_stable(rig, "t", 0) == [b"a"]
    assert read_stable(rig, "t", 1) == [b"b"]
    assert producer.end() is ErrorCode.NONE


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_leaves_nothing_open_for_ever_even_with_unsynced_data(seed: int) -> None:
    rig = Rig(log_flush_interval_messages=10_000)
    rig.create("t", 2)
    make_coordinators(rig)
    rig.disk.now_ms = rig.clock.now_ms()
    producer = TxnProducer(rig).ready()
    assert producer.add(A, B) == [ErrorCode.NONE, ErrorCode.NONE]
    for partition in (A, B):
        assert producer.put(partition, b"x") is ErrorCode.NONE
    rig.power_cut(random.Random(seed))
    rig.advance(producer.timeout_ms + ABORT_CHECK_MS + 1)
    settle(rig)
    for partition in (A, B):
        log = rig.broker.parts.replicas.find(*partition).log
        assert log.last_stable_offset == log.log_end_offset


def test_what_was_not_decided_is_open_after_a_restart_and_can_be_ended(rig: Rig) -> None:
    producer = TxnProducer(rig).ready()
    producer.add(A)
    producer.put(A, b"a")
    rig.power_cut(random.Random(1))
    settle(rig)
    assert read_stable(rig, "t") == []
    assert producer.put(A, b"b") is ErrorCode.NONE
    assert producer.end() is ErrorCode.NONE
    settle(rig)
    assert read_stable(rig, "t") == [b"a", b"b"]


def test_markers_that_a_full_disk_refuses_are_written_later(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.add(A, B)
    producer.put(A, b"a")
    producer.put(B, b"b")
    ending = rig.send(producer.end_request(is_commit=True), 3)
    rig.disk.capacity_bytes = 0
    settle(rig)
    assert ending.answer.error_code == 0
    assert producer.add(A) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert read_stable(rig, "t", 0) == []
    rig.disk.capacity_bytes = None
    rig.advance(5_000)
    settle(rig)
    assert (read_stable(rig, "t", 0), read_stable(rig, "t", 1)) == ([b"a"], [b"b"])
    assert producer.add(A) == [ErrorCode.NONE]


def test_a_partition_that_is_no_more_keeps_no_transaction_open(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.add(A, B)
    rig.ask(DeleteTopicsRequest(topic_names=["t"]), 5)
    settle(rig)
    rig.create("t", 1)
    assert producer.end() is ErrorCode.NONE
    settle(rig)
    assert producer.add(A) == [ErrorCode.NONE]


@pytest.mark.parametrize("key_type", [GROUP, TRANSACTION])
def test_a_coordinator_begins_when_a_full_disk_has_room_again(key_type: int) -> None:
    rig = Rig()
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
    rig.send(request, 4)
    rig.disk.capacity_bytes = 0
    settle(rig)
    assert rig.broker.parts.replicas.unmade
    rig.disk.capacity_bytes = None
    rig.advance(2_000)
    settle(rig)
    shards = (rig.broker.parts.groups, rig.broker.parts.transactions)[key_type]
    assert shards.find("x").shard is not None


def test_a_decision_that_a_full_disk_refuses_has_not_been_made(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.add(A)
    producer.put(A, b"a")
    rig.disk.capacity_bytes = 0
    assert producer.end() is ErrorCode.NOT_COORDINATOR
    rig.disk.capacity_bytes = None
    assert producer.end(is_commit=False) is ErrorCode.NONE
    settle(rig)
    assert read_stable(rig, "t") == []


def test_what_a_full_disk_refuses_of_a_transaction_makes_clients_look_for_its_coordinator(
    rig: Rig, producer: TxnProducer
) -> None:
    """Kafka returns NOT_COORDINATOR when it cannot write the transaction log."""
    producer.add(A)
    rig.disk.capacity_bytes = 0
    codes = [
        *producer.add(B),
        producer.add_offsets("g"),
        producer.end(),
        TxnProducer(rig, "other").init(),
    ]
    assert codes == [ErrorCode.NOT_COORDINATOR] * 4
    rig.disk.capacity_bytes = None
    assert producer.add(B) == [ErrorCode.NONE]
    assert producer.add_offsets("g") is ErrorCode.NONE
    assert producer.end() is ErrorCode.NONE


def test_a_topic_deleted_in_mid_transaction_holds_nothing_up(
    rig: Rig, producer: TxnProducer
) -> None:
    rig.create("gone")
    producer.add(A, TopicPartition("gone", 0))
    producer.put(A, b"a")
    rig.ask(DeleteTopicsRequest(topic_names=["gone"]), 5)
    producer.end()
    settle(rig)
    assert producer.add(A) == [ErrorCode.NONE]
    assert read_stable(rig, "t") == [b"a"]


def test_an_overdue_transaction_is_aborted_and_its_producer_fenced(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.add(A)
    producer.put(A, b"x")
    rig.advance(producer.timeout_ms - ABORT_CHECK_MS)
    settle(rig)
    assert producer.put(A, b"y") is ErrorCode.NONE
    rig.advance(2 * ABORT_CHECK_MS)
    settle(rig)
    assert fetch(rig).last_stable_offset == 3
    assert read_stable(rig, "t") == []
    assert producer.put(A, b"z") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.end() is ErrorCode.PRODUCER_FENCED


def test_an_unused_id_expires(rig: Rig, producer: TxnProducer) -> None:
    producer.write((A, b"x"))
    rig.advance(rig.broker.config.transactional_id_expiration_ms + 1)
    settle(rig)
    assert producer.add(A) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert producer.init(resumes=True) is ErrorCode.NONE


def test_a_clock_that_is_set_ahead_takes_no_id_from_its_producer(
    rig: Rig, producer: TxnProducer
) -> None:
    """The same holds for a machine that was suspended for a week."""
    config = rig.broker.config
    producer.write((A, b"x"))
    rig.clock.set_wall_clock(rig.clock.now_ms() + config.transactional_id_expiration_ms)
    rig.advance(config.transaction_remove_expired_transaction_cleanup_interval_ms)
    settle(rig)
    assert producer.add(A) == [ErrorCode.NONE]


def test_ids_that_take_many_batches_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search through all ids of all shards for every batch would block the loop for seconds."""
    rig = Rig(None, transactional_id_expiration_ms=1_000, transaction_state_log_num_partitions=3)
    make_coordinators(rig)
    settle(rig)
    names = [f"{number:02}".ljust(20_000, "x") for number in range(24)]
    assert {TxnProducer(rig, name).init() for name in names} == {ErrorCode.NONE}
    looked: list[TxnShard] = []
    look = TxnShard.expired

    def expired(shard: TxnShard, now_ms: int) -> list[str]:
        looked.append(shard)
        return look(shard, now_ms)

    monkeypatch.setattr(TxnShard, "expired", expired)
    rig.clock.advance(1_000)
    transactions = rig.broker.parts.transactions
    transactions.expire()
    settle(rig)
    assert not any(one.transactions for one in transactions.shards())
    assert looked == list(transactions.shards())


def test_the_longest_ids_expire_too_many_of_them_at_once() -> None:
    """The tombstones of 40 such ids do not fit into one batch."""
    rig = Rig(transaction_state_log_num_partitions=1)
    make_coordinators(rig)
    for number in range(40):
        TxnProducer(rig, f"{number:02}".ljust(32_000, "x")).ready()
    settle(rig)
    rig.advance(rig.broker.config.transactional_id_expiration_ms + 1)
    settle(rig)
    assert not any(one.transactions for one in rig.broker.parts.transactions.shards())


# Offsets in transactions.


def offset_of(rig: Rig, *, require_stable: bool = False) -> OffsetFetchResponsePartitions:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=topics)],
        require_stable=require_stable,
    )
    found: OffsetFetchResponsePartitions = rig.ask(request, 8).groups[0].topics[0].partitions[0]
    return found


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 7), (False, -1)])
def test_offsets_count_when_their_transaction_is_committed(
    rig: Rig, producer: TxnProducer, is_commit: bool, offset: int
) -> None:
    assert producer.add_offsets("g") is ErrorCode.NONE
    assert producer.commit_offsets("g", {A: 7}) == [ErrorCode.NONE]
    assert offset_of(rig).committed_offset == -1
    unstable = offset_of(rig, require_stable=True).error_code
    assert unstable == ErrorCode.UNSTABLE_OFFSET_COMMIT
    producer.end(is_commit=is_commit)
    settle(rig)
    assert offset_of(rig, require_stable=True).committed_offset == offset
    rig.power_cut(random.Random(3))
    settle(rig)
    assert offset_of(rig, require_stable=True).committed_offset == offset


def test_offsets_that_are_written_and_not_synced_are_unstable_already(
    rig: Rig, producer: TxnProducer
) -> None:
    """Otherwise a member that takes the partition over would begin at an old offset."""
    producer.add_offsets("g")
    begun = rig.flusher.begin
    rig.flusher.begin = lambda: Begun([], 0)  # type: ignore[method-assign]  # nothing gets synced
    with pytest.raises(AssertionError):
        producer.commit_offsets("g", {A: 7})
    assert offset_of(rig, require_stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    rig.flusher.begin = begun  # type: ignore[method-assign]


def test_open_offsets_survive_a_restart_and_are_still_unstable(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.add_offsets("g")
    producer.commit_offsets("g", {A: 7})
    rig.power_cut(random.Random(2))
    settle(rig)
    unstable = offset_of(rig, require_stable=True).error_code
    assert unstable == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert producer.end() is ErrorCode.NONE
    settle(rig)
    assert offset_of(rig, require_stable=True).committed_offset == 7


def test_offsets_need_their_group_to_be_in_the_transaction(producer: TxnProducer) -> None:
    assert producer.commit_offsets("g", {A: 7}) == [ErrorCode.INVALID_TXN_STATE]
    producer.add(A)
    assert producer.commit_offsets("g", {A: 7}) == [ErrorCode.INVALID_TXN_STATE]


def test_a_fenced_producers_offsets_are_refused(rig: Rig, producer: TxnProducer) -> None:
    producer.add_offsets("g")
    TxnProducer(rig).ready()
    codes = producer.commit_offsets("g", {A: 7})
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH]


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.COORDINATOR_NOT_AVAILABLE), (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)],
)
def test_old_clients_do_not_know_that_a_coordinator_loads(
    rig: Rig, producer: TxnProducer, version: int, code: ErrorCode
) -> None:
    producer.add_offsets("g")
    for loaded, _ in rig.broker.parts.groups.loaded():
        loaded.shard = None
    assert producer.commit_offsets("g", {A: 7}, version) == [code]


def test_the_offsets_topic_is_made_for_the_first_group_of_all() -> None:
    rig = Rig()
    rig.ask(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["id"]), 4)
    producer = TxnProducer(rig).ready()
    assert producer.add_offsets("g") is ErrorCode.NONE
    assert OFFSETS_TOPIC in rig.broker.parts.metadata.image.topics


def test_offsets_carry_sequences_as_kafka_writes_them(rig: Rig, producer: TxnProducer) -> None:
    """Each commit starts at sequence 0, because a broker never repeats a commit and never continues
    a sequence."""
    producer.add_offsets("g")
    partition = rig.broker.parts.groups.find("g").replica
    topic = ProducersTopicRequest(name=OFFSETS_TOPIC, partition_indexes=[partition.index])
    for offsets in ({A: 1, B: 1}, {A: 2}):
        assert set(producer.commit_offsets("g", offsets)) == {ErrorCode.NONE}
        log = partition.log
        (described,) = rig.ask(DescribeProducersRequest(topics=[topic]), 0).topics[0].partitions
        (one,) = described.active_producers
        assert (one.producer_id, one.last_sequence) == (producer.producer_id, len(offsets) - 1)
        found = log.read(log.log_end_offset - 1, 1 << 20, log.log_end_offset).region
        assert found is not None
        ((header, _),) = iterate_batches(found.read())
        assert (header.base_sequence, header.record_count) == (0, len(offsets))


# Administration.


def marker_request(
    producer: TxnProducer, *, is_commit: bool = False, epoch: int | None = None, topic: str = "t"
) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch if epoch is None else epoch,
                transaction_result=is_commit,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
            )
        ]
    )


def marked(rig: Rig, request: WriteTxnMarkersRequest) -> ErrorCode:
    answer = rig.ask(request, 1)
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def test_an_administrator_aborts_what_hangs(rig: Rig, producer: TxnProducer) -> None:
    producer.add(A)
    producer.put(A, b"x")
    assert marked(rig, marker_request(producer, topic="none")) is (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    assert marked(rig, marker_request(producer)) is ErrorCode.NONE
    assert fetch(rig).last_stable_offset == 2
    assert read_stable(rig, "t") == []


def test_a_marker_of_an_old_epoch_is_refused(rig: Rig, producer: TxnProducer) -> None:
    newer = TxnProducer(rig).ready()
    newer.add(A)
    newer.put(A, b"x")
    assert marked(rig, marker_request(producer)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert fetch(rig).last_stable_offset == 0


def test_producers_are_described_with_what_they_have_open(rig: Rig, producer: TxnProducer) -> None:
    plain(rig, b"0")
    producer.add(A)
    producer.put(A, b"x")
    producer.put(A, b"y")
    topics = [
        ProducersTopicRequest(name="t", partition_indexes=[0, 5]),
        ProducersTopicRequest(name="none", partition_indexes=[0]),
        ProducersTopicRequest(name="", partition_indexes=[0]),
        ProducersTopicRequest(name="a b", partition_indexes=[0]),
    ]
    answer = rig.ask(DescribeProducersRequest(topics=topics), 0)
    found, *missing = [one for topic in answer.topics for one in topic.partitions]
    unknown, invalid = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [one.error_code for one in missing] == [unknown, unknown, invalid, invalid]
    (one,) = found.active_producers
    assert (one.producer_id, one.producer_epoch) == (producer.producer_id, 0)
    assert (one.last_sequence, one.current_txn_start_offset) == (1, 1)


def test_transactions_are_described_and_listed(rig: Rig, producer: TxnProducer) -> None:
    producer.add(A, B)
    TxnProducer(rig, "other").ready()
    answer = rig.ask(DescribeTransactionsRequest(transactional_ids=["id", "none"]), 0)
    found, missing = answer.transaction_states
    assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert (found.error_code, found.transaction_state) == (0, "Ongoing")
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, 0)
    assert found.transaction_timeout_ms == 60_000
    assert [(one.topic, one.partitions) for one in found.topics] == [("t", [0, 1])]
    listed = rig.ask(ListTransactionsRequest(), 1)
    states = {one.transactional_id: one.transaction_state for one in listed.transaction_states}
    assert states == {"id": "Ongoing", "other": "Empty"}
    listed = rig.ask(ListTransactionsRequest(state_filters=["Ongoing", "Odd"]), 0)
    assert listed.unknown_state_filters == ["Odd"]
    assert [one.transactional_id for one in listed.transaction_states] == ["id"]


def test_what_is_asked_for_again_and_again_is_described_once(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.add(A)
    producer.put(A, b"a")
    topic = ProducersTopicRequest(name="t", partition_indexes=[0] * 1_000)
    (found,) = rig.ask(DescribeProducersRequest(topics=[topic, topic]), 0).topics
    assert [len(one.active_producers) for one in found.partitions] == [1]
    ids = [producer.transactional_id] * 1_000
    assert (
        len(rig.ask(DescribeTransactionsRequest(transactional_ids=ids), 0).transaction_states) == 1
    )
