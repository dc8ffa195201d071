"""A new leader has truncated records that a consumer already has (KIP-320). The consumer must
notice this and go back."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from protocol.client.cluster import Cluster
from protocol.client.errors import LogTruncated, OffsetOutOfRange
from protocol.client.fetcher import Fetcher
from protocol.errors import ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.types import TopicPartition
from protocol.wire.record import NewRecord
from protocol.wire.records import build_batch
from tests.unit.client.scripted_server import Answer, Received, ScriptedServer, metadata

TP = TopicPartition("t", 0)


class Log:
    """The log of one leader. `move` starts the next leader epoch, which can have other records."""

    def __init__(self) -> None:
        self.port = 0
        self.epoch = 4
        self.epochs = [(4, 0)]
        """Each leader epoch with its first offset."""
        self.end = 5
        self.asked: list[tuple[int, int, int]] = []
        """For each served Fetch: offset, current epoch, epoch to validate."""

    def move(self, epoch: int, start: int, end: int) -> None:
        self.epoch, self.end = epoch, end
        self.epochs.append((epoch, start))

    async def answer(self, request: Received) -> Answer:
        message = request.message
        if request.api_key == ApiKey.METADATA:
            return metadata({1: self.port}, {"t": {0: (1, self.epoch)}})
        assert isinstance(message, FetchRequest)
        asked = message.topics[0].partitions[0]
        data = PartitionData(partition_index=0, high_watermark=self.end, log_start_offset=0)
        if asked.current_leader_epoch != self.epoch:
            data.error_code = ErrorCode.FENCED_LEADER_EPOCH
        else:
            at = asked.fetch_offset
            self.asked.append((at, asked.current_leader_epoch, asked.last_fetched_epoch))
            self._read(at, asked.last_fetched_epoch, data)
        if not data.error_code and not data.records and data.diverging_epoch is None:
            await asyncio.sleep(message.max_wait_ms / 1000)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])

    def _read(self, offset: int, last_epoch: int, data: PartitionData) -> None:
        if last_epoch >= 0:
            starts = [start for epoch, start in self.epochs if epoch > last_epoch]
            end = min([*starts, self.end])
            if end < offset:
                data.diverging_epoch = EpochEndOffset(epoch=last_epoch, end_offset=end)
                return
        if offset > self.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        elif offset < self.end:
            epoch = max(epoch for epoch, start in self.epochs if start <= offset)
            values = [b"%d@%d" % (at, epoch) for at in range(offset, self.end)]
            records = [NewRecord(None, value, 0) for value in values]
            data.records = build_batch(records, base_offset=offset, partition_leader_epoch=epoch)


def reading(test: Callable[[Fetcher, Log], Awaitable[None]], **settings: object) -> None:
    async def run() -> None:
        log = Log()
        server = ScriptedServer(log.answer)
        await server.start()
        log.port = server.port
        cluster = Cluster(server.address, client_id="me", request_timeout_ms=10_000)
        await cluster.start(10_000)
        fetcher = Fetcher(cluster, **settings)  # type: ignore[arg-type]
        try:
            fetcher.assign({TP: 0})
            await test(fetcher, log)
        finally:
            await fetcher.close()
            await cluster.close()
            await server.stop()

    asyncio.run(run())


async def values(fetcher: Fetcher, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            for batch in await fetcher.poll(200):
                found += [record.value for record in batch.records]
    return found


@pytest.mark.parametrize("end", [3, 8], ids=["shorter", "longer"])
def test_a_reader_without_a_policy_hears_where_the_logs_part(end: int) -> None:
    """If the new log is longer, only the leader epoch shows that the records at offsets 3 and 4
    changed."""

    async def test(fetcher: Fetcher, log: Log) -> None:
        await values(fetcher, 5)
        log.move(epoch=6, start=3, end=end)
        async with asyncio.timeout(10):
            with pytest.raises(LogTruncated, match=r"truncated to offset 3, .* up to 5") as caught:
                while True:
                    await fetcher.poll(200)
        assert isinstance(caught.value, OffsetOutOfRange)
        assert (caught.value.tp, caught.value.offset, caught.value.end_offset) == (TP, 5, 3)

    reading(test)


@pytest.mark.parametrize("policy", ["earliest", "latest"])
def test_a_reader_with_a_policy_goes_back_to_where_the_logs_part(policy: str) -> None:
    async def test(fetcher: Fetcher, log: Log) -> None:
        assert await values(fetcher, 5) == [b"%d@4" % at for at in range(5)]
        log.move(epoch=6, start=3, end=8)
        assert await values(fetcher, 5) == [b"%d@6" % at for at in range(3, 8)]
        assert fetcher.position(TP) == 8

    reading(test, out_of_range=policy)


def test_nothing_is_validated_while_the_leader_stays() -> None:
    async def test(fetcher: Fetcher, log: Log) -> None:
        await values(fetcher, 5)
        log.end = 7
        await values(fetcher, 2)
        await fetcher.poll(50)
        assert {validated for _, _, validated in log.asked} == {-1}

    reading(test)


def test_a_new_leader_with_the_same_log_is_asked_once_more_and_read_on() -> None:
    async def test(fetcher: Fetcher, log: Log) -> None:
        await values(fetcher, 5)
        log.move(epoch=6, start=5, end=7)
        assert await values(fetcher, 2) == [b"5@6", b"6@6"]
        log.end = 8
        assert await values(fetcher, 1) == [b"7@6"]
        assert (5, 6, 4) in log.asked
        assert [validated for at, _, validated in log.asked if at >= 7] == [-1] * sum(
            at >= 7 for at, _, _ in log.asked
        )

    reading(test)


def test_a_seek_forgets_what_was_read() -> None:
    async def test(fetcher: Fetcher, log: Log) -> None:
        await values(fetcher, 5)
        log.move(epoch=6, start=3, end=8)
        fetcher.seek(TP, 6)
        assert await values(fetcher, 2) == [b"6@6", b"7@6"]
        assert all(validated == -1 for at, _, validated in log.asked if at == 6)

    reading(test)
