"""Records handed out of what was fetched: to one caller at a time, and only what may be read.

Floor: client. `consumer` says what is assigned. Between that and whoever reads stand here a pause,
a listener that has not returned yet, a membership that was lost a moment ago, and a deserializer
that fails.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable

from protocol.client.cluster import Cluster
from protocol.client.consumer_offsets import ConsumerOffsets
from protocol.client.consumer_settings import ConsumerRecord, ConsumerSettings, consumer_records
from protocol.client.errors import ClientClosed
from protocol.client.fetch_core import FetchedBatch
from protocol.client.fetcher import Fetcher
from protocol.client.group_steps import GroupMembership
from protocol.client.record_buffer import RecordBuffer
from protocol.types import TopicPartition


class ConsumerReader:
    """What one consumer reads with; `wake_member` lets its membership see that somebody reads.

    paused: assigned, and nothing is handed out.
    leaving: the same while the group takes or gives these and the listener is told.
    read_under: the generation of the records handed out last; None without a group.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: ConsumerSettings,
        fetcher: Fetcher,
        buffer: RecordBuffer,
        offsets: ConsumerOffsets,
        wake_member: Callable[[], None],
    ) -> None:
        self.is_open = False
        self.paused: set[TopicPartition] = set()
        self.leaving: frozenset[TopicPartition] = frozenset()
        self.read_under: GroupMembership | None = None
        self.on_fetched: Callable[[Iterable[FetchedBatch]], None] | None = None
        self._cluster = cluster
        self._settings = settings
        self._fetcher = fetcher
        self._buffer = buffer
        self._offsets = offsets
        self._wake_member = wake_member
        self._reading = asyncio.Lock()

    def check_open(self) -> None:
        """Raise ClientClosed before `start` and after `close`."""
        if not self.is_open:
            raise ClientClosed("the consumer is not open")

    def check_assigned(self, tps: Iterable[TopicPartition]) -> None:
        """Raise ValueError for a partition that is none of the consumer's."""
        for tp in tps:
            if tp not in self._offsets.assigned:
                raise ValueError(f"{tp} is not assigned to this consumer")

    async def one(self, partitions: Collection[TopicPartition]) -> ConsumerRecord:
        """The next record, waited for as long as it takes."""
        try:
            records = self._read_at_once(partitions)
        except BaseException:
            await _let_others_run()
            raise
        while not records:
            records = await self.many(partitions, self._settings.fetch_max_wait_ms, 1)
        ((record,),) = records.values()
        return record

    async def many(
        self, partitions: Collection[TopicPartition], timeout_ms: int, count_max: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Up to `count_max` records, by partition, waited for at most `timeout_ms`."""
        self.check_open()
        self.check_assigned(partitions)
        # `unsubscribe` puts another in its place: each hears of the end of what it saw begin.
        core = self._offsets.core
        if core is not None:
            core.poll_began(self._cluster.now_ms())
        self._wake_member()
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        try:
            async with self._reading:
                found = await self._read_alone(frozenset(partitions), timeout_ms, count_max)
        finally:
            if core is not None:
                core.poll_ended(self._cluster.now_ms())
            if not found:
                await _let_others_run()
        return found

    async def _read_alone(
        self, wanted: frozenset[TopicPartition], timeout_ms: int, count_max: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        self._offsets.all_worked_off()
        deadline = self._cluster.now_ms() + timeout_ms
        while True:
            self.check_open()
            core = self._offsets.core
            if core is not None and core.failure is not None:
                raise core.failure
            if found := self._take(wanted, count_max):
                return found
            left_ms = max(0, deadline - self._cluster.now_ms())
            await self._offsets.find_beginnings(self.leaving, left_ms)
            self._fetcher.hold(self.paused | self.leaving | set(self._buffer.partitions))
            left_ms = max(0, deadline - self._cluster.now_ms())
            # A fetch that waits longer would hold up partitions that come meanwhile.
            wait_ms = min(left_ms, self._settings.fetch_max_wait_ms)
            batches = await self._fetcher.poll(wait_ms)
            self._buffer.put(batches)
            if self.on_fetched is not None:
                self.on_fetched(batches)
            if not left_ms:
                return self._take(wanted, count_max)

    def _read_at_once(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """One record that is here already, without the ceremony of waiting for one."""
        self.check_open()
        self.check_assigned(partitions)
        if self._reading.locked():
            return {}
        core = self._offsets.core
        if core is not None:
            if core.failure is not None:
                raise core.failure
            if core.is_idle:
                return {}
            core.polled(self._cluster.now_ms())
        self._offsets.all_worked_off()
        return self._take(frozenset(partitions), 1)

    def _take(
        self, wanted: frozenset[TopicPartition], count_max: int
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        def is_wanted(tp: TopicPartition) -> bool:
            if tp in self.paused or tp in self.leaving:
                return False
            return not wanted or tp in wanted

        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        core = self._offsets.core
        membership = None if core is None else core.membership
        if self._offsets.is_subscribed and membership is None:
            # Thrown out a moment ago: what is still here is lost, and may be read by others.
            return found
        while count_max > 0:
            taken = self._buffer.take(is_wanted, count_max)
            if taken is None:
                break
            tp, records = taken
            self._offsets.handed_out(tp, records[0].offset)
            made: list[ConsumerRecord] = []
            try:
                # One after another, so that those before one that cannot be made are kept.
                made.extend(consumer_records(self._settings, tp, records))
            except Exception:
                # It is raised when it comes first, with the position on it: a seek passes it.
                self._buffer.put_back(tp, records[len(made) :])
                if made:
                    found.setdefault(tp, []).extend(made)
                if found:
                    break
                raise
            count_max -= len(made)
            found.setdefault(tp, []).extend(made)
        if found:
            self.read_under = membership
        return found


async def _let_others_run() -> None:
    """Whoever asks again at once after nothing or an error must not keep the loop to itself."""
    await asyncio.sleep(0)
