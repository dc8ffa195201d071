"""The consumer: reads records of its partitions, which a group or the caller assigns.

    consumer = Consumer(cluster, ConsumerSettings(group_id="mill"))
    await consumer.start()
    consumer.subscribe(["logs.access"])
    async for record in consumer: ...

It uses `fetcher` to fetch records and `membership` to take part in the group. Fetched records wait
in `record_buffer` until `consumer_reader` returns them. `consumer_offsets` handles commits and
positions. Only one task at a time may read. Rebalances happen in the background. Once the listener
was called for revoked partitions, their records are not returned any more.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Self

from protocol.client.admin_types import OffsetAt
from protocol.client.assignors import ASSIGNORS
from protocol.client.cluster import Cluster
from protocol.client.consumer_offsets import ConsumerOffsets
from protocol.client.consumer_reader import ConsumerReader
from protocol.client.consumer_settings import (
    ConsumerRecord,
    ConsumerSettings,
    OffsetReset,
    RebalanceListener,
)
from protocol.client.errors import ClientError
from protocol.client.fetch_core import FetchedBatch
from protocol.client.fetcher import Fetcher
from protocol.client.group import OffsetAndMetadata
from protocol.client.group_core import GroupCore
from protocol.client.group_steps import GroupMembership, GroupSettings
from protocol.client.membership import GroupMemberDriver
from protocol.client.reading import OutOfRange
from protocol.client.record_buffer import RecordBuffer
from protocol.client.topic_watch import TopicWatch
from protocol.types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicPartition

_Offsets = Callable[[], Mapping[TopicPartition, int]]
"""A function that returns the offsets to commit. It is called when no other commit is under way."""


class Consumer:
    """Reads the records of one cluster. Call either `subscribe` or `assign`, not both."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings | None = None) -> None:
        self.settings = settings or ConsumerSettings()
        self._cluster = cluster
        self._fetcher = Fetcher(
            cluster,
            isolation_level=self.settings.isolation_level,
            out_of_range=_OUT_OF_RANGE[OffsetReset(self.settings.offset_reset)],
            min_bytes=self.settings.fetch_min_bytes,
            max_bytes=self.settings.fetch_max_bytes,
            partition_max_bytes=self.settings.partition_max_bytes,
        )
        buffer = RecordBuffer()
        self._core = self._new_core()
        self._offsets = ConsumerOffsets(
            cluster, self.settings, self._fetcher, buffer, self._core, self._wake_member
        )
        self._reader = ConsumerReader(
            cluster, self.settings, self._fetcher, buffer, self._offsets, self._wake_member
        )
        self._member: GroupMemberDriver | None = None
        self._listener = RebalanceListener()
        self._watch: TopicWatch | None = None
        self._watching: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to commit in the background. Then call `subscribe` or `assign`."""
        self._reader.is_open = True
        if self.settings.group_id is not None and self.settings.auto_commit:
            self._committing = asyncio.create_task(self._offsets.commit_now_and_then())

    async def close(self) -> None:
        """Commit the positions (if `auto_commit`), give all partitions back and leave the group."""
        await self._close(self._offsets.positions_known)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The records returned last can have caused the error, so they are not committed.
        await self._close(
            self._offsets.positions_known if error is None else self._offsets.worked_off
        )

    # --- what to read -------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Subscribe to these topics, or to all topics whose whole name matches the pattern.

        The members of the group share the partitions. A new subscription replaces the earlier one.
        """
        self._reader.check_open()
        if self._core is None:
            raise ValueError("found no group_id, expected one for a subscription")
        if not self._member and self._fetcher.assignment:
            raise ValueError(
                "this consumer has partitions from `assign`; call `unsubscribe` before `subscribe`"
            )
        member = self._member or GroupMemberDriver(self._cluster, self._core, self)
        self._watch = TopicWatch(
            self._cluster, self.settings, self._core, member, frozenset(topics), pattern
        )
        self._member = member
        self._listener = listener or RebalanceListener()
        self._offsets.is_subscribed = True
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._watch.run())
        self._watching.add_done_callback(self._watch_ended)

    async def unsubscribe(self) -> None:
        """Give all partitions back and leave the group. Without a group, stop reading."""
        await self._stop_member(self._offsets.worked_off)
        self._let_go(self.assignment)
        self._reader.leaving = frozenset()
        self._watch = None
        self._offsets.is_subscribed = False
        self._reader.read_under = None
        self._core = self._offsets.core = self._new_core()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, even if other consumers read them too.

        Reading starts at the group's committed offset. If there is none, `offset_reset` decides.
        `seek` overrides both.
        """
        self._reader.check_open()
        if self._member is not None:
            raise ValueError("this consumer is subscribed; call `unsubscribe` before `assign`")
        wanted = frozenset(partitions)
        self._let_go(self.assignment - wanted)
        self._offsets.begin(wanted - self.assignment)

    @property
    def subscription(self) -> frozenset[str]:
        """The subscribed topics, including those of a pattern."""
        return frozenset() if self._watch is None else self._watch.topics

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads."""
        return self._offsets.assigned

    @property
    def membership(self) -> GroupMembership | None:
        """The membership and generation in which the last returned records were read; None without
        a group.

        A transaction commits its offsets with this membership. If the member has lost its
        partitions since, the commit is refused, even if it has a newer generation.
        """
        if self._reader.read_under is None and self._core is not None:
            return self._core.membership
        return self._reader.read_under

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`. They stay assigned."""
        self._reader.check_assigned(partitions)
        self._reader.paused.update(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return the records of these paused partitions again."""
        self._reader.check_assigned(partitions)
        self._reader.paused.difference_update(partitions)
        self._fetcher.wake()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(self._reader.paused)

    # --- records ------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """Return the next record, or the next of the given partitions. Wait until there is one.

        Raises the error that stops a partition: NoCommittedOffset, OffsetOutOfRange, CorruptBatch,
        ApiError. Raises the error that ended the membership, and ClientClosed. Raises a
        deserializer's error in every call until a `seek` skips the record.
        """
        return await self._reader.one(partitions)

    async def getmany(
        self,
        *partitions: TopicPartition,
        timeout_ms: int = 0,
        max_records: int | None = None,
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return available records by partition. If there are none, wait up to `timeout_ms`.

        Raises the errors of `getone`. Records that precede a record with a deserializer error are
        returned first.
        """
        count_max = self.settings.max_poll_records if max_records is None else max_records
        return await self._reader.many(partitions, timeout_ms, count_max)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        if not self._reader.is_open:
            raise StopAsyncIteration
        return await self._reader.one(())

    def watch_batches(self, told: Callable[[Iterable[FetchedBatch]], None]) -> None:
        """Call `told` with fetched batches before their records are returned.

        Batches have properties that records lack, such as the leader epoch.
        """
        self._reader.on_fetched = told

    # --- positions ----------------------------------------------------------------------------

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue at this offset.

        EARLIEST_TIMESTAMP and LATEST_TIMESTAMP stand for the log's ends.
        """
        self._reader.check_assigned((tp,))
        self._offsets.seek(tp, offset)

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the start of the logs of these partitions, or of all assigned partitions."""
        for tp in partitions or self.assignment:
            self.seek(tp, EARLIEST_TIMESTAMP)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue at the end of these partitions, as far as the isolation level can read."""
        for tp in partitions or self.assignment:
            self.seek(tp, LATEST_TIMESTAMP)

    async def seek_to_time(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue at the first record at or after a time, or at the end if there is none."""
        tps = partitions or tuple(self.assignment)
        self._reader.check_assigned(tps)
        found = await self._offsets.offsets_for_times(dict.fromkeys(tps, timestamp_ms))
        for tp in tps:
            at = found[tp]
            self.seek(tp, LATEST_TIMESTAMP if at is None else at.offset)

    async def position(self, tp: TopicPartition) -> int:
        """Return the offset of the next record to be returned. Look it up if needed."""
        self._reader.check_assigned((tp,))
        return await self._offsets.position(tp)

    async def committed(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """Return the offset that any member of the group has committed; None if there is none."""
        return (await self._offsets.committed((tp,)))[tp]

    async def commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None
    ) -> None:
        """Commit these offsets, or (None) the positions of all assigned partitions.

        Raises ApiError. With ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or REBALANCE_IN_PROGRESS the
        partitions belong, or will soon belong, to another member.
        """
        if offsets is None:
            offsets = self._offsets.positions_known()
        await self._offsets.commit(offsets)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAt | None]:
        """Return the first offset at or after each time; None if no record is that recent."""
        return await self._offsets.offsets_for_times(timestamps)

    async def beginning_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Return the log start offsets."""
        return await self._offsets.ends(dict.fromkeys(partitions, EARLIEST_TIMESTAMP))

    async def end_offsets(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """Return the end offsets of the logs, as far as the isolation level can read."""
        return await self._offsets.ends(dict.fromkeys(partitions, LATEST_TIMESTAMP))

    # --- called by the membership -------------------------------------------------------------

    async def revoke(self, partitions: Collection[TopicPartition], is_lost: bool) -> None:
        """Stop returning records of these partitions, call the listener and commit."""
        self._reader.leaving = frozenset(partitions)
        try:
            if is_lost:
                await self._listener.on_partitions_lost(partitions)
            else:
                await self._listener.on_partitions_revoked(partitions)
                await self._commit_at_last(self._offsets.worked_off, self._reader.leaving)
        finally:
            self._let_go(self._reader.leaving)
            self._reader.leaving = frozenset()

    async def adopt(self, added: Collection[TopicPartition]) -> None:
        """Start to read these partitions. The listener can seek before any record is read."""
        self._reader.leaving = frozenset(added)
        try:
            self._offsets.begin(added)
            await self._listener.on_partitions_assigned(added)
        finally:
            self._reader.leaving = frozenset()
            self._fetcher.wake()

    def failed(self) -> None:
        """Wake waiting readers so that they see `failure`."""
        self._fetcher.wake()

    # --- internals ----------------------------------------------------------------------------

    def _new_core(self) -> GroupCore | None:
        settings = self.settings
        if settings.group_id is None:
            return None
        group_settings = GroupSettings(
            settings.group_id,
            tuple(ASSIGNORS[name] for name in settings.assignors),
            group_instance_id=settings.group_instance_id,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
        )
        return GroupCore(group_settings, self._cluster.rng, self._cluster.now_ms())

    def _wake_member(self) -> None:
        if self._member is not None:
            self._member.wake()

    def _watch_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert self._core is not None
            self._core.fail(error if isinstance(error, Exception) else ClientError(repr(error)))
            self.failed()

    async def _commit_at_last(self, offsets: _Offsets, of: Collection[TopicPartition]) -> None:
        if self._core is not None and self.settings.auto_commit:
            await self._offsets.commit_quietly(
                lambda: {tp: at for tp, at in offsets().items() if tp in of}
            )

    async def _stop_member(self, offsets: _Offsets) -> None:
        member, self._member = self._member, None
        await _cancel(self._watching)
        if member is not None:
            await member.stop()
        # Waiting readers get no more records of these partitions.
        assignment = self._reader.leaving = self.assignment
        await self._commit_at_last(offsets, assignment)
        if member is not None:
            try:
                if assignment:
                    await self._listener.on_partitions_revoked(assignment)
            finally:
                await member.close()

    async def _close(self, offsets: _Offsets) -> None:
        if not self._reader.is_open:
            return
        await _cancel(self._committing)
        try:
            await self._stop_member(offsets)
        finally:
            self._reader.is_open = False
            self._fetcher.wake()
            await self._offsets.close()
            await self._fetcher.close()

    def _let_go(self, tps: frozenset[TopicPartition]) -> None:
        self._offsets.forget(tps)
        self._reader.paused -= tps


async def _cancel(task: "asyncio.Task[None] | None") -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


_OUT_OF_RANGE = {
    OffsetReset.EARLIEST: OutOfRange.EARLIEST,
    OffsetReset.LATEST: OutOfRange.LATEST,
    OffsetReset.NONE: OutOfRange.FAIL,
}
