"""The fetcher's driver with scripted leaders: leader changes, waits, seeks and failures."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from protocol.client.cluster import Cluster
from protocol.client.errors import ClientClosed, OffsetOutOfRange
from protocol.client.fetch_core import FetchedBatch
from protocol.client.fetcher import Fetcher
from protocol.errors import ApiError, CorruptBatch, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.cluster import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from protocol.types import EARLIEST_TIMESTAMP, TopicPartition
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch
from tests.unit.client.scripted_server import (
    CLOSE,
    Answer,
    Do,
    Received,
    ScriptedServer,
    metadata,
)

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class Leaders:
    """Two nodes and two partitions with ten records each. `leader_ids` maps each partition to its
    leader."""

    def __init__(self) -> None:
        self.servers: dict[int, ScriptedServer] = {}
        self.leader_ids = {0: 1, 1: 2}
        self.log_start_offset = 0
        self.faults: list[ErrorCode | Do | None] = []
        self.fetches: list[tuple[int, dict[int, int]]] = []
        """For each Fetch the node that got it and the offsets asked for."""
        self.look_up_code = ErrorCode.NONE
        self.metadata_asked = 0
        self.metadata_gate: asyncio.Event | None = None
        self.look_ups_asked = 0
        self.look_up_gate: asyncio.Event | None = None
        self.committed: dict[int, int] = {}
        """The group's committed offset, if there is one."""
        self.commits_asked = 0
        self.commits_gate: asyncio.Event | None = None
        self.corrupt = False
        self.gate: asyncio.Event | None = None

    def script_of(self, node_id: int) -> Callable[[Received], Awaitable[Answer]]:
        async def answer(request: Received) -> Answer:
            message = request.message
            if request.api_key == ApiKey.METADATA:
                self.metadata_asked += 1
                if self.metadata_gate is not None:
                    await self.metadata_gate.wait()
                nodes = {id_: server.port for id_, server in self.servers.items()}
                leaders = {index: (id_, id_) for index, id_ in self.leader_ids.items()}
                return metadata(nodes, {"t": leaders})
            if isinstance(message, ListOffsetsRequest):
                self.look_ups_asked += 1
                if self.look_up_gate is not None:
                    await self.look_up_gate.wait()
                return self._offsets(message)
            if isinstance(message, FindCoordinatorRequest):
                return self._coordinator(message)
            if isinstance(message, OffsetFetchRequest):
                found = self._committed(message)
                self.commits_asked += 1
                if self.commits_gate is not None:
                    await self.commits_gate.wait()
                return found
            assert isinstance(message, FetchRequest)
            (topic,) = message.topics
            asked = {p.partition: p.fetch_offset for p in topic.partitions}
            self.fetches.append((node_id, asked))
            if self.gate is not None:
                await self.gate.wait()
            fault = self.faults.pop(0) if self.faults else None
            if isinstance(fault, Do):
                return fault
            data = [self._data(node_id, p, fault) for p in topic.partitions]
            if all(not d.error_code and not d.records for d in data):
                await asyncio.sleep(message.max_wait_ms / 1000)
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=data)])

        return answer

    def _data(self, node_id: int, asked: FetchPartition, fault: ErrorCode | None) -> PartitionData:
        data = PartitionData(
            partition_index=asked.partition,
            high_watermark=10,
            log_start_offset=self.log_start_offset,
        )
        if node_id != self.leader_ids[asked.partition]:
            fault = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif not self.log_start_offset <= asked.fetch_offset <= 10:
            fault = ErrorCode.OFFSET_OUT_OF_RANGE
        data.error_code = fault or ErrorCode.NONE
        if not fault and asked.fetch_offset < 10:
            records = [NewRecord(None, b"%d" % index, 0) for index in range(10)]
            data.records = build_batch(records)
            data.records[-1] ^= self.corrupt
        return data

    def _coordinator(self, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        (key,) = request.coordinator_keys
        port = self.servers[1].port
        found = Coordinator(key=key, node_id=1, host="127.0.0.1", port=port)
        return FindCoordinatorResponse(coordinators=[found])

    def _committed(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        (group,) = request.groups
        assert group.topics is not None
        (asked,) = group.topics
        partitions = [
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=self.committed.get(index, -1)
            )
            for index in asked.partition_indexes
        ]
        topic = OffsetFetchResponseTopics(name="t", partitions=partitions)
        of_group = OffsetFetchResponseGroup(group_id=group.group_id, topics=[topic])
        return OffsetFetchResponse(groups=[of_group])

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        partitions = [
            ListOffsetsPartitionResponse(
                partition_index=p.partition_index,
                error_code=self.look_up_code,
                offset=self.log_start_offset if p.timestamp == EARLIEST_TIMESTAMP else 10,
            )
            for p in request.topics[0].partitions
        ]
        topic = ListOffsetsTopicResponse(name="t", partitions=partitions)
        return ListOffsetsResponse(topics=[topic])


def reading(test: Callable[[Fetcher, Leaders], Awaitable[None]], **settings: object) -> None:
    async def run() -> None:
        leaders = Leaders()
        for node_id in (1, 2):
            leaders.servers[node_id] = ScriptedServer(leaders.script_of(node_id))
            await leaders.servers[node_id].start()
        cluster = Cluster(leaders.servers[1].address, client_id="me", request_timeout_ms=10_000)
        await cluster.start(10_000)
        fetcher = Fetcher(cluster, **settings)  # type: ignore[arg-type]
        try:
            await test(fetcher, leaders)
        finally:
            await fetcher.close()
            await cluster.close()
            for server in leaders.servers.values():
                await server.stop()

    asyncio.run(run())


async def read(fetcher: Fetcher, count: int) -> list[FetchedBatch]:
    """Poll until this number of records has arrived."""
    batches: list[FetchedBatch] = []
    async with asyncio.timeout(5):
        while sum(len(batch.records) for batch in batches) < count:
            batches += await fetcher.poll(1000)
    return batches


def test_leaders_are_asked_at_the_same_time_for_what_they_lead() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        fetcher.assign({ZERO: 4, ONE: 8})
        batches = {batch.tp: batch for batch in await read(fetcher, 8)}
        assert [r.offset for r in batches[ZERO].records] == [4, 5, 6, 7, 8, 9]
        assert [r.offset for r in batches[ONE].records] == [8, 9]
        assert fetcher.assignment == {ZERO: 10, ONE: 10}
        assert (1, {0: 4}) in leaders.fetches
        assert (2, {1: 8}) in leaders.fetches

    reading(test)


def test_a_leader_that_moves_is_followed() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        fetcher.assign({ZERO: 0})
        await read(fetcher, 10)
        leaders.leader_ids[0] = 2
        fetcher.seek(ZERO, 5)
        (batch,) = await read(fetcher, 5)
        assert batch.records[0].offset == 5

    reading(test)


@pytest.mark.parametrize(
    "fault", [CLOSE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_LEADER_EPOCH]
)
def test_what_passes_by_itself_is_tried_again(fault: ErrorCode | Do) -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        leaders.faults = [fault, fault]
        fetcher.assign({ZERO: 0})
        await read(fetcher, 10)
        assert fetcher.problems == {}

    reading(test)


def test_a_problem_that_lasts_is_shown() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        leaders.leader_ids[0] = -1
        fetcher.assign({ZERO: 0, ONE: 0})
        await read(fetcher, 10)
        while fetcher.problems != {ZERO: ErrorCode.LEADER_NOT_AVAILABLE}:
            assert await fetcher.poll(10) == []

    reading(test)


def test_an_answer_to_an_old_question_is_thrown_away() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        leaders.gate = asyncio.Event()
        fetcher.assign({ZERO: 0})
        assert await fetcher.poll(20) == []
        fetcher.seek(ZERO, 7)
        leaders.gate.set()
        batches = await read(fetcher, 3)
        assert [r.offset for batch in batches for r in batch.records] == [7, 8, 9]

    reading(test)


def test_the_ends_are_looked_up() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        leaders.log_start_offset = 3
        fetcher.assign({ZERO: EARLIEST_TIMESTAMP})
        (batch,) = await read(fetcher, 7)
        assert batch.records[0].offset == 3

    reading(test)


def test_a_partition_without_a_leader_does_not_hold_up_the_look_up_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        leaders.leader_ids[0] = -1
        fetcher._cluster.forget_leader(ZERO)
        fetcher.assign({ZERO: EARLIEST_TIMESTAMP, ONE: EARLIEST_TIMESTAMP})
        async with asyncio.timeout(5):
            (batch,) = await read(fetcher, 10)
        assert batch.tp == ONE

    monkeypatch.setattr("protocol.client.fetcher.LOOK_UP_TIMEOUT_MS", 200)
    reading(test)


def test_out_of_range_fails_without_a_policy_after_the_good_came() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        fetcher.assign({ZERO: 99, ONE: 0})
        await read(fetcher, 10)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRange, match="offset 99 of t-0"):
                await fetcher.poll(1000)
        fetcher.seek(ZERO, 9)
        (batch,) = await read(fetcher, 1)
        assert batch.tp == ZERO

    reading(test)


@pytest.mark.parametrize(("policy", "count"), [("earliest", 6), ("latest", 0)])
def test_out_of_range_follows_the_policy(policy: str, count: int) -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        leaders.log_start_offset = 4
        fetcher.assign({ZERO: 1})
        await read(fetcher, count)
        while fetcher.position(ZERO) != 10:
            await fetcher.poll(10)

    reading(test, out_of_range=policy)


def test_a_refusal_for_good_and_damage_are_raised() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        leaders.faults = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        fetcher.assign({ZERO: 0})
        with pytest.raises(ApiError, match="fetch of t-0"):
            await fetcher.poll(1000)
        leaders.corrupt = True
        fetcher.seek(ZERO, 0)
        with pytest.raises(CorruptBatch, match="t-0 at offset 0"):
            await fetcher.poll(1000)

    reading(test)


def test_the_next_question_leaves_before_the_records_are_returned() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        fetcher.assign({ZERO: 0})
        await read(fetcher, 10)
        while len(leaders.fetches) < 2:
            await asyncio.sleep(0)
        assert leaders.fetches[1] == (1, {0: 10})

    reading(test)


def test_closed_means_closed() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        fetcher.assign({ZERO: 10})
        await fetcher.poll(10)
        await fetcher.close()
        with pytest.raises(ClientClosed):
            await fetcher.poll(10)
        with pytest.raises(KeyError):
            fetcher.seek(ONE, 0)

    reading(test)


def test_a_closed_poll_asks_no_node_any_more() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        leaders.metadata_gate = asyncio.Event()
        leaders.metadata_asked = 0
        fetcher.assign({ZERO: 0})
        fetcher._cluster.forget_leader(ZERO)
        polling = asyncio.create_task(fetcher.poll(10_000))
        async with asyncio.timeout(5):
            while not leaders.metadata_asked:
                await asyncio.sleep(0.001)
        await fetcher.close()
        leaders.metadata_gate.set()
        with pytest.raises(ClientClosed):
            await polling
        assert leaders.fetches == []

    reading(test)


def test_partitions_come_and_go_while_it_reads() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        fetcher.assign({ZERO: 9})
        await read(fetcher, 1)
        waiting = asyncio.create_task(fetcher.poll(5_000))
        await asyncio.sleep(0)
        fetcher.add({ONE: 8})
        # Adding a partition wakes the waiting poll, which returns no records. The next Fetch names
        # the added partition.
        assert await waiting == []
        batches = await read(fetcher, 2)
        assert [r.offset for batch in batches for r in batch.records] == [8, 9]
        fetcher.remove([ZERO, ONE])
        assert fetcher.assignment == {}
        assert await fetcher.poll(10) == []

    reading(test)


def test_what_is_held_is_not_asked_for() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        fetcher.assign({ZERO: 0, ONE: 0})
        fetcher.hold([ZERO])
        (batch,) = await read(fetcher, 10)
        assert batch.tp == ONE
        assert await fetcher.poll(20) == []
        assert all(list(asked) == [1] for _, asked in leaders.fetches)
        fetcher.hold([])
        (batch,) = await read(fetcher, 10)
        assert batch.tp == ZERO

    reading(test)


def test_a_short_poll_looks_offsets_up_all_the_same() -> None:
    async def test(fetcher: Fetcher, leaders: Leaders) -> None:
        fetcher.assign({ZERO: EARLIEST_TIMESTAMP})
        async with asyncio.timeout(5):
            while fetcher.position(ZERO) < 0:
                await fetcher.poll(0)
                await asyncio.sleep(0.001)
        # Short polls must not close connections on which ListOffsets is still unanswered.
        assert leaders.servers[1].connection_count + leaders.servers[2].connection_count <= 3

    reading(test)
