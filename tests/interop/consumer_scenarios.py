"""Scenarios that test our consumer's guarantees, both with our broker and with Apache Kafka."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any

import pytest

from protocol.client.admin import Admin
from protocol.client.admin_types import TopicSpec
from protocol.client.assignors import ASSIGNORS
from protocol.client.cluster import Cluster
from protocol.client.consumer import Consumer
from protocol.client.consumer_settings import (
    ConsumerRecord,
    ConsumerSettings,
    OffsetReset,
    RebalanceListener,
)
from protocol.client.errors import NoCommittedOffset
from protocol.client.group import OffsetAndMetadata, commit_offsets, fetch_offsets
from protocol.client.producer import Producer
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition

DEADLINE_S = 60

SERVER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
"""Server settings, for both kinds, because production defaults would make each test wait."""

GROUP: dict[str, Any] = {
    "offset_reset": OffsetReset.EARLIEST,
    "session_timeout_ms": 2_000,
    "heartbeat_interval_ms": 200,
    "fetch_max_wait_ms": 100,
}


async def a_topic(cluster: Cluster, name: str, partitions: int, records_each: int) -> None:
    """Create a topic. Each of its partitions gets the records b"0", b"1"…, whose timestamps are
    their numbers plus 1,000."""
    await Admin(cluster).ensure_topics([TopicSpec(name, partitions=partitions)])
    await produce(cluster, name, partitions, range(records_each))


async def produce(cluster: Cluster, name: str, partitions: int, numbers: Iterable[int]) -> None:
    producer = Producer(cluster)
    await producer.start()
    for number in numbers:
        for partition in range(partitions):
            await producer.send(
                name, b"%d" % number, key=b"k", partition=partition, timestamp_ms=1000 + number
            )
    await producer.close()


def partitions_of(name: str, count: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(name, index) for index in range(count))


async def until(condition: Callable[[], bool], what: str, deadline_s: float = 30.0) -> None:
    """Poll until a condition is true. Use it for conditions that no event announces."""
    try:
        async with asyncio.timeout(deadline_s):
            while not condition():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {deadline_s} s: {what}") from None


class Reader:
    """A consumer that a task reads continuously, with lists of its records and rebalance events."""

    def __init__(self, cluster: Cluster, group_id: str, **settings: Any) -> None:
        self.consumer = Consumer(cluster, ConsumerSettings(group_id, **(GROUP | settings)))
        self.records: list[ConsumerRecord] = []
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []
        self.listener = _Telling(self.told)
        self._task: asyncio.Task[None] | None = None

    async def start(self, *topics: str, pattern: str | None = None) -> "Reader":
        await self.consumer.start()
        self.consumer.subscribe(topics, pattern=pattern, listener=self.listener)
        self._task = asyncio.create_task(self._read())
        return self

    async def stop(self, *, silently: bool = False) -> None:
        """Close the consumer. With `silently` drop it instead, so that it does not leave the group,
        like a killed process."""
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        if silently:
            assert self.consumer._member is not None
            await self.consumer._member.stop()
        else:
            await self.consumer.close()

    async def _read(self) -> None:
        while True:
            for records in (await self.consumer.getmany(timeout_ms=1000)).values():
                self.records += records

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self.consumer.assignment


class _Telling(RebalanceListener):
    def __init__(self, told: list[tuple[str, frozenset[TopicPartition]]]) -> None:
        self.told = told

    async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append(("assigned", frozenset(partitions)))

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append(("revoked", frozenset(partitions)))

    async def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.told.append(("lost", frozenset(partitions)))


async def one_member_reads_everything(cluster: Cluster) -> None:
    await a_topic(cluster, "alone", 3, 100)
    reader = await Reader(cluster, "alone").start("alone")
    await until(lambda: len(reader.records) == 300, "all records")
    for partition in range(3):
        values = [r.value for r in reader.records if r.partition == partition]
        assert values == [b"%d" % number for number in range(100)]
    assert reader.told == [("assigned", partitions_of("alone", 3))]
    await reader.stop()
    assert reader.told[1:] == [("revoked", partitions_of("alone", 3))]
    found = await fetch_offsets(cluster, "alone", list(partitions_of("alone", 3)))
    assert {at.offset for at in found.values() if at is not None} == {100}
    described = (await Admin(cluster).describe_groups(["alone"]))["alone"]
    assert described.state == "Empty"


def members_share(assignor: str) -> Callable[[Cluster], Awaitable[None]]:
    """Let members join and leave with LeaveGroup. Each partition must have exactly one owner."""

    async def scenario(cluster: Cluster) -> None:
        topic = f"shared-{assignor}"
        everything = partitions_of(topic, 6)
        await a_topic(cluster, topic, 6, 20)
        readers = [await Reader(cluster, topic, assignors=(assignor,)).start(topic)]

        def is_shared() -> bool:
            owned = [tp for reader in readers for tp in reader.assignment]
            share = 6 // len(readers)
            return (
                len(owned) == 6
                and frozenset(owned) == everything
                and all(len(reader.assignment) == share for reader in readers)
            )

        await until(is_shared, "one member has all")
        for count in (2, 3):
            readers.append(await Reader(cluster, topic, assignors=(assignor,)).start(topic))
            await until(is_shared, f"{count} members share")
        gone = readers.pop(0)
        before = [reader.assignment for reader in readers]
        await gone.stop()
        await until(is_shared, "the two that are left share")
        if "sticky" in assignor:
            for reader, kept in zip(readers, before, strict=True):
                assert kept <= reader.assignment
        if ASSIGNORS[assignor].is_cooperative:
            assert not [told for reader in readers for told in reader.told if told[0] == "lost"]
            # No revocation may take all partitions, because the member would get most of them back.
            first = gone.told[0][1]
            assert first == everything
            assert all(len(tps) < 6 for kind, tps in gone.told[1:-1] if kind == "revoked")
        await produce(cluster, topic, 6, range(20, 30))
        await until(
            lambda: len(_distinct([gone, *readers])) == 6 * 30, "every record was read by a member"
        )
        for reader in readers:
            await reader.stop()

    scenario.__name__ = f"members_share_{assignor.replace('-', '_')}"
    return scenario


def _distinct(readers: Iterable[Reader]) -> set[tuple[int, int]]:
    return {(r.partition, r.offset) for reader in readers for r in reader.records}


async def a_dead_member_is_replaced(cluster: Cluster) -> None:
    await a_topic(cluster, "dead", 2, 10)
    dying = await Reader(cluster, "dead").start("dead")
    await until(lambda: len(dying.assignment) == 2, "the first has all")
    living = await Reader(cluster, "dead").start("dead")
    await until(lambda: len(living.assignment) == 1, "both share")
    await dying.stop(silently=True)
    await until(lambda: len(living.assignment) == 2, "the session of the dead one is over")
    await living.stop()
    dying.consumer._member = None
    await dying.consumer.close()


async def a_static_member_comes_back(cluster: Cluster) -> None:
    await a_topic(cluster, "static", 4, 1)
    static = {"group_instance_id": "one", "auto_commit": False}
    first = await Reader(cluster, "static", **static).start("static")
    other = await Reader(cluster, "static", auto_commit=False).start("static")
    await until(lambda: len(other.assignment) == 2 == len(first.assignment), "both share")
    before, told = first.assignment, len(other.told)
    await first.stop()
    again = await Reader(cluster, "static", **static).start("static")
    await until(lambda: again.assignment == before, "the same partitions")
    assert len(other.told) == told
    # A third consumer with the same group.instance.id fences the second one.
    await Reader(cluster, "static", **static).start("static")
    with pytest.raises(ApiError) as caught:
        await until(lambda: again._task is not None and again._task.done(), "the older ends")
        assert again._task is not None
        await again._task
    assert caught.value.code == ErrorCode.FENCED_INSTANCE_ID
    await other.stop()


async def a_pattern_finds_topics_that_come(cluster: Cluster) -> None:
    await a_topic(cluster, "pattern.one", 1, 3)
    await a_topic(cluster, "other.pattern.one", 1, 3)
    reader = await Reader(cluster, "pattern", topics_check_ms=300).start(pattern=r"pattern\..*")
    await until(lambda: len(reader.records) == 3, "the topic there is")
    await a_topic(cluster, "pattern.two", 2, 4)
    await until(lambda: len(reader.records) == 11, "the topic that came")
    assert reader.consumer.subscription == {"pattern.one", "pattern.two"}
    await Admin(cluster).create_partitions({"pattern.two": 3})
    await until(lambda: len(reader.assignment) == 4, "the partition that came")
    await reader.stop()


async def a_topic_is_read_that_comes_after_its_readers(cluster: Cluster) -> None:
    reader = await Reader(cluster, "early", topics_check_ms=300).start("early")
    await until(lambda: reader.told == [("assigned", frozenset())], "the group without a topic")
    await a_topic(cluster, "early", 2, 3)
    await until(lambda: len(reader.records) == 6, "the topic that came")
    await reader.stop()


async def a_deleted_topic_delays_no_other(cluster: Cluster) -> None:
    await a_topic(cluster, "deleted", 1, 3)
    await a_topic(cluster, "kept", 1, 3)
    reader = await Reader(cluster, "deleted", topics_check_ms=300).start("deleted", "kept")
    await until(lambda: len(reader.records) == 6, "both topics")
    await Admin(cluster).delete_topics(["deleted"])
    kept = partitions_of("kept", 1)
    # Before revoking partitions the consumer commits their offsets, also that of the deleted
    # topic. The failure of that commit must not delay the rebalance.
    await until(lambda: reader.told[-1] == ("assigned", kept), "the round without it", 10.0)
    await produce(cluster, "kept", 1, range(3))
    await until(lambda: len(reader.records) == 9, "more of the topic that stayed")
    await a_topic(cluster, "deleted", 1, 2)
    await until(lambda: len(reader.records) == 11, "the topic that came back")
    await reader.stop()


async def positions_are_sought(cluster: Cluster) -> None:
    await a_topic(cluster, "sought", 1, 50)
    tp = TopicPartition("sought", 0)
    settings = ConsumerSettings(offset_reset="earliest", fetch_max_wait_ms=50)
    async with Consumer(cluster, settings) as consumer:
        consumer.assign([tp])
        assert (await consumer.getone()).offset == 0
        assert await consumer.position(tp) == 1
        consumer.seek(tp, 40)
        assert (await consumer.getone()).value == b"40"
        consumer.seek_to_beginning(tp)
        assert (await consumer.getone()).offset == 0
        await consumer.seek_to_time(1025, tp)
        assert (await consumer.getone()).timestamp_ms == 1025
        consumer.seek_to_end()
        assert await consumer.position(tp) == 50
        assert await consumer.getmany(timeout_ms=50) == {}
        await consumer.seek_to_time(99_999)
        assert await consumer.position(tp) == 50
        assert await consumer.beginning_offsets(tp) == {tp: 0}
        assert await consumer.end_offsets(tp) == {tp: 50}
        assert await consumer.offsets_for_times({tp: 99_999}) == {tp: None}
        consumer.seek(tp, 10)
        consumer.pause(tp)
        assert await consumer.getmany(timeout_ms=200) == {}
        consumer.resume(tp)
        records = await consumer.getmany(timeout_ms=5000, max_records=3)
        assert [record.offset for record in records[tp]] == [10, 11, 12]


async def commits_by_hand(cluster: Cluster) -> None:
    await a_topic(cluster, "by-hand", 1, 10)
    tp = TopicPartition("by-hand", 0)
    settings = ConsumerSettings("by-hand", auto_commit=False, offset_reset="none")
    async with Consumer(cluster, settings) as consumer:
        consumer.assign([tp])
        with pytest.raises(NoCommittedOffset):
            await consumer.getone()
        consumer.seek(tp, 3)
        assert (await consumer.getone()).offset == 3
        await consumer.commit()
        assert await consumer.committed(tp) == OffsetAndMetadata(4)
        await consumer.commit({tp: OffsetAndMetadata(6, "six")})
    async with Consumer(cluster, settings) as consumer:
        consumer.assign([tp])
        assert (await consumer.getone()).offset == 6
        committed = await consumer.committed(tp)
        assert committed is not None
        assert (committed.offset, committed.metadata) == (6, "six")


async def what_is_worked_on_is_not_committed(cluster: Cluster) -> None:
    await a_topic(cluster, "worked-on", 1, 30)
    tp = TopicPartition("worked-on", 0)
    settings = ConsumerSettings("worked-on", auto_commit_interval_ms=50, **GROUP)

    async def committed() -> int | None:
        found = (await fetch_offsets(cluster, "worked-on", [tp]))[tp]
        return None if found is None else found.offset

    with contextlib.suppress(ZeroDivisionError):
        async with Consumer(cluster, settings) as consumer:
            consumer.subscribe(["worked-on"])
            for _ in range(2):
                records: list[ConsumerRecord] = []
                while not records:
                    records = (await consumer.getmany(timeout_ms=500, max_records=10)).get(tp, [])
            assert records[0].offset == 10
            async with asyncio.timeout(10):
                while await committed() != 10:
                    await asyncio.sleep(0.02)
            raise ZeroDivisionError
    assert await committed() == 10


async def what_was_committed_is_not_taken_back(cluster: Cluster) -> None:
    await a_topic(cluster, "taken-back", 2, 10)
    first, other = (TopicPartition("taken-back", index) for index in (0, 1))
    settings = ConsumerSettings("taken-back", auto_commit_interval_ms=50, **GROUP)

    async def committed() -> list[int]:
        found = await fetch_offsets(cluster, "taken-back", [first, other])
        return [-1 if (at := found[tp]) is None else at.offset for tp in (first, other)]

    async with Consumer(cluster, settings) as consumer:
        consumer.subscribe(["taken-back"])
        await until(lambda: len(consumer.assignment) == 2, "joined")
        for tp in (first, other):
            taken = 0
            while taken < 10:
                found = await consumer.getmany(tp, timeout_ms=500, max_records=10)
                taken += len(found.get(tp, ()))
        await consumer.commit({other: 10})
        # The automatic commit must overwrite this offset. That shows that automatic commits run, so
        # it could also have overwritten the offset of `other`.
        await consumer.commit({first: 3})
        async with asyncio.timeout(10):
            while (now := await committed())[0] != 10:
                await asyncio.sleep(0.02)
        assert now == [10, 10]


async def outsiders_cannot_commit(cluster: Cluster) -> None:
    await a_topic(cluster, "outside", 1, 1)
    tp = TopicPartition("outside", 0)
    reader = await Reader(cluster, "outside").start("outside")
    await until(lambda: bool(reader.assignment), "joined")
    with pytest.raises(ApiError) as caught:
        await commit_offsets(cluster, "outside", {tp: OffsetAndMetadata(1)})
    assert caught.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    await reader.stop()


async def an_idle_member_leaves_and_returns(cluster: Cluster) -> None:
    await a_topic(cluster, "idle", 2, 10)
    settings = ConsumerSettings("idle", max_poll_interval_ms=1_500, **GROUP)
    idle = Consumer(cluster, settings)
    await idle.start()
    idle.subscribe(["idle"])
    assert (await idle.getone()).offset == 0
    busy = await Reader(cluster, "idle").start("idle")
    await until(lambda: len(busy.assignment) == 2, "the idle one has left")
    reading = asyncio.create_task(idle.getmany(timeout_ms=20_000))
    await until(lambda: len(busy.assignment) == 1, "it is back")
    reading.cancel()
    await busy.stop()
    await idle.close()


SHARING = tuple(members_share(name) for name in ASSIGNORS)

ALL = (
    one_member_reads_everything,
    *SHARING,
    a_dead_member_is_replaced,
    a_static_member_comes_back,
    a_pattern_finds_topics_that_come,
    a_topic_is_read_that_comes_after_its_readers,
    a_deleted_topic_delays_no_other,
    positions_are_sought,
    commits_by_hand,
    what_is_worked_on_is_not_committed,
    what_was_committed_is_not_taken_back,
    outsiders_cannot_commit,
    an_idle_member_leaves_and_returns,
)
