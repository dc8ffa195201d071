"""Transactions through a whole broker: answers, markers, and the records that consumers see."""

import random

import pytest

from broker.fetch.reading import LISTED_BEYOND_MAX
from broker.metadata.image import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.transactions import (
    ListTransactionsRequest,
)
from protocol.types import TopicPartition
from protocol.wire.records import iterate_batches
from tests.harness.wire import batch_of, fetch_request, list_request, produce_request
from tests.unit.broker.rig import Asked, Rig
from tests.unit.broker.txn_rig import (
    READ_COMMITTED,
    TRANSACTION,
    A,
    B,
    Doubtful,
    TxnProducer,
    code_of,
    fetch,
    plain,
    read_stable,
    settle,
)

# Topic, coordinator, producer id.


def test_the_transactions_topic_is_made_on_demand_small_and_compacted() -> None:
    rig = Rig()
    assert TRANSACTIONS_TOPIC not in rig.broker.parts.metadata.image.topics
    rig.ask(FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=["id"]), 4)
    image = rig.broker.parts.metadata.image
    assert len(image.topics[TRANSACTIONS_TOPIC].partitions) == 3
    assert image.topics[TRANSACTIONS_TOPIC].is_internal
    assert image.settings(2, TRANSACTIONS_TOPIC)["cleanup.policy"] == "compact"


def test_without_the_topic_there_is_no_coordinator_yet() -> None:
    rig = Rig()
    assert TxnProducer(rig).init() is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", InitProducerIdRequest.valid_versions)
def test_every_version_of_init_producer_id_begins_a_transactional_producer(
    rig: Rig, version: int
) -> None:
    producer = TxnProducer(rig)
    assert producer.init(version=version) is ErrorCode.NONE
    assert (producer.producer_id >= 0, producer.producer_epoch) == (True, 0)


def test_an_empty_transactional_id_is_refused(rig: Rig) -> None:
    assert TxnProducer(rig, "").init() is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("identity", [(5, -1), (-1, 5)])
def test_a_producer_id_without_its_epoch_is_refused(rig: Rig, identity: tuple[int, int]) -> None:
    producer = TxnProducer(rig)
    producer.producer_id, producer.producer_epoch = identity
    assert producer.init(resumes=True) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize(
    ("identity", "code"),
    [
        ((5, -1), ErrorCode.INVALID_REQUEST),
        ((-1, 5), ErrorCode.INVALID_REQUEST),
        ((5, 5), ErrorCode.NONE),
        ((-1, -1), ErrorCode.NONE),
    ],
)
def test_so_it_is_without_a_transactional_id(
    rig: Rig, identity: tuple[int, int], code: ErrorCode, version: int
) -> None:
    request = InitProducerIdRequest(
        transactional_id=None, producer_id=identity[0], producer_epoch=identity[1]
    )
    answer = rig.ask(request, version)
    assert ErrorCode(answer.error_code) is code
    assert (answer.producer_id >= 0) is (code is ErrorCode.NONE)


def test_transactional_and_idempotent_producers_share_no_id(rig: Rig) -> None:
    ids = [TxnProducer(rig, f"id-{number}").ready().producer_id for number in range(3)]
    ids.append(rig.ask(InitProducerIdRequest(transactional_id=None), 4).producer_id)
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    ("operation", "version", "code"),
    [
        ("init", 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        ("init", 4, ErrorCode.PRODUCER_FENCED),
        ("add", 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        ("add", 2, ErrorCode.PRODUCER_FENCED),
        ("offsets", 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        ("offsets", 2, ErrorCode.PRODUCER_FENCED),
        ("end", 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        ("end", 2, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_pitfall_9_old_clients_are_fenced_with_the_code_they_know(
    rig: Rig, producer: TxnProducer, operation: str, version: int, code: ErrorCode
) -> None:
    TxnProducer(rig).ready()
    found = {
        "init": lambda: producer.init(resumes=True, version=version),
        "add": lambda: producer.add(A, version=version)[0],
        "offsets": lambda: producer.add_offsets("g", version=version),
        "end": lambda: producer.end(version=version),
    }[operation]()
    assert found is code


# Partitions.


def test_one_bad_partition_refuses_all_of_them(producer: TxnProducer) -> None:
    codes = producer.add(A, TopicPartition("none", 0), TopicPartition("t", 2))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [ErrorCode.OPERATION_NOT_ATTEMPTED, unknown, unknown]
    assert producer.put(A, b"x") is ErrorCode.INVALID_TXN_STATE


def test_internal_topics_are_not_for_producers(producer: TxnProducer) -> None:
    codes = producer.add(TopicPartition(OFFSETS_TOPIC, 0))
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def test_another_transactional_ids_producer_is_a_stranger(rig: Rig, producer: TxnProducer) -> None:
    other = TxnProducer(rig, "other").ready()
    other.producer_id = producer.producer_id
    assert other.add(A) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert other.end() is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# Produce.


def test_a_batch_is_refused_unless_its_partition_was_added(producer: TxnProducer) -> None:
    assert producer.put(A, b"x") is ErrorCode.INVALID_TXN_STATE
    producer.sequences.clear()
    assert producer.add(A) == [ErrorCode.NONE]
    assert producer.put(A, b"x") is ErrorCode.NONE
    assert producer.put(B, b"x") is ErrorCode.INVALID_TXN_STATE


def test_a_batch_that_comes_after_its_transactions_end_opens_nothing(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.write((A, b"x"))
    assert producer.put(A, b"late") is ErrorCode.INVALID_TXN_STATE
    plain(rig, b"y")
    assert read_stable(rig, "t") == [b"x", b"y"]


def test_nothing_is_written_behind_a_decision_that_is_not_durable_yet(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.add(A)
    producer.put(A, b"x")
    ending = rig.send(producer.end_request(is_commit=True), 3)
    late = producer.send(A, b"late")
    settle(rig)
    # This code is retriable. The retry gets the answer that the transaction is over.
    assert code_of(late) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert ending.answer.error_code == 0
    assert read_stable(rig, "t") == [b"x"]


def test_a_transactional_batch_needs_the_transactional_id(producer: TxnProducer) -> None:
    producer.add(A)
    asked = producer.send(A, b"x", transactional_id=None)
    assert code_of(asked) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_two_producers_in_one_request_are_refused_as_a_whole(
    rig: Rig, producer: TxnProducer
) -> None:
    other = TxnProducer(rig, "other").ready()
    producer.add(A)
    other.add(B)
    request = producer.produce_request(A, b"x")
    request.topic_data += other.produce_request(B, b"y").topic_data
    parts = [one.partition_responses[0] for one in rig.ask(request, 9).responses]
    codes = [(one.error_code, one.base_offset) for one in parts]
    assert codes == [(ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)] * 2
    # No batch of the request was appended, so sequence 0 is still accepted.
    producer.sequences.clear()
    assert producer.put(A, b"x") is ErrorCode.NONE
    producer.end()
    settle(rig)
    assert read_stable(rig, "t") == [b"x"]


def test_without_a_transaction_a_request_may_hold_batches_of_two_producers(rig: Rig) -> None:
    """A producer that got a new producer id still retries older batches under the old id."""
    batches = [
        batch_of([b"x"], producer_id=number, producer_epoch=0, base_sequence=0) for number in (5, 6)
    ]
    request = produce_request("t", batches[0])
    request.topic_data += produce_request("t", batches[1], partition=1).topic_data
    parts = [one.partition_responses[0] for one in rig.ask(request, 9).responses]
    assert [(one.error_code, one.base_offset) for one in parts] == [(ErrorCode.NONE, 0)] * 2


def test_a_fenced_producers_batch_is_refused(rig: Rig, producer: TxnProducer) -> None:
    producer.add(A)
    producer.put(A, b"zombie")
    TxnProducer(rig).ready()
    assert producer.put(A, b"zombie") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert read_stable(rig, "t") == []


def test_while_the_coordinator_loads_what_is_open_in_a_log_goes_on(
    rig: Rig, producer: TxnProducer
) -> None:
    """A repeated batch from before the restart is acknowledged, as in Kafka, because librdkafka
    reuses the sequences after any refusal."""
    producer.add(A, B)
    assert producer.put(A, b"x") is ErrorCode.NONE
    for loaded, _ in rig.broker.parts.transactions.loaded():
        loaded.shard = None
    assert producer.put(A, b"y") is ErrorCode.NONE
    assert producer.put(B, b"z") is ErrorCode.NOT_ENOUGH_REPLICAS


def test_while_the_coordinator_loads_a_batch_may_be_tried_again(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.add(A)
    for loaded, _ in rig.broker.parts.transactions.loaded():
        loaded.shard = None
    assert producer.put(A, b"x") is ErrorCode.NOT_ENOUGH_REPLICAS
    assert producer.end() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert producer.init() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    listed = rig.ask(ListTransactionsRequest(), 1)
    assert listed.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


# Readers.


def test_readers_of_committed_data_stop_at_the_oldest_open_transaction(
    rig: Rig, producer: TxnProducer
) -> None:
    plain(rig, b"0")
    producer.add(A)
    producer.put(A, b"1")
    plain(rig, b"2")
    part = fetch(rig)
    assert (part.high_watermark, part.last_stable_offset) == (3, 1)
    assert read_stable(rig, "t") == [b"0"]
    listed = rig.ask(list_request("t", -1, isolation_level=READ_COMMITTED), 7)
    assert listed.topics[0].partitions[0].offset == 1
    assert rig.ask(list_request("t", -1), 7).topics[0].partitions[0].offset == 3
    producer.end()
    settle(rig)
    assert read_stable(rig, "t") == [b"0", b"1", b"2"]
    assert fetch(rig).last_stable_offset == 4


def test_a_timestamp_beyond_the_last_stable_offset_is_not_found(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.add(A)
    producer.put(A, b"x")
    for isolation_level, offset in ((READ_COMMITTED, -1), (0, 0)):
        for timestamp in (1, -3):
            request = list_request("t", timestamp, isolation_level=isolation_level)
            found = rig.ask(request, 7).topics[0].partitions[0]
            assert (found.error_code, found.offset) == (0, offset), timestamp


def test_a_finished_transaction_is_open_until_its_marker_is_committed(
    rig: Rig, producer: TxnProducer
) -> None:
    producer.add(A)
    producer.put(A, b"x")
    ending = rig.send(producer.end_request(is_commit=True), 3)
    rig.flusher.sync()
    assert ending.answer.error_code == 0
    # The marker is written, but not synced.
    log = rig.broker.parts.replicas.find("t", 0).log
    assert (log.written_end_offset, log.high_watermark, log.last_stable_offset) == (2, 1, 0)
    settle(rig)
    assert log.last_stable_offset == 2


def test_pitfall_23_aborted_transactions_are_listed_by_first_offset(rig: Rig) -> None:
    first, second = (TxnProducer(rig, name).ready() for name in ("1", "2"))
    for one in (first, second):
        one.add(A)
        one.put(A, one.transactional_id.encode())
    # The marker of the second transaction is written first.
    for one in (second, first):
        one.end(is_commit=False)
        settle(rig)
    listed = [(one.producer_id, one.first_offset) for one in fetch(rig).aborted_transactions or ()]
    assert listed == [(first.producer_id, 0), (second.producer_id, 1)]
    assert read_stable(rig, "t") == []
    everything = rig.ask(fetch_request("t"), 12).responses[0].partitions[0]
    assert everything.aborted_transactions is None


def test_pitfall_24_an_empty_answer_carries_valid_offsets(rig: Rig, producer: TxnProducer) -> None:
    producer.add(A)
    producer.put(A, b"x")
    part = fetch(rig)
    assert (part.error_code, bytes(part.records)) == (0, b"")
    assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (1, 0, 0)
    assert part.aborted_transactions == []


def test_committed_and_aborted_transactions_interleave(rig: Rig) -> None:
    kept, dropped = (TxnProducer(rig, name).ready() for name in ("kept", "dropped"))
    for number in range(6):
        for one in (kept, dropped):
            one.add(A)
            one.put(A, b"%s-%d" % (one.transactional_id.encode(), number))
        for one in random.Random(number).sample([kept, dropped], 2):
            one.end(is_commit=one is kept)
            settle(rig)
    assert read_stable(rig, "t") == [b"kept-%d" % number for number in range(6)]


def test_many_aborted_transactions_are_listed_only_as_far_as_the_answer_goes(rig: Rig) -> None:
    producer = TxnProducer(rig).ready()
    for number in range(LISTED_BEYOND_MAX + 20):
        producer.write((A, b"%d" % number), is_commit=False)
    request = fetch_request("t", 0, isolation_level=READ_COMMITTED, partition_max_bytes=300)
    part = rig.ask(request, 12).responses[0].partitions[0]
    *_, (last, _) = iterate_batches(part.records)
    assert 0 < last.last_offset < 10
    listed = [one.first_offset for one in part.aborted_transactions]
    assert listed == list(range(0, last.last_offset + 1, 2))
    assert read_stable(rig, "t") == []


def test_damage_found_while_aborted_transactions_are_listed_is_an_error_of_the_storage(
    rig: Rig,
) -> None:
    producer = TxnProducer(rig).ready()
    for number in range(LISTED_BEYOND_MAX + 20):
        producer.write((A, b"%d" % number), is_commit=False)
    log = rig.broker.parts.replicas.find("t", 0).log
    content = rig.disk.contents(f"{log.folder}/00000000000000000000.log")
    request = fetch_request("t", 0, isolation_level=READ_COMMITTED, partition_max_bytes=300)
    second = next(iterate_batches(content))[0].size_bytes
    content[second + 16] = 1  # its magic
    part = rig.ask(request, 12).responses[0].partitions[0]
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def parked(rig: Rig, isolation_level: int) -> Asked:
    request = fetch_request("t", 1, max_wait_ms=60_000, isolation_level=isolation_level)
    asked = rig.send(request, 12)
    assert not asked.is_answered()
    return asked


def test_a_parked_fetch_wakes_when_the_last_stable_offset_moves(
    rig: Rig, producer: TxnProducer
) -> None:
    plain(rig, b"0")
    committed, everything = parked(rig, READ_COMMITTED), parked(rig, 0)
    producer.add(A)
    producer.put(A, b"1")
    assert everything.is_answered()
    assert not committed.is_answered()
    producer.end()
    settle(rig)
    assert committed.is_answered()
    assert committed.answer.responses[0].partitions[0].last_stable_offset == 3


# A broker that may have been deposed.


def test_in_doubt_nothing_is_refused_by_what_is_held(rig: Rig, producer: TxnProducer) -> None:
    """The next coordinator can know the transaction, the producer and the member. So this
    coordinator must not send codes that are fatal for a client."""
    stranger = TxnProducer(rig)
    stranger.producer_id, stranger.producer_epoch = producer.producer_id + 1, 0
    asked = producer.commit_request("g", {A: 1})
    asked.generation_id, asked.member_id = 3, "m"
    assert producer.add_offsets("g") is ErrorCode.NONE

    def refusals() -> list[ErrorCode]:
        (topic,) = rig.ask(asked, 3).topics
        member = ErrorCode(topic.partitions[0].error_code)
        return [producer.put(A, b"not added"), stranger.end(), member]

    assert refusals() == [
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    rig.broker.parts.replicas.place = Doubtful(rig.clock)
    # The leader of a partition cannot verify the transaction, so it refuses the batch with a
    # retriable code.
    assert refusals() == [ErrorCode.NOT_ENOUGH_REPLICAS] + [ErrorCode.NOT_COORDINATOR] * 2


def test_in_doubt_no_transaction_is_said_to_be_committed(rig: Rig, producer: TxnProducer) -> None:
    """The next coordinator can have an open transaction of this id, and will abort it at its
    timeout. So this coordinator must not confirm a commit."""
    producer.write((A, b"first"))
    assert producer.end() is ErrorCode.NONE, "a repeat"
    rig.broker.parts.replicas.place = Doubtful(rig.clock)
    assert producer.end() is ErrorCode.NOT_COORDINATOR
