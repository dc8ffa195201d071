"""Runs one member of a group: performs the steps of `group_core` and sends heartbeats.

One task performs the rebalances, another sends heartbeats. The handler (`consumer.py`) changes what
is read. This module only sends the requests.
"""

import asyncio
import logging
from collections.abc import Collection, Mapping
from typing import Any, Protocol

from protocol.client.cluster import Cluster
from protocol.client.connection import ByVersion, Connection
from protocol.client.errors import ClientError, is_transient
from protocol.client.group_core import GroupCore
from protocol.client.group_steps import Adopt, Count, Join, Leave, RevokePartitions, Sync
from protocol.errors import ApiError, ErrorCode
from protocol.log import fields
from protocol.messages.api import ApiKey
from protocol.messages.group import LeaveGroupRequest, MemberIdentity
from protocol.types import TopicPartition
from protocol.wire.schema import Message

LEAVE_TIMEOUT_MS = 5_000
_FIRST_VERSION_WITH_MEMBERS = 3
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)

logger = logging.getLogger(__name__)


class Handler(Protocol):
    """The reader of the partitions, which the driver calls when the assignment changes."""

    async def revoke(self, partitions: Collection[TopicPartition], is_lost: bool) -> None:
        """Stop reading these partitions. Other members can read them as soon as this returns."""

    async def adopt(self, added: Collection[TopicPartition]) -> None:
        """Start to read these partitions too."""

    def failed(self) -> None:
        """Handle the end of the membership. `core.failure` has the error."""


class GroupMemberDriver:
    """Sends the requests of a GroupCore, from `start` to `close`."""

    def __init__(self, cluster: Cluster, core: GroupCore, handler: Handler) -> None:
        self._cluster = cluster
        self._core = core
        self._handler = handler
        self._group_id = core.settings.group_id
        self._purpose = cluster.new_purpose("group")
        self._wake = asyncio.Event()
        self._wake_heart = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Join the group, once the topics are known. Further calls do nothing."""
        if self._tasks:
            return
        self._tasks = [
            asyncio.create_task(self._walk(), name=f"member of {self._group_id}"),
            asyncio.create_task(self._beat(), name=f"heart of {self._group_id}"),
        ]
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def wake(self) -> None:
        """Check again which steps are due."""
        self._wake.set()
        self._wake_heart.set()

    async def stop(self) -> None:
        """Stop both tasks without leaving the group."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """Stop both tasks, and leave the group unless the member is static.

        The caller has given its partitions back.
        """
        await self.stop()
        # Use another connection. On this one LeaveGroup would wait behind a waiting JoinGroup or
        # SyncGroup.
        await self._cluster.release(self._purpose)
        if self._core.leaves_at_the_end:
            await self._leave(self._core.member_id)
            await self._cluster.release(self._purpose)

    # --- rounds -------------------------------------------------------------------------------

    async def _walk(self) -> None:
        while True:
            self._wake.clear()
            step = self._core.step(self._cluster.now_ms())
            if step is None:
                await self._sleep(self._wake, self._core.next_deadline_ms())
                continue
            match step:
                case RevokePartitions():
                    await self._handler.revoke(step.partitions, step.is_lost)
                    self._core.revoked(step)
                case Join():
                    await self._join(step)
                case Count():
                    await self._count(step)
                case Sync():
                    await self._sync(step)
                case Adopt():
                    await self._handler.adopt(step.added)
                    self._core.adopted(step)
                case Leave():
                    logger.warning(
                        "consumer was not polled for too long and leaves its group",
                        extra=fields(group=self._group_id),
                    )
                    await self._leave(step.member_id)
            self._wake_heart.set()
            if self._core.failure is not None:
                self._handler.failed()

    async def _join(self, step: Join) -> None:
        try:
            response = await self._ask(step.request, step.timeout_ms)
        except (ClientError, ApiError) as error:
            self._give_up_on(error)
            self._core.on_join_lost(self._cluster.now_ms())
        else:
            self._note(response.error_code)
            self._core.on_join(response, self._cluster.now_ms())

    async def _sync(self, step: Sync) -> None:
        try:
            response = await self._ask(step.request, step.timeout_ms)
        except (ClientError, ApiError) as error:
            self._give_up_on(error)
            self._core.on_sync_lost(step, self._cluster.now_ms())
        else:
            self._note(response.error_code)
            self._core.on_sync(step, response, self._cluster.now_ms())

    async def _count(self, step: Count) -> None:
        try:
            counts = await partition_counts(self._cluster, step.topics)
        except (ClientError, ApiError) as error:
            self._give_up_on(error)
            self._core.on_count_lost(self._cluster.now_ms())
        else:
            self._core.counted(counts)

    async def _leave(self, member_id: str) -> None:
        group_id = self._group_id
        request = ByVersion(
            ApiKey.LEAVE_GROUP,
            lambda version: (
                LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(member_id=member_id)])
                if version >= _FIRST_VERSION_WITH_MEMBERS
                else LeaveGroupRequest(group_id=group_id, member_id=member_id)
            ),
        )
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_MS / 1000):
                await self._ask(request, LEAVE_TIMEOUT_MS)
        except (ClientError, ApiError, TimeoutError) as error:
            # The coordinator removes the member when its session ends.
            logger.warning(
                "could not leave the group; the coordinator removes this member later",
                extra=fields(group=group_id, error=error),
            )

    # --- heartbeats ---------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            self._wake_heart.clear()
            due = self._core.heartbeat_at_ms
            if due is None or due > self._cluster.now_ms():
                await self._sleep(self._wake_heart, due)
                continue
            try:
                connection = await self._connection(self._core.settings.session_timeout_ms)
                # Create the heartbeat after the connection is ready. An older heartbeat could be
                # sent behind a waiting JoinGroup.
                request = self._core.heartbeat(self._cluster.now_ms())
                if request is None or not connection.has_room:
                    continue
                future = connection.send(request, timeout_ms=self._cluster.request_timeout_ms)
                response = await future
            except (ClientError, ApiError) as error:
                self._give_up_on(error)
                self._core.on_heartbeat_lost(self._cluster.now_ms())
            else:
                self._note(response.error_code)
                code = ErrorCode.of(response.error_code)
                self._core.on_heartbeat(request, code, self._cluster.now_ms())
                self._wake.set()

    # --- requests -----------------------------------------------------------------------------

    async def _connection(self, timeout_ms: int) -> Connection:
        node_id = await self._cluster.coordinator(self._group_id, timeout_ms=timeout_ms)
        return await self._cluster.connection(node_id, self._purpose)

    async def _ask(self, request: Message | ByVersion, timeout_ms: int) -> Any:
        connection = await self._connection(timeout_ms)
        return await connection.request(request, timeout_ms=timeout_ms)

    def _note(self, code: int) -> None:
        if code in _MOVED:
            self._cluster.forget_coordinator(self._group_id)

    def _give_up_on(self, error: Exception) -> None:
        """Forget the coordinator, so that it is looked up again.

        A permanent error ends the membership.
        """
        self._cluster.forget_coordinator(self._group_id)
        if not is_transient(error):
            raise error

    async def _sleep(self, wake: asyncio.Event, until_ms: int | None) -> None:
        delay_s = None if until_ms is None else (until_ms - self._cluster.now_ms()) / 1000
        try:
            async with asyncio.timeout(delay_s):
                await wake.wait()
        except TimeoutError:
            return

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Pass the error that ended a task (such as a listener's exception) to the reader."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._core.fail(error if isinstance(error, Exception) else ClientError(repr(error)))
            self._handler.failed()
            self.wake()


async def partition_counts(cluster: Cluster, topics: Collection[str]) -> Mapping[str, int]:
    """Return the present number of partitions of each topic; topics that do not
    exist are left out.
    """
    current = await cluster.metadata(topics, refresh=True)
    return {
        name: len(current.topics[name].partitions)
        for name in topics
        if name in current.topics and current.topics[name].partitions
    }
