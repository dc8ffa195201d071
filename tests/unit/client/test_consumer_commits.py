"""Commits by the application and in the background run one after the other, and none moves an
offset backwards."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from protocol.client.consumer import Consumer
from protocol.client.membership import GroupMemberDriver
from protocol.errors import ApiError, ErrorCode
from protocol.messages.group import JoinGroupRequest
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.types import TopicPartition
from tests.unit.client.scripted_server import HANG, Answer, Received
from tests.unit.client.test_consumer import consuming
from tests.unit.client.test_fetcher import Leaders
from tests.unit.client.test_group_core import stable

ZERO = TopicPartition("t", 0)
PASSING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class CommittingLeaders(Leaders):
    """Leaders whose coordinator accepts commits, unless the test sets another response."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[dict[int, int]] = []
        self.taken: list[dict[int, int]] = []
        self.refusals: list[ErrorCode] = []
        self.joins = 0

    def script_of(self, node_id: int) -> Callable[[Received], Awaitable[Answer]]:
        otherwise = super().script_of(node_id)

        async def answer(request: Received) -> Answer:
            if isinstance(request.message, JoinGroupRequest):
                self.joins += 1
                return HANG
            if not isinstance(request.message, OffsetCommitRequest):
                return await otherwise(request)
            (topic,) = request.message.topics
            offsets = {p.partition_index: p.committed_offset for p in topic.partitions}
            self.asked.append(offsets)
            code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
            if not code:
                self.committed |= offsets
                self.taken.append(offsets)
            partitions = [
                OffsetCommitResponsePartition(partition_index=index, error_code=code)
                for index in offsets
            ]
            answered = OffsetCommitResponseTopic(name="t", partitions=partitions)
            return OffsetCommitResponse(topics=[answered])

        return answer


def committing(
    test: Callable[[Consumer, CommittingLeaders], Awaitable[None]], **settings: Any
) -> None:
    """Run a test on a consumer of a group that commits offsets, with two partitions of ten records
    each."""

    leaders = CommittingLeaders()
    consuming(lambda consumer, _: test(consumer, leaders), leaders, **{"group_id": "g"} | settings)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.001)


def test_a_commit_that_is_tried_again_does_not_take_back_a_later_one() -> None:
    async def test(consumer: Consumer, leaders: CommittingLeaders) -> None:
        consumer.assign([ZERO])
        for _ in range(4):
            await consumer.getone()
        leaders.refusals = [PASSING]
        in_the_background = asyncio.create_task(
            consumer._offsets.commit_quietly(consumer._offsets.worked_off)
        )
        await until(lambda: bool(leaders.asked))
        assert leaders.asked == [{0: 3}], "without what is being worked on"
        await consumer.commit({ZERO: 4})
        await in_the_background
        assert leaders.taken == [{0: 3}, {0: 4}]

    committing(test, auto_commit=False)


def test_the_background_commits_what_is_worked_off_when_its_turn_comes() -> None:
    """While the background commit waits for an earlier commit, the application can process more
    records. The background commit must then include those."""

    async def test(consumer: Consumer, leaders: CommittingLeaders) -> None:
        consumer.assign([ZERO])
        for _ in range(4):
            await consumer.getone()
        leaders.refusals = [PASSING]
        committing = asyncio.create_task(consumer.commit({ZERO: 4}))
        await until(lambda: bool(leaders.asked))
        in_the_background = asyncio.create_task(
            consumer._offsets.commit_quietly(consumer._offsets.worked_off)
        )
        await asyncio.gather(committing, in_the_background)
        assert leaders.taken == [{0: 4}]

    committing(test, auto_commit=False)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_a_refused_commit_moves_the_member_though_its_reader_waits_for_long(
    code: ErrorCode,
) -> None:
    async def test(consumer: Consumer, leaders: CommittingLeaders) -> None:
        core = consumer._core
        assert core is not None
        core.subscribe(["t"])
        stable(core, ZERO)
        consumer._offsets.is_subscribed = True
        await consumer.adopt({ZERO})
        consumer.seek(ZERO, 10)
        # The member must learn of its removal from the refused commit, so no heartbeat is sent
        # before.
        core._heartbeat_at_ms = consumer._cluster.now_ms() + 3_600_000
        member = GroupMemberDriver(consumer._cluster, core, consumer)
        consumer._member = member
        member.start()
        reading = asyncio.create_task(consumer.getmany(timeout_ms=3_600_000))
        await until(lambda: bool(leaders.fetches))
        leaders.refusals = [code]
        with pytest.raises(ApiError):
            await consumer.commit({ZERO: 1})
        await until(lambda: bool(leaders.joins))
        reading.cancel()

    committing(test, auto_commit=False)


def test_a_position_of_a_revoked_partition_is_dropped() -> None:
    async def test(consumer: Consumer, leaders: CommittingLeaders) -> None:
        leaders.commits_gate = asyncio.Event()
        await consumer.adopt({ZERO})
        waiting = asyncio.create_task(consumer.position(ZERO))
        await until(lambda: bool(leaders.commits_asked))
        await consumer.revoke({ZERO}, False)
        leaders.commits_gate.set()
        with pytest.raises(ValueError, match="t-0 is not assigned to this consumer"):
            await waiting

    committing(test, auto_commit=False)
