"""The producer's driver with scripted leaders: requests, retries, leader changes, and closing."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from protocol.client.cluster import Cluster
from protocol.client.errors import ClientClosed, RecordTooLarge
from protocol.client.producer import BatchMetadata, Producer, RecordMetadata
from protocol.client.producer_hooks import ProducerHooks
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.metadata import MetadataRequest, MetadataResponseTopic
from protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol.messages.producer_ids import InitProducerIdResponse
from protocol.types import TopicPartition
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch, iterate_records, read_header
from tests.unit.client.scripted_server import (
    CLOSE,
    HANG,
    Answer,
    Do,
    Received,
    ScriptedServer,
    metadata,
)


class Leaders:
    """Two nodes that share their logs. Each Produce request takes the next of `faults`; None means
    success."""

    def __init__(self) -> None:
        self.servers: dict[int, ScriptedServer] = {}
        self.leader_id = 1
        self.faults: list[ErrorCode | Do | None] = []
        self.init_code = ErrorCode.NONE
        self.logs: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.requests: list[list[tuple[TopicPartition, int, int]]] = []
        """For each Produce request its batches: partition, base sequence, record count."""
        self.gate: asyncio.Event | None = None

    def script_of(self, node_id: int) -> Callable[[Received], Answer | Awaitable[Answer]]:
        async def answer(request: Received) -> Answer:
            if request.api_key == ApiKey.METADATA:
                return self._metadata(request)
            if request.api_key == ApiKey.INIT_PRODUCER_ID:
                return InitProducerIdResponse(
                    error_code=self.init_code, producer_id=50, producer_epoch=0
                )
            assert isinstance(request.message, ProduceRequest)
            if self.gate is not None:
                await self.gate.wait()
            return self._produce(node_id, request.message)

        return answer

    def _metadata(self, request: Received) -> Answer:
        assert isinstance(request.message, MetadataRequest)
        names = [topic.name or "" for topic in request.message.topics or ()]
        partitions = dict.fromkeys(range(3), (self.leader_id, self.leader_id))
        nodes = {node_id: server.port for node_id, server in self.servers.items()}
        response = metadata(nodes, {name: partitions for name in names if name != "missing"})
        if "missing" in names:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            response.topics.append(MetadataResponseTopic(name="missing", error_code=code))
        return response

    def _produce(self, node_id: int, request: ProduceRequest) -> Answer:
        fault = self.faults.pop(0) if self.faults else None
        if node_id != self.leader_id:
            fault = ErrorCode.NOT_LEADER_OR_FOLLOWER
        answer = ProduceResponse()
        seen = []
        for topic in request.topic_data:
            answer.responses.append(TopicProduceResponse(name=topic.name))
            for partition in topic.partition_data:
                tp = TopicPartition(topic.name, partition.index)
                header = read_header(partition.records)
                seen.append((tp, header.base_sequence, header.record_count))
                outcome = PartitionProduceResponse(index=partition.index, base_offset=-1)
                if isinstance(fault, ErrorCode):
                    outcome.error_code = fault
                else:
                    outcome.base_offset = len(self.logs[tp])
                    self.logs[tp] += [r.value or b"" for r in iterate_records(partition.records)]
                answer.responses[-1].partition_responses.append(outcome)
        self.requests.append(seen)
        if isinstance(fault, Do):
            return fault
        return HANG if request.acks == 0 else answer


def producing(
    test: Callable[[Producer, Leaders], Awaitable[None]],
    *,
    request_timeout_ms: int = 10_000,
    start: bool = True,
    **settings: object,
) -> None:
    async def run() -> None:
        leaders = Leaders()
        for node_id in (1, 2):
            leaders.servers[node_id] = ScriptedServer(leaders.script_of(node_id))
            await leaders.servers[node_id].start()
        cluster = Cluster(
            leaders.servers[1].address, client_id="me", request_timeout_ms=request_timeout_ms
        )
        await cluster.start(10_000)
        producer = Producer(cluster, **settings)  # type: ignore[arg-type]
        if start:
            await producer.start()
        try:
            await test(producer, leaders)
        finally:
            await producer.close(timeout_ms=0)
            await cluster.close()
            for server in leaders.servers.values():
                await server.stop()

    asyncio.run(run())


async def send_some(
    producer: Producer, count: int, partition: int = 0
) -> list["asyncio.Future[RecordMetadata]"]:
    return [await producer.send("t", b"%d" % index, partition=partition) for index in range(count)]


def test_records_of_one_moment_share_a_batch_and_know_their_offsets() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        first = await producer.send("t", b"a", partition=1, timestamp_ms=77)
        second = await producer.send("t", b"b", partition=1)
        assert await first == RecordMetadata("t", 1, 0, 77)
        assert (await second).offset == 1
        assert leaders.requests == [[(TopicPartition("t", 1), 0, 2)]]

    producing(test)


def test_one_request_carries_many_partitions() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        for partition in range(3):
            await producer.send("t", b"a", partition=partition)
            await producer.send("u", b"a", partition=partition)
        await producer.flush()
        assert [len(request) for request in leaders.requests] == [6]

    producing(test)


def test_a_key_decides_and_records_without_stay_together() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        keyed = [await producer.send("t", b"v", key=b"21") for _ in range(3)]
        loose = [await producer.send("t", b"v") for _ in range(10)]
        await producer.flush()
        assert {future.result().partition for future in keyed} == {(-973932308 & 0x7FFFFFFF) % 3}
        assert len({future.result().partition for future in loose}) == 1

    producing(test)


def test_at_most_five_requests_are_in_flight() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        await (await producer.send("t", b"first", partition=0))
        leaders.gate = asyncio.Event()
        for index in range(20):
            await producer.send_batch("t", 0, build_batch([NewRecord(None, b"%d" % index, 0)]), 1)
        received = leaders.servers[1].received
        while sum(r.api_key == ApiKey.PRODUCE for r in received) < 2:
            await asyncio.sleep(0)
        assert sum(producer._sender._in_flight.values()) == 5
        leaders.gate.set()
        await producer.flush()
        values = [b"%d" % index for index in range(20)]
        assert leaders.logs[TopicPartition("t", 0)] == [b"first", *values]

    producing(test)


def test_a_leader_that_moves_is_followed() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        await (await producer.send("t", b"0", partition=0))
        leaders.leader_id = 2
        assert (await (await producer.send("t", b"1", partition=0))).offset == 1
        assert leaders.servers[2].received[-1].api_key == ApiKey.PRODUCE

    producing(test)


@pytest.mark.parametrize(
    "fault", [CLOSE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS]
)
def test_a_retry_keeps_its_sequence(fault: ErrorCode | Do) -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        leaders.faults = [None, fault]
        await (await producer.send("t", b"0", partition=0))
        await (await producer.send("t", b"1", partition=0))
        tp = TopicPartition("t", 0)
        assert leaders.requests == [[(tp, 0, 1)], [(tp, 1, 1)], [(tp, 1, 1)]]

    producing(test)


def test_an_answer_that_never_comes_is_not_waited_for_for_ever() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        leaders.faults = [HANG]
        await (await producer.send("t", b"0", partition=0))
        assert len(leaders.requests) >= 2

    producing(test, request_timeout_ms=100)


def test_a_refusal_reaches_its_own_caller_only() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        leaders.faults = [ErrorCode.INVALID_RECORD]
        bad = await producer.send("t", b"bad", partition=0)
        with pytest.raises(ApiError) as caught:
            await bad
        assert caught.value.code == ErrorCode.INVALID_RECORD
        assert (await (await producer.send("t", b"good", partition=0))).offset == 0

    producing(test)


def test_an_encoded_batch_is_stamped_and_reported_as_a_whole() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        batch = build_batch([NewRecord(None, b"a", 0), NewRecord(None, b"b", 0)])
        future = await producer.send_batch("t", 2, batch, 2)
        assert await future == BatchMetadata("t", 2, 0, 2)
        header = read_header(batch)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (50, 0, 0)

    producing(test)


def test_without_acknowledgement_no_answer_comes() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        metadata = await (await producer.send("t", b"a", partition=0))
        assert metadata.offset == -1
        while not leaders.logs:
            await asyncio.sleep(0)

    producing(test, required_acks=0, idempotent=False)


def test_a_producer_id_that_is_refused_fails_the_records() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        leaders.init_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        future = await producer.send("t", b"a", partition=0)
        with pytest.raises(ApiError) as caught:
            await future
        assert caught.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        leaders.init_code = ErrorCode.NONE
        await (await producer.send("t", b"b", partition=0))

    producing(test)


def test_a_missing_topic_is_said() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        with pytest.raises(ApiError) as caught:
            await producer.send("missing", b"a")
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        future = await producer.send("missing", b"a", partition=0)
        with pytest.raises(ApiError, match="stayed unknown"):
            await future

    producing(test, request_timeout_ms=100, unknown_topic_timeout_ms=100)


def test_flush_waits_for_what_was_queued_before() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        futures = await send_some(producer, 50)
        await producer.flush()
        assert all(future.done() for future in futures)
        await producer.flush()

    producing(test, linger_ms=60_000)


def test_close_sends_what_is_queued_and_refuses_the_rest() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        futures = await send_some(producer, 5)
        await producer.close()
        assert [future.result().offset for future in futures] == [0, 1, 2, 3, 4]
        with pytest.raises(ClientClosed):
            await producer.send("t", b"late", partition=0)
        await producer.close()

    producing(test, linger_ms=60_000)


def test_close_in_time_fails_what_is_left() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        leaders.gate = asyncio.Event()
        futures = await send_some(producer, 3)
        await producer.close(timeout_ms=50)
        for future in futures:
            assert isinstance(future.exception(), ClientClosed)
        leaders.gate.set()

    producing(test)


def test_close_wakes_those_who_wait_for_room() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        leaders.gate = asyncio.Event()
        first = await producer.send("t", b"x" * 500, partition=0)
        waiting = asyncio.create_task(producer.send("t", b"y" * 500, partition=0))
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        await producer.close(timeout_ms=0)
        with pytest.raises(ClientClosed):
            await waiting
        await flushing
        assert isinstance(first.exception(), ClientClosed)
        leaders.gate.set()

    producing(test, buffer_bytes=900)


def test_who_waits_for_room_is_served_in_order() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        leaders.gate = asyncio.Event()
        await producer.send("t", b"0" * 500, partition=0)
        tasks = [
            asyncio.create_task(producer.send("t", b"%d" % index * 500, partition=0))
            for index in range(1, 8)
        ]
        await asyncio.sleep(0)
        tasks[3].cancel()
        assert not any(task.done() for task in tasks)
        leaders.gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await producer.flush()
        firsts = [value[:1] for value in leaders.logs[TopicPartition("t", 0)]]
        assert firsts == [b"0", b"1", b"2", b"3", b"5", b"6", b"7"]

    producing(test, buffer_bytes=900)


def test_a_send_that_fails_when_its_turn_comes_lets_in_the_next() -> None:
    def fails(topic: str, key: bytes | None, partitions: Sequence[int], _: Sequence[int]) -> int:
        raise LookupError("no partition for it")

    async def test(producer: Producer, leaders: Leaders) -> None:
        leaders.gate = asyncio.Event()
        await producer.send("t", b"0" * 500, partition=0)
        failing = asyncio.create_task(producer.send("t", b"1" * 500))
        while not producer._core.pressed:
            await asyncio.sleep(0)
        behind = asyncio.create_task(producer.send("t", b"2" * 500, partition=0))
        await asyncio.sleep(0)
        leaders.gate.set()
        with pytest.raises(LookupError):
            await failing
        await (await behind)
        assert [v[:1] for v in leaders.logs[TopicPartition("t", 0)]] == [b"0", b"2"]

    producing(test, buffer_bytes=900, hooks=ProducerHooks(partitioner=fails))


@pytest.mark.parametrize(
    "malformed",
    [
        {"headers": [("name", "text")]},
        {"headers": [("\ud800", b"x")]},
        {"headers": [(b"name", b"x")]},
        {"timestamp_ms": 1.5},
        {"timestamp_ms": -1},
        {"timestamp_ms": 2**63},
        {"partition": "0"},
        {"partition": -1},
        {"partition": 2**31},
        {"topic": "\ud800"},
        {"topic": ""},
        {"topic": "t" * 40_000},
    ],
    ids=str,
)
def test_what_cannot_be_encoded_is_refused_before_it_harms_others(malformed: Any) -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        good = await producer.send("t", b"good", partition=0)
        with pytest.raises((TypeError, ValueError)):
            await producer.send(**({"topic": "t", "value": b"bad", "partition": 0} | malformed))
        await good
        await producer.send_and_wait("t", b"later", partition=0, headers=[("n", None)])
        assert leaders.logs[TopicPartition("t", 0)] == [b"good", b"later"]

    producing(test, linger_ms=20)


def test_a_batch_must_be_one_the_producer_can_write_its_ids_into() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        batch = build_batch([NewRecord(None, b"x", 0)])
        with pytest.raises(TypeError, match="bytearray"):
            await producer.send_batch("t", 0, bytes(batch), 1)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="partition"):
            await producer.send_batch("t", -1, batch, 1)
        await (await producer.send_batch("t", 0, batch, 1))

    producing(test)


@pytest.mark.parametrize("chosen", [-1, 1.0])
def test_a_partitioner_s_choice_is_looked_at_too(chosen: Any) -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        with pytest.raises((TypeError, ValueError)):
            await producer.send("t", b"x")
        await producer.send_and_wait("t", b"y", partition=0)

    producing(test, hooks=ProducerHooks(partitioner=lambda *_: chosen))


def test_what_can_never_be_sent_is_refused_at_once() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        with pytest.raises(RecordTooLarge):
            await producer.send("t", b"x" * 2000, partition=0)

    producing(test, request_bytes_max=1000)


def test_a_codec_that_is_none_is_refused_by_its_name() -> None:
    cluster = Cluster("localhost:1", client_id="me")
    with pytest.raises(ValueError, match="'brotli', expected one of none, gzip"):
        Producer(cluster, compression="brotli")


def test_it_must_be_started() -> None:
    async def test(producer: Producer, leaders: Leaders) -> None:
        with pytest.raises(ClientClosed, match="not started"):
            await producer.send("t", b"a", partition=0)

    producing(test, start=False)
