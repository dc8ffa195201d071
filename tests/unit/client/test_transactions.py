"""A transactional producer with a scripted coordinator: retriable and fatal errors."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from protocol.client.cluster import Cluster
from protocol.client.errors import (
    ClientError,
    ConnectionLost,
    ProducerFenced,
    RequestTimedOut,
    TransactionFailed,
)
from protocol.client.group import OffsetAndMetadata
from protocol.client.group_steps import GroupMembership
from protocol.client.producer import Producer, RecordMetadata
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.cluster import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.transactions import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.types import TopicPartition
from protocol.wire.records import iterate_records, read_header
from tests.unit.client.scripted_server import (
    CLOSE,
    Answer,
    Do,
    Received,
    ScriptedServer,
    metadata,
)

ZERO = TopicPartition("t", 0)


class CoordinatorNode:
    """One node that leads t-0 and coordinates everything. Requests of an API first get its
    `faults`."""

    def __init__(self) -> None:
        self.faults: dict[ApiKey, list[ErrorCode | Do]] = {}
        self.server = ScriptedServer(self.answer)
        self.epoch = -1

    def answer(self, request: Received) -> Answer:
        key = ApiKey(request.api_key)
        faults = self.faults.get(key)
        fault = faults.pop(0) if faults else ErrorCode.NONE
        if isinstance(fault, Do):
            return fault
        message = request.message
        match message:
            case FindCoordinatorRequest():
                found = Coordinator(
                    key=message.coordinator_keys[0], node_id=1, host="127.0.0.1",
                    port=self.server.port, error_code=fault,
                )  # fmt: skip
                return FindCoordinatorResponse(coordinators=[found])
            case InitProducerIdRequest():
                self.epoch += 0 if fault else 1
                return InitProducerIdResponse(
                    error_code=fault, producer_id=7, producer_epoch=self.epoch
                )
            case AddPartitionsToTxnRequest():
                result = AddPartitionsToTxnPartitionResult(partition_error_code=fault)
                topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic])
            case ProduceRequest():
                partition = PartitionProduceResponse(error_code=fault)
                produced = TopicProduceResponse(name="t", partition_responses=[partition])
                return ProduceResponse(responses=[produced])
            case TxnOffsetCommitRequest():
                committed = TxnOffsetCommitResponsePartition(error_code=fault)
                of_topic = TxnOffsetCommitResponseTopic(name="t", partitions=[committed])
                return TxnOffsetCommitResponse(topics=[of_topic])
            case EndTxnRequest():
                return EndTxnResponse(error_code=fault)
        if key is ApiKey.ADD_OFFSETS_TO_TXN:
            return AddOffsetsToTxnResponse(error_code=fault)
        return metadata({1: self.server.port}, {"t": {0: (1, 0)}})

    def asked(self, key: ApiKey) -> list[Received]:
        return [request for request in self.server.received if request.api_key == key]


def producing(
    test: Callable[[Producer, CoordinatorNode], Awaitable[None]], **settings: Any
) -> None:
    async def run() -> None:
        coordinating = CoordinatorNode()
        async with coordinating.server as server, asyncio.timeout(20):
            cluster = Cluster(server.address, client_id="me", request_timeout_ms=2_000)
            await cluster.start(10_000)
            producer = Producer(cluster, transactional_id="id", linger_ms=0, **settings)
            await producer.start()
            try:
                await test(producer, coordinating)
            finally:
                await producer.close(0)
                await cluster.close()

    asyncio.run(run())


def test_a_whole_transaction() -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"x", partition=0)
        membership = GroupMembership(4, "member", "static")
        offsets = {ZERO: OffsetAndMetadata(9, "why", 2)}
        await producer.send_offsets_to_transaction(offsets, "g", membership)
        await producer.commit_transaction()
        keys = [ApiKey(r.api_key) for r in coordinating.server.received]
        joined, sent = keys.index(ApiKey.ADD_PARTITIONS_TO_TXN), keys.index(ApiKey.PRODUCE)
        assert joined < sent < keys.index(ApiKey.END_TXN)
        (produced,) = coordinating.asked(ApiKey.PRODUCE)
        assert isinstance(produced.message, ProduceRequest)
        assert produced.message.transactional_id == "id"
        records = produced.message.topic_data[0].partition_data[0].records
        header = read_header(records)
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 0, 0)
        (committed,) = coordinating.asked(ApiKey.TXN_OFFSET_COMMIT)
        assert isinstance(committed.message, TxnOffsetCommitRequest)
        told = committed.message
        assert (told.generation_id, told.member_id, told.group_instance_id) == membership
        kinds = {
            (request.message.key_type, *request.message.coordinator_keys)
            for request in coordinating.asked(ApiKey.FIND_COORDINATOR)
            if isinstance(request.message, FindCoordinatorRequest)
        }
        assert kinds == {(1, "id"), (0, "g")}

    producing(test)


@pytest.mark.parametrize(
    ("key", "faults"),
    [
        (ApiKey.INIT_PRODUCER_ID, [ErrorCode.CONCURRENT_TRANSACTIONS] * 3),
        (ApiKey.INIT_PRODUCER_ID, [ErrorCode.NOT_COORDINATOR, CLOSE]),
        (ApiKey.ADD_PARTITIONS_TO_TXN, [ErrorCode.CONCURRENT_TRANSACTIONS, CLOSE]),
        (ApiKey.ADD_PARTITIONS_TO_TXN, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        (ApiKey.PRODUCE, [CLOSE, ErrorCode.NOT_ENOUGH_REPLICAS]),
        (ApiKey.ADD_OFFSETS_TO_TXN, [ErrorCode.COORDINATOR_NOT_AVAILABLE, CLOSE]),
        (ApiKey.TXN_OFFSET_COMMIT, [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, CLOSE]),
        (ApiKey.END_TXN, [CLOSE, ErrorCode.CONCURRENT_TRANSACTIONS]),
    ],
    ids=lambda value: getattr(value, "name", "faults"),
)
def test_what_passes_by_itself_is_asked_again(key: ApiKey, faults: list[ErrorCode | Do]) -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        coordinating.faults[key] = list(faults)
        await producer.init_transactions()
        producer.begin_transaction()
        future = await producer.send("t", b"x", partition=0)
        await producer.send_offsets_to_transaction({ZERO: OffsetAndMetadata(1)}, "g")
        await producer.commit_transaction()
        await future
        assert len(coordinating.asked(key)) == len(faults) + 1
        producer.begin_transaction()

    producing(test)


@pytest.mark.parametrize(
    "key", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN]
)
@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_a_fenced_producer_stays_fenced(key: ApiKey, code: ErrorCode) -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        coordinating.faults[key] = [code]
        await producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(ProducerFenced):
            await producer.send("t", b"x", partition=0)
            await producer.send_offsets_to_transaction({ZERO: OffsetAndMetadata(1)}, "g")
            await producer.commit_transaction()
        with pytest.raises(ProducerFenced):
            await producer.abort_transaction()

    producing(test)


def test_an_unclear_commit_is_asked_for_again_and_never_aborted() -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"x", partition=0)
        coordinating.faults[ApiKey.END_TXN] = [CLOSE] * 100
        with pytest.raises(ConnectionLost):
            await producer.commit_transaction(timeout_ms=100)
        coordinating.faults.clear()
        await producer.commit_transaction()
        asked = [r.message for r in coordinating.asked(ApiKey.END_TXN)]
        assert all(isinstance(m, EndTxnRequest) and m.committed for m in asked)

    producing(test)


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_whose_answer_did_not_come_cannot_end_the_next_transaction(is_commit: bool) -> None:
    """The lost EndTxn can still arrive. By then the producer has a raised epoch (KIP-890), so the
    broker fences the old request."""

    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        end = producer.commit_transaction if is_commit else producer.abort_transaction
        producer.begin_transaction()
        await (await producer.send("t", b"x", partition=0))
        coordinating.faults[ApiKey.END_TXN] = [CLOSE]
        await end()
        producer.begin_transaction()
        await (await producer.send("t", b"y", partition=0))
        await producer.commit_transaction()
        ends = [r.message for r in coordinating.asked(ApiKey.END_TXN)]
        assert [m.producer_epoch for m in ends if isinstance(m, EndTxnRequest)] == [0, 0, 1]
        _, resumed = [r.message for r in coordinating.asked(ApiKey.INIT_PRODUCER_ID)]
        assert isinstance(resumed, InitProducerIdRequest)
        assert (resumed.producer_id, resumed.producer_epoch) == (7, 0)

    producing(test)


def test_an_offset_whose_answer_did_not_come_cannot_be_committed_by_the_next_one() -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        coordinating.faults[ApiKey.TXN_OFFSET_COMMIT] = [CLOSE]
        await producer.send_offsets_to_transaction({ZERO: OffsetAndMetadata(1)}, "g")
        await producer.commit_transaction()
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({ZERO: OffsetAndMetadata(2)}, "g")
        asked = [r.message for r in coordinating.asked(ApiKey.TXN_OFFSET_COMMIT)]
        epochs = [m.producer_epoch for m in asked if isinstance(m, TxnOffsetCommitRequest)]
        assert epochs == [0, 0, 1]

    producing(test)


def test_a_commit_that_was_answered_is_not_asked_for_again_while_the_epoch_is_raised() -> None:
    """The broker answered EndTxn, but raising the epoch failed. A second EndTxn with the old epoch
    could be fenced."""

    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        await (await producer.send("t", b"x", partition=0))
        coordinating.faults[ApiKey.END_TXN] = [CLOSE]
        coordinating.faults[ApiKey.INIT_PRODUCER_ID] = [CLOSE] * 1000
        with pytest.raises(ConnectionLost):
            await producer.commit_transaction(timeout_ms=200)
        assert len(coordinating.asked(ApiKey.END_TXN)) == 2
        coordinating.faults.clear()
        await producer.commit_transaction()
        assert len(coordinating.asked(ApiKey.END_TXN)) == 2
        producer.begin_transaction()

    producing(test)


def test_a_partition_that_does_not_exist_fails_the_transaction_in_the_end() -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        coordinating.faults[ApiKey.ADD_PARTITIONS_TO_TXN] = [unknown] * 1000
        future = await producer.send("t", b"x", partition=9)
        with pytest.raises(TransactionFailed, match="t-9"):
            await producer.commit_transaction()
        with pytest.raises(ApiError, match="t-9"):
            await future
        coordinating.faults.clear()
        await producer.abort_transaction()
        producer.begin_transaction()

    producing(test, unknown_topic_timeout_ms=200)


def test_a_commit_keeps_to_its_time_while_records_are_without_an_outcome() -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        coordinating.faults[ApiKey.PRODUCE] = [ErrorCode.NOT_ENOUGH_REPLICAS] * 1000
        future = await producer.send("t", b"x", partition=0)
        with pytest.raises(RequestTimedOut):
            await producer.commit_transaction(timeout_ms=50)
        assert not coordinating.asked(ApiKey.END_TXN)
        coordinating.faults.clear()
        await producer.commit_transaction(timeout_ms=5_000)
        await future

    producing(test)


def test_an_abort_after_a_lost_batch_raises_the_epoch() -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        coordinating.faults[ApiKey.PRODUCE] = [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
        future = await producer.send("t", b"x", partition=0)
        with pytest.raises(ApiError):
            await future
        with pytest.raises(TransactionFailed):
            await producer.commit_transaction()
        await producer.abort_transaction()
        init = coordinating.asked(ApiKey.INIT_PRODUCER_ID)[-1].message
        assert isinstance(init, InitProducerIdRequest)
        assert (init.producer_id, init.producer_epoch) == (7, 0)
        producer.begin_transaction()
        await producer.send("t", b"y", partition=0)
        await producer.commit_transaction()
        sent = coordinating.asked(ApiKey.PRODUCE)[-1].message
        assert isinstance(sent, ProduceRequest)
        header = read_header(sent.topic_data[0].partition_data[0].records)
        assert (header.producer_epoch, header.base_sequence) == (1, 0)

    producing(test)


def test_an_abort_of_what_the_coordinator_never_opened_is_no_error() -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        coordinating.faults[ApiKey.ADD_PARTITIONS_TO_TXN] = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        coordinating.faults[ApiKey.END_TXN] = [ErrorCode.INVALID_TXN_STATE]
        future = await producer.send("t", b"x", partition=0)
        with pytest.raises(TransactionFailed):
            await future
        await producer.abort_transaction()
        producer.begin_transaction()

    producing(test)


def test_what_an_aborted_transaction_left_waiting_for_room_is_in_no_other() -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        coordinating.faults[ApiKey.PRODUCE] = [ErrorCode.INVALID_RECORD]

        def send(number: int) -> "asyncio.Task[asyncio.Future[RecordMetadata]]":
            return asyncio.create_task(producer.send("t", b"%d" % number + bytes(500), partition=0))

        first = [send(number) for number in range(6)]
        await asyncio.wait(first, return_when=asyncio.FIRST_EXCEPTION)
        late = send(6)
        await asyncio.sleep(0)
        await producer.abort_transaction()
        producer.begin_transaction()
        second = [send(number) for number in range(7, 10)]
        await asyncio.gather(*second)
        await producer.commit_transaction()
        with pytest.raises(ClientError):
            await late
        written = [
            record.value[:1]
            for request in coordinating.asked(ApiKey.PRODUCE)[1:]
            if isinstance(request.message, ProduceRequest)
            for record in iterate_records(request.message.topic_data[0].partition_data[0].records)
            if record.value is not None
        ]
        assert written == [b"7", b"8", b"9"]
        await asyncio.gather(*first, return_exceptions=True)

    producing(test, buffer_bytes=900)


def test_closing_aborts_what_is_open() -> None:
    async def test(producer: Producer, coordinating: CoordinatorNode) -> None:
        await producer.init_transactions()
        producer.begin_transaction()
        await producer.send("t", b"x", partition=0)
        await producer.flush()
        await producer.close()
        (ended,) = coordinating.asked(ApiKey.END_TXN)
        assert isinstance(ended.message, EndTxnRequest)
        assert not ended.message.committed

    producing(test)
