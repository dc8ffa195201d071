"""Returns fetched records to one caller at a time, and only records that may be read.

`consumer` decides which partitions are assigned. No records are returned during a pause, while a
listener runs, or after the membership was lost. Records after a record that cannot be deserialized
are not returned either.
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
    """Returns the records of one consumer. It calls `wake_member` when a caller reads.

    - `paused`: assigned partitions of which no records are returned.
    - `leaving`: partitions of which no records are returned while the listener runs.
    - `read_under`: the generation of the last returned records; None without a group.
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
        """Raise ValueError for a partition that is not assigned to the consumer."""
        for tp in tps:
            if tp not in self._offsets.assigned:
                raise ValueError(f"{tp} is not assigned to this consumer")

    async def one(self, partitions: Collection[TopicPartition]) -> ConsumerRecord:
        """Return the next record; wait as long as it takes."""
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
        """Return up to `count_max` records by partition; wait up to `timeout_ms`."""
        self.check_open()
        self.check_assigned(partitions)
        # `unsubscribe` replaces the core. The end of a poll is reported to the core to which its
        # start was reported.
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
            # A longer fetch would delay partitions that are added in the meantime.
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
        """Return one record that is already fetched, by its partition.

        An empty result means that the caller must wait for a fetch.
        """
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
            # The member was removed. Drop the fetched records, because other members can read them.
            return found
        while count_max > 0:
            taken = self._buffer.take(is_wanted, count_max)
            if taken is None:
                break
            tp, records = taken
            self._offsets.handed_out(tp, records[0].offset)
            made: list[ConsumerRecord] = []
            try:
                # Convert the records one by one, so that the records before a failing record are
                # kept.
                made.extend(consumer_records(self._settings, tp, records))
            except Exception:
                # Raise the error only when its record is the next one to return. Then a seek past
                # the consumer's position skips the record.
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
    """Let other tasks run, so that a caller that retries an error at once does not block the
    loop."""
    await asyncio.sleep(0)
