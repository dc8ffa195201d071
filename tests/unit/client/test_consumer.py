"""The consumer without a group and with scripted leaders: buffer, positions, pauses, errors."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from protocol.client.cluster import Cluster
from protocol.client.consumer import Consumer
from protocol.client.consumer_settings import ConsumerSettings
from protocol.client.errors import ClientClosed, NoCommittedOffset, OffsetOutOfRange
from protocol.client.group_steps import GroupMembership
from protocol.errors import ApiError, ErrorCode
from protocol.types import EARLIEST_TIMESTAMP, TopicPartition
from tests.unit.client.scripted_server import ScriptedServer
from tests.unit.client.test_fetcher import Leaders
from tests.unit.client.test_group_core import stable

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def consuming(
    test: Callable[[Consumer, Leaders], Awaitable[None]],
    leaders: Leaders | None = None,
    **settings: Any,
) -> None:
    """Run a test on a consumer of two partitions with the records b"0" to b"9", led by two
    nodes."""
    leaders = leaders or Leaders()

    async def run() -> None:
        for node_id in (1, 2):
            leaders.servers[node_id] = ScriptedServer(leaders.script_of(node_id))
            await leaders.servers[node_id].start()
        cluster = Cluster(leaders.servers[1].address, client_id="me", request_timeout_ms=10_000)
        await cluster.start(10_000)
        defaults: dict[str, Any] = {"offset_reset": "earliest", "fetch_max_wait_ms": 20}
        consumer = Consumer(cluster, ConsumerSettings(**(defaults | settings)))
        try:
            async with consumer, asyncio.timeout(20):
                await test(consumer, leaders)
        finally:
            await cluster.close()
            for server in leaders.servers.values():
                await server.stop()

    asyncio.run(run())


def test_both_partitions_are_handed_out_in_order() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO, ONE])
        seen: dict[int, list[int]] = {0: [], 1: []}
        for _ in range(20):
            record = await consumer.getone()
            seen[record.partition].append(record.offset)
        assert seen == {0: list(range(10)), 1: list(range(10))}
        assert await consumer.getmany(timeout_ms=10) == {}

    consuming(test)


def test_getmany_keeps_to_its_count_and_its_partitions() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO, ONE])
        records = await consumer.getmany(ONE, timeout_ms=5_000, max_records=4)
        assert [record.offset for record in records.pop(ONE)] == [0, 1, 2, 3]
        assert records == {}
        records = await consumer.getmany(timeout_ms=5_000, max_records=100)
        assert sum(map(len, records.values())) >= 6
        with pytest.raises(ValueError, match="t-7"):
            await consumer.getmany(TopicPartition("t", 7))

    consuming(test)


def test_positions_follow_what_is_handed_out_and_seeks_drop_what_is_buffered() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO])
        assert await consumer.position(ZERO) == 0
        assert (await consumer.getone()).offset == 0
        assert await consumer.position(ZERO) == 1
        consumer.seek(ZERO, 7)
        assert (await consumer.getone()).offset == 7
        consumer.seek(ZERO, EARLIEST_TIMESTAMP)
        assert (await consumer.getone()).offset == 0
        with pytest.raises(ValueError, match="t-1"):
            consumer.seek(ONE, 0)

    consuming(test)


def test_a_paused_partition_keeps_its_place() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO])
        assert (await consumer.getone()).offset == 0
        consumer.pause(ZERO)
        assert consumer.paused == {ZERO}
        assert await consumer.getmany(timeout_ms=50) == {}
        assert await consumer.position(ZERO) == 1
        consumer.resume(ZERO)
        assert (await consumer.getone()).offset == 1

    consuming(test)


def test_an_assignment_may_change_and_what_stays_keeps_its_place() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO])
        assert (await consumer.getone()).offset == 0
        consumer.assign([ZERO, ONE])
        assert await consumer.position(ZERO) == 1
        consumer.assign([ONE])
        assert consumer.assignment == {ONE}
        assert (await consumer.getone()).partition == 1

    consuming(test)


def test_without_a_policy_it_says_where_it_cannot_begin() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO])
        for _ in range(2):
            with pytest.raises(NoCommittedOffset):
                await consumer.getone()
        consumer.seek(ZERO, 99)
        with pytest.raises(OffsetOutOfRange):
            await consumer.getone()
        consumer.seek(ZERO, 9)
        assert (await consumer.getone()).offset == 9

    consuming(test, offset_reset="none")


def test_deserializers_make_what_is_handed_out() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO])
        assert [(await consumer.getone()).value for _ in range(3)] == [0, 1, 2]

    consuming(test, value_deserializer=lambda raw: int(raw or b"-1"))


def test_a_record_that_cannot_be_deserialized_keeps_no_other_back() -> None:
    def number(raw: bytes | None) -> int:
        if raw in (b"0", b"5"):
            raise ValueError(f"{raw!r} is none")
        return int(raw or b"-1")

    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO])
        for _ in range(2):
            with pytest.raises(ValueError, match="'0' is none"):
                await consumer.getone()
        assert await consumer.position(ZERO) == 0
        consumer.seek(ZERO, 1)
        records = await consumer.getmany(timeout_ms=5_000)
        assert [record.value for record in records[ZERO]] == [1, 2, 3, 4]
        assert await consumer.position(ZERO) == 5
        with pytest.raises(ValueError, match="'5' is none"):
            await consumer.getmany(timeout_ms=5_000)
        consumer.seek(ZERO, 6)
        records = await consumer.getmany(timeout_ms=5_000)
        assert [record.value for record in records[ZERO]] == [6, 7, 8, 9]

    consuming(test, value_deserializer=number)


def test_a_bad_record_of_one_partition_costs_nothing_of_another() -> None:
    def number(raw: bytes | None) -> int:
        if raw == b"3":
            raise ValueError("three is none")
        return int(raw or b"-1")

    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO, ONE])
        seen: dict[TopicPartition, list[int]] = {ZERO: [], ONE: []}
        while sum(map(len, seen.values())) < 18:
            try:
                for tp, records in (await consumer.getmany(timeout_ms=5_000)).items():
                    seen[tp] += [record.value for record in records]
            except ValueError:
                for tp, values in seen.items():
                    if len(values) == 3:
                        consumer.seek(tp, 4)
        assert seen == {tp: [0, 1, 2, 4, 5, 6, 7, 8, 9] for tp in (ZERO, ONE)}

    consuming(test, value_deserializer=number)


def test_asking_without_waiting_lets_the_loop_turn() -> None:
    def fails(raw: bytes | None) -> int:
        raise ValueError("none is good")

    async def test(consumer: Consumer, leaders: Leaders) -> None:
        turns: list[str] = []
        loop = asyncio.get_running_loop()
        consumer.assign([ZERO])
        consumer.pause(ZERO)
        await consumer.getmany(timeout_ms=10)
        loop.call_soon(turns.append, "nothing")
        assert await consumer.getmany() == {}
        assert turns == ["nothing"]
        consumer.resume(ZERO)
        with pytest.raises(ValueError, match="none is good"):
            await consumer.getone()
        for name, ask in (("many", consumer.getmany), ("one", consumer.getone)):
            loop.call_soon(turns.append, name)
            with pytest.raises(ValueError, match="none is good"):
                await ask()
        assert turns == ["nothing", "many", "one"]

    consuming(test, value_deserializer=fails)


def test_a_position_that_cannot_be_found_says_why() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        leaders.look_up_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        consumer.assign([ZERO])
        async with asyncio.timeout(5):
            with pytest.raises(ApiError, match="t-0") as caught:
                await consumer.position(ZERO)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    consuming(test)


def test_iteration_ends_when_the_consumer_is_closed() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO])
        seen = []
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 10:
                await consumer.close()
        assert seen == list(range(10))
        with pytest.raises(ClientClosed):
            await consumer.getone()

    consuming(test)


def test_a_reader_that_waits_is_let_go_by_close() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        consumer.assign([ZERO])
        consumer.seek(ZERO, 10)
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(ClientClosed):
            await waiting

    consuming(test)


def test_without_a_group_there_is_nothing_to_commit_or_to_share() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        with pytest.raises(ValueError, match="group_id"):
            consumer.subscribe(["t"])
        with pytest.raises(ValueError, match="group_id"):
            await consumer.commit({ZERO: 1})
        with pytest.raises(ValueError, match="group_id"):
            await consumer.committed(ZERO)

    consuming(test)


def test_a_transaction_s_membership_is_the_one_its_records_were_read_under() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        core = consumer._core
        assert core is not None
        core.member_id, core.generation_id = "me", 1
        await consumer.adopt({ZERO})
        consumer.seek(ZERO, 0)
        assert consumer.membership == GroupMembership(1, "me")
        await consumer.getone()
        core.generation_id = 2
        assert consumer.membership == GroupMembership(1, "me")
        await consumer.getone()
        assert consumer.membership == GroupMembership(2, "me")
        # A member that did not poll in time is out of the group, but its transaction still names
        # its last membership. So the coordinator refuses it, and does not take it for a client
        # without a group.
        core.member_id, core.generation_id = "", -1
        assert consumer.membership == GroupMembership(2, "me")
        await consumer.unsubscribe()
        assert consumer.membership is None

    consuming(test, group_id="g", auto_commit=False)


def test_a_poll_that_outlasts_its_membership_does_not_count_for_the_next() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        polling = asyncio.create_task(consumer.getmany(timeout_ms=100))
        await asyncio.sleep(0)
        await consumer.unsubscribe()
        assert await polling == {}
        core = consumer._core
        assert core is not None
        core.subscribe(["t"])
        stable(core, ZERO)
        assert core.next_deadline_ms() is not None, "when it leaves because of missing polls"
        core.member_id, core.generation_id = "", -1

    consuming(test, group_id="g", auto_commit=False)


def test_a_member_that_was_thrown_out_hands_out_nothing_of_what_it_lost() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        core = consumer._core
        assert core is not None
        consumer._offsets.is_subscribed = True
        core.member_id, core.generation_id = "me", 1
        await consumer.adopt({ZERO})
        consumer.seek(ZERO, 0)
        assert (await consumer.getone()).offset == 0
        core.member_id, core.generation_id = "", -1
        assert await consumer.getmany(timeout_ms=50) == {}
        core.member_id, core.generation_id = "me", 2
        assert (await consumer.getone()).offset == 1
        core.member_id = ""

    consuming(test, group_id="g", auto_commit=False)


def test_a_member_commits_nothing_of_a_partition_it_does_not_read() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        core = consumer._core
        assert core is not None
        core.member_id, core.generation_id = "me", 1
        consumer._offsets.is_subscribed = True
        await consumer.adopt({ZERO, ONE})
        await consumer.revoke({ONE}, False)
        for offsets in ({ONE: 3}, {ZERO: 3, ONE: 3}):
            with pytest.raises(ApiError, match="t-1") as caught:
                await consumer.commit(offsets)
            assert caught.value.code is ErrorCode.ILLEGAL_GENERATION
        core.member_id, core.generation_id = "", -1

    consuming(test, group_id="g", auto_commit=False)


def test_a_partition_that_comes_back_begins_where_the_group_is_by_then() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        leaders.committed = {0: 2}
        leaders.commits_gate = asyncio.Event()
        await consumer.adopt({ZERO})
        while not leaders.commits_asked:
            await consumer.getmany(timeout_ms=10)
        await consumer.revoke({ZERO}, False)
        leaders.committed = {0: 9}
        await consumer.adopt({ZERO})
        leaders.commits_gate.set()
        assert await consumer.position(ZERO) == 9
        assert (await consumer.getone()).offset == 9

    consuming(test, group_id="g", auto_commit=False)


def test_positions_may_be_asked_for_side_by_side() -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        leaders.committed = {0: 2, 1: 5}
        consumer.assign([ZERO, ONE])
        asked = await asyncio.gather(
            consumer.position(ZERO), consumer.position(ONE), consumer.position(ZERO)
        )
        assert list(asked) == [2, 5, 2]

    consuming(test, group_id="g", auto_commit=False)


@pytest.mark.parametrize("waits", ["getone", "position"])
@pytest.mark.parametrize("asks", ["the group", "the leader"])
def test_a_waiter_for_the_start_gets_the_failure(waits: str, asks: str) -> None:
    async def test(consumer: Consumer, leaders: Leaders) -> None:
        if asks == "the group":
            leaders.commits_gate = asyncio.Event()
        else:
            leaders.look_up_gate = asyncio.Event()
        consumer.assign([ZERO])
        waiting = asyncio.create_task(
            consumer.getone() if waits == "getone" else consumer.position(ZERO)
        )
        while not (leaders.commits_asked if asks == "the group" else leaders.look_ups_asked):
            await asyncio.sleep(0.001)
        await consumer.close()
        with pytest.raises(ClientClosed):
            await waiting

    consuming(test, group_id="g", auto_commit=False)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="assignors"):
        ConsumerSettings(assignors=("fair",))
    with pytest.raises(ValueError, match="middle"):
        ConsumerSettings(offset_reset="middle")
    with pytest.raises(ValueError, match="max_poll_records"):
        ConsumerSettings(max_poll_records=0)
