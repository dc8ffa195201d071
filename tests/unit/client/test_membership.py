"""A group member's driver with a scripted coordinator: on which connection it sends each
request."""

import asyncio
from collections.abc import Collection

from protocol.client.assignors import ASSIGNORS
from protocol.client.cluster import Cluster
from protocol.client.group_core import GroupCore
from protocol.client.group_steps import GroupSettings
from protocol.client.membership import GroupMemberDriver
from protocol.errors import ErrorCode
from protocol.messages.cluster import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.group import (
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
)
from protocol.types import TopicPartition
from tests.unit.client.scripted_server import Answer, Received, ScriptedServer, metadata


class GroupCoordinatorNode:
    """A coordinator that never completes a rebalance. A JoinGroup with a member id gets no
    response."""

    def __init__(self) -> None:
        self.server = ScriptedServer(self.answer)
        self.waiting = asyncio.Event()
        self.left: list[str] = []

    async def answer(self, request: Received) -> Answer:
        message = request.message
        if isinstance(message, FindCoordinatorRequest):
            (key,) = message.coordinator_keys
            port = self.server.port
            found = Coordinator(key=key, node_id=1, host="127.0.0.1", port=port)
            return FindCoordinatorResponse(coordinators=[found])
        if isinstance(message, JoinGroupRequest):
            if not message.member_id:
                code = ErrorCode.MEMBER_ID_REQUIRED
                return JoinGroupResponse(error_code=code, member_id="me")
            self.waiting.set()
            await asyncio.Event().wait()
        if isinstance(message, LeaveGroupRequest):
            self.left += [member.member_id for member in message.members]
            return LeaveGroupResponse()
        return metadata({1: self.server.port}, {"t": {0: (1, 0)}})


class Reading:
    """A double of the consumer, which must get no partitions in these tests."""

    async def revoke(self, partitions: Collection[TopicPartition], is_lost: bool) -> None:
        raise AssertionError("nothing was assigned")

    async def adopt(self, added: Collection[TopicPartition]) -> None:
        raise AssertionError("nothing was assigned")

    def failed(self) -> None:
        raise AssertionError("the membership has failed")


def test_a_member_that_closes_during_a_rebalance_leaves_at_once() -> None:
    async def run() -> None:
        coordinating = GroupCoordinatorNode()
        async with coordinating.server as server, asyncio.timeout(20):
            cluster = Cluster(server.address, client_id="me")
            await cluster.start(10_000)
            settings = GroupSettings("g", (ASSIGNORS["range"],))
            core = GroupCore(settings, cluster.rng, cluster.now_ms())
            core.subscribe(["t"])
            member = GroupMemberDriver(cluster, core, Reading())
            member.start()
            await coordinating.waiting.wait()
            await member.close()
            assert coordinating.left == ["me"]
            await cluster.close()

    asyncio.run(run())
