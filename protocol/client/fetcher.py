"""Fetches records of partitions that the caller assigns.

Only one Fetch request per leader is under way at a time, on connections of `purpose`. By default
they are separate. The next request is sent before `poll` returns, so fetching continues while the
caller works. Responses to requests from before a `seek` are dropped.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from protocol.client.backoff import Backoff
from protocol.client.cluster import RETRY_BACKOFF_MS, Cluster
from protocol.client.errors import ClientClosed, ClientError, OffsetOutOfRange, UnsupportedVersion
from protocol.client.fetch_core import (
    DECOMPRESSED_BYTES_MAX,
    FetchedBatch,
    IsolationLevel,
    read_partition,
)
from protocol.client.offsets_by_time import list_offsets
from protocol.client.reading import RESET_TO, OutOfRange, PartitionPosition
from protocol.errors import ApiError, CorruptBatch, ErrorCode
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.types import CONSUMER_REPLICA_ID, NO_LEADER_EPOCH, TopicPartition

LOOK_UP_TIMEOUT_MS = 5_000
"""The longest time for which a partition without a leader delays the lookup of other partitions."""

NO_SESSION = 0
SESSION_EPOCH_NONE = -1


class Fetcher:
    """Fetches the assigned partitions. Only one `poll` may run at a time."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        isolation_level: int = IsolationLevel.READ_UNCOMMITTED,
        out_of_range: OutOfRange | str = OutOfRange.FAIL,
        min_bytes: int = 1,
        max_bytes: int = 16 << 20,
        partition_max_bytes: int = 1 << 20,
        verify_crc: bool = True,
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
        purpose: str | None = None,
    ) -> None:
        self.isolation_level = IsolationLevel(isolation_level)
        self.out_of_range = OutOfRange(out_of_range)
        self._cluster = cluster
        self._purpose = purpose or cluster.new_purpose("fetch")
        self._min_bytes = min_bytes
        self._max_bytes = max_bytes
        self._partition_max_bytes = partition_max_bytes
        self._verify_crc = verify_crc
        self._decompressed_bytes_max = decompressed_bytes_max
        self._readings: dict[TopicPartition, PartitionPosition] = {}
        self._fetches: dict[int, asyncio.Task[list[tuple[TopicPartition, int, PartitionData]]]] = {}
        self._held: frozenset[TopicPartition] = frozenset()
        self._nudge: asyncio.Future[None] | None = None
        self._is_woken = False
        self._look_up: asyncio.Task[None] | None = None
        self._is_closed = False

    # --- assignment ---------------------------------------------------------------------------

    def assign(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read exactly these partitions, from these offsets or an end of the log (-2, -1)."""
        self._readings = {tp: self._new_reading(offset) for tp, offset in offsets.items()}

    def add(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Fetch these partitions too, or continue them at other offsets."""
        for tp, offset in offsets.items():
            self._readings[tp] = self._new_reading(offset)
        self.wake()

    def remove(self, tps: Iterable[TopicPartition]) -> None:
        """Stop fetching these partitions."""
        for tp in tps:
            self._readings.pop(tp, None)
        self.wake()

    def hold(self, tps: Collection[TopicPartition]) -> None:
        """Do not fetch these partitions for now, but fetch all others."""
        self._held = frozenset(tps)

    def wake(self) -> None:
        """Make a waiting poll return at once, because something has changed."""
        self._is_woken = True
        if self._nudge is not None and not self._nudge.done():
            self._nudge.set_result(None)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue an assigned partition at another offset. This clears its failure."""
        if tp not in self._readings:
            raise KeyError(tp)
        self._readings[tp] = self._new_reading(offset)

    def position(self, tp: TopicPartition) -> int:
        """Return the next offset that `poll` will return; below 0 while it is being looked up."""
        return self._readings[tp].offset

    def failure(self, tp: TopicPartition) -> Exception | None:
        """Return the error that stopped a partition. A seek or a removal clears it."""
        reading = self._readings.get(tp)
        return None if reading is None else reading.failure

    @property
    def assignment(self) -> dict[TopicPartition, int]:
        """The positions of all assigned partitions."""
        return {tp: reading.offset for tp, reading in self._readings.items()}

    @property
    def problems(self) -> dict[TopicPartition, ErrorCode]:
        """The partitions that return nothing at the moment, and why. Fetching them is retried."""
        return {tp: r.problem for tp, r in self._readings.items() if r.problem is not None}

    async def close(self) -> None:
        """Close the fetcher. Responses under way are dropped."""
        self._is_closed = True
        tasks: list[asyncio.Task[Any]] = list(self._fetches.values())
        if self._look_up is not None:
            tasks.append(self._look_up)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fetches.clear()
        await self._cluster.release(self._purpose)

    # --- reading ------------------------------------------------------------------------------

    async def poll(self, max_wait_ms: int = 500) -> list[FetchedBatch]:
        """Return new records as soon as there are any. Return none after `max_wait_ms` or `wake`.

        If there are none, it raises the error that stopped a partition: OffsetOutOfRange (with
        OutOfRange.FAIL), CorruptBatch, ApiError. Every call raises it until a seek or the
        partition's removal.
        """
        deadline = self._cluster.now_ms() + max_wait_ms
        self._is_woken = False
        while True:
            self._check_open()
            left_ms = deadline - self._cluster.now_ms()
            self._start_look_up()
            await self._find_leaders(max(1, left_ms))
            # A request sent after `close` would leave a connection open that is never closed.
            self._check_open()
            self._send(max_wait_ms)
            batches = self._collect()
            if batches:
                self._send(max_wait_ms)
                return batches
            for reading in self._readings.values():
                if reading.failure is not None:
                    raise reading.failure
            left_ms = deadline - self._cluster.now_ms()
            if left_ms <= 0 or self._is_woken:
                return []
            await self._wait(left_ms)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the fetcher was closed")

    async def _wait(self, left_ms: int) -> None:
        """Return when a response has arrived or a request can be sent, at the latest after
        `left_ms`."""
        now_ms = self._cluster.now_ms()
        wait_ms = left_ms
        for tp, reading in self._readings.items():
            is_busy = reading.offset >= 0 and self._cluster.current.leader(tp) in self._fetches
            is_busy = is_busy or (reading.offset < 0 and self._look_up is not None)
            if reading.failure is None and not is_busy and tp not in self._held:
                wait_ms = min(wait_ms, reading.retry_at_ms - now_ms)
        if wait_ms <= 0:
            return
        self._nudge = asyncio.get_running_loop().create_future()
        waited_for: list[asyncio.Future[Any]] = [*self._fetches.values(), self._nudge]
        if self._look_up is not None:
            waited_for.append(self._look_up)
        await asyncio.wait(
            waited_for,
            timeout=wait_ms / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        self._nudge = None

    def _send(self, max_wait_ms: int) -> None:
        now_ms = self._cluster.now_ms()
        current = self._cluster.current
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for tp, reading in self._readings.items():
            leader = current.leader(tp)
            if leader is None or reading.offset < 0 or reading.failure is not None:
                continue
            if tp in self._held:
                continue
            if now_ms >= reading.retry_at_ms and leader not in self._fetches:
                by_leader[leader][tp] = reading.offset
        for leader, offsets in by_leader.items():
            self._fetches[leader] = asyncio.create_task(
                self._fetch(leader, offsets, max_wait_ms), name=f"fetch from {leader}"
            )

    async def _fetch(
        self, node_id: int, offsets: Mapping[TopicPartition, int], max_wait_ms: int
    ) -> list[tuple[TopicPartition, int, PartitionData]]:
        """Send one Fetch. Return the requested offset and the response of each partition."""
        request = self._request(offsets, max_wait_ms)
        try:
            connection = await self._cluster.connection(node_id, self._purpose)
            response: FetchResponse = await connection.request(
                request, timeout_ms=max_wait_ms + self._cluster.request_timeout_ms
            )
        except (ClientClosed, UnsupportedVersion):
            raise
        except ClientError:
            self._cluster.forget_node(node_id)
            code = ErrorCode.NETWORK_EXCEPTION
            return [(tp, offset, _empty(tp, code)) for tp, offset in offsets.items()]
        if response.error_code:
            code = ErrorCode.of(response.error_code)
            return [(tp, offset, _empty(tp, code)) for tp, offset in offsets.items()]
        answers = []
        for topic in response.responses:
            for data in topic.partitions:
                tp = TopicPartition(topic.topic, data.partition_index)
                if tp in offsets:
                    answers.append((tp, offsets[tp], data))
        return answers

    def _request(self, offsets: Mapping[TopicPartition, int], max_wait_ms: int) -> FetchRequest:
        by_topic: dict[str, list[FetchPartition]] = defaultdict(list)
        for tp, offset in offsets.items():
            known = self._cluster.current.partition(tp)
            epoch = known.leader_epoch if known else NO_LEADER_EPOCH
            reading = self._readings.get(tp)
            by_topic[tp.topic].append(
                FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=epoch,
                    fetch_offset=offset,
                    last_fetched_epoch=reading.epoch_to_validate(epoch) if reading else -1,
                    partition_max_bytes=self._partition_max_bytes,
                )
            )
        return FetchRequest(
            replica_id=CONSUMER_REPLICA_ID,
            max_wait_ms=max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
            isolation_level=self.isolation_level,
            session_id=NO_SESSION,
            session_epoch=SESSION_EPOCH_NONE,
            topics=[FetchTopic(topic=name, partitions=ps) for name, ps in by_topic.items()],
        )

    def _collect(self) -> list[FetchedBatch]:
        batches = []
        for node_id in [node_id for node_id, task in self._fetches.items() if task.done()]:
            for tp, offset, data in self._fetches.pop(node_id).result():
                reading = self._readings.get(tp)
                # A seek or another assignment has made the response obsolete.
                if reading is None or reading.offset != offset:
                    continue
                batch = self._take(tp, reading, data)
                if batch is not None and batch.records:
                    batches.append(batch)
        return batches

    def _take(
        self, tp: TopicPartition, reading: PartitionPosition, data: PartitionData
    ) -> FetchedBatch | None:
        code = ErrorCode.of(data.error_code)
        if not code and data.diverging_epoch is not None:
            reading.diverged(tp, data.diverging_epoch, self.out_of_range)
            return None
        if not code:
            try:
                batch = read_partition(
                    tp,
                    data,
                    reading.offset,
                    self.isolation_level,
                    verify_crc=self._verify_crc,
                    decompressed_bytes_max=self._decompressed_bytes_max,
                )
            except CorruptBatch as error:
                reading.failure = error
                return None
            reading.progress(batch.next_offset, batch.leader_epoch)
            return batch
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if self.out_of_range is OutOfRange.FAIL:
                reading.failure = OffsetOutOfRange(tp, reading.offset, data.log_start_offset)
            else:
                reading.offset = RESET_TO[self.out_of_range]
            return None
        if not code.retriable:
            reading.failure = ApiError(code, f"fetch of {tp}: {code.description}")
            return None
        if code.refreshes_metadata:
            self._cluster.forget_leader(tp)
        reading.trouble(code, self._cluster.now_ms())
        return None

    async def look_up_offsets(self) -> None:
        """Look up the offsets of positions that stand for an end of a log, as far as possible
        now."""
        self._start_look_up()
        if self._look_up is not None:
            await asyncio.wait((self._look_up,))

    def _start_look_up(self) -> None:
        """Look up offsets in a separate task, because a short poll would not leave enough time."""
        if self._look_up is not None:
            if not self._look_up.done():
                return
            done, self._look_up = self._look_up, None
            done.result()
        now_ms = self._cluster.now_ms()
        wanted = {
            tp: reading.offset
            for tp, reading in self._readings.items()
            if reading.offset < 0 and reading.failure is None and now_ms >= reading.retry_at_ms
        }
        if wanted:
            self._look_up = asyncio.create_task(self._look_up_all(wanted))

    async def _look_up_all(self, wanted: Mapping[TopicPartition, int]) -> None:
        try:
            found = await list_offsets(
                self._cluster,
                wanted,
                isolation_level=self.isolation_level,
                timeout_ms=min(LOOK_UP_TIMEOUT_MS, self._cluster.request_timeout_ms),
            )
        except (ClientClosed, UnsupportedVersion):
            raise
        except ClientError:
            for tp in wanted:
                self._trouble(tp, wanted[tp], ErrorCode.NETWORK_EXCEPTION)
            return
        for tp, at in found.items():
            reading = self._readings.get(tp)
            if reading is None or reading.offset != wanted[tp]:
                continue
            if at.error:
                if at.error.retriable:
                    self._trouble(tp, wanted[tp], at.error)
                else:
                    text = f"start offset of {tp}: {at.error.description}"
                    reading.failure = ApiError(at.error, text)
            else:
                reading.progress(at.offset)

    async def _find_leaders(self, timeout_ms: int) -> None:
        now_ms = self._cluster.now_ms()
        current = self._cluster.current
        leaderless = {
            tp: reading.offset
            for tp, reading in self._readings.items()
            if current.leader(tp) is None and now_ms >= reading.retry_at_ms
        }
        if not leaderless:
            return
        topics = {tp.topic for tp in leaderless}
        try:
            current = await self._cluster.metadata(topics, refresh=True, timeout_ms=timeout_ms)
        except (ClientClosed, UnsupportedVersion):
            raise
        except ClientError:
            for tp, offset in leaderless.items():
                self._trouble(tp, offset, ErrorCode.NETWORK_EXCEPTION)
            return
        for tp, offset in leaderless.items():
            if current.leader(tp) is None:
                self._trouble(tp, offset, current.error_of(tp))

    def _trouble(self, tp: TopicPartition, offset: int, code: ErrorCode) -> None:
        reading = self._readings.get(tp)
        if reading is not None and reading.offset == offset:
            reading.trouble(code, self._cluster.now_ms())

    def _new_reading(self, offset: int) -> PartitionPosition:
        return PartitionPosition(offset, Backoff(*RETRY_BACKOFF_MS, self._cluster.rng))


def _empty(tp: TopicPartition, code: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=tp.partition, error_code=code)
