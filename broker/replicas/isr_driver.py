"""Sends the leaders' proposals of in-sync replicas to the active controller.

All proposals of one iteration of the event loop are sent in one AlterPartition request. The
response only ends the wait for the response. The in-sync replicas themselves come from the metadata
log alone (decision 0029). If the response is missing, or does not contain the partition, the
proposal has failed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from broker.metadata.records import RECOVERED
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.replication.follower_session import FollowerIdentity
from broker.replication.follower_steps import PartitionId
from broker.replication.isr import IsrProposal
from broker.sessions.peer import Answered, Failed
from broker.world import End, World
from protocol.errors import ErrorCode
from protocol.messages.membership import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    BrokerState,
)
from protocol.types import Uuid
from protocol.wire.schema import Message

LOOK_MS = 500
"""The interval in milliseconds at which leaders check whether followers have fallen behind. It is a
tenth of `replica.lag.time.max.ms`."""

Proposed = tuple[Replica, IsrProposal]


class AskController(Protocol):
    """The function that sends a request to the active controller. Exactly one callback is called,
    once, later."""

    def __call__(self, request: Message, answered: Answered, failed: Failed) -> object:
        """Send the request. It fails after a timeout, or if no active controller is known."""


class IsrDriver:
    """The proposals of all partitions that this broker leads."""

    def __init__(
        self,
        world: World,
        me: FollowerIdentity,
        replicas: Replicas,
        ask_controller: AskController,
        lived_ms: Callable[[], int],
    ) -> None:
        """`me` has the node id and the broker epoch of this incarnation. `lived_ms` is the time by
        which a follower's lag is measured."""
        self._world = world
        self._me = me
        self._replicas = replicas
        self._ask_controller = ask_controller
        self._lived_ms = lived_ms
        self._gathered: list[Proposed] = []
        self._is_stopped = False

    def start(self) -> None:
        """Check all partitions that this broker leads at regular intervals."""
        self._world.later(LOOK_MS, self._tick)

    def stop(self) -> None:
        """Send no more proposals, because the broker stops."""
        self._is_stopped = True

    def heard(self, replica: Replica) -> None:
        """Handle a follower's progress. A follower that is not in sync can have caught up."""
        if replica.state.has_outsiders:
            self.look(replica)

    def look(self, replica: Replica) -> None:
        """Send the proposal of new in-sync replicas for one partition, if there is one."""
        if self._is_stopped:
            return
        proposal = replica.state.proposal(self._lived_ms())
        # The high watermark waits for a proposed replica from now on. It possibly no longer waits
        # for a replica that is proposed for removal.
        replica.take_over()
        if proposal is None:
            return
        self._gathered.append((replica, proposal))
        if len(self._gathered) == 1:
            self._world.soon(self._send)

    def _tick(self) -> None:
        if self._is_stopped:
            return
        for replica in self._replicas:
            if replica.is_shared and replica.is_led:
                self.look(replica)
        self._world.later(LOOK_MS, self._tick)

    def _send(self) -> None:
        gathered, self._gathered = self._gathered, []
        topics: dict[Uuid, AlterPartitionRequestTopic] = {}
        for replica, proposal in gathered:
            topic_id = replica.log.topic_id
            topic = topics.setdefault(topic_id, AlterPartitionRequestTopic(topic_id=topic_id))
            topic.partitions.append(
                AlterPartitionRequestPartition(
                    partition_index=replica.index,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=node_id, broker_epoch=broker_epoch)
                        for node_id, broker_epoch in proposal.in_sync_replicas
                    ],
                    leader_recovery_state=RECOVERED,
                )
            )
        request = AlterPartitionRequest(
            broker_id=self._me.node_id,
            broker_epoch=self._me.broker_epoch,
            topics=list(topics.values()),
        )
        self._ask_controller(
            request,
            partial(self._answered, gathered),
            partial(self._failed, gathered),
        )

    def _answered(self, gathered: list[Proposed], answer: AlterPartitionResponse) -> None:
        whole = ErrorCode.of(answer.error_code)
        codes = {
            PartitionId(topic.topic_id, one.partition_index): ErrorCode.of(one.error_code)
            for topic in answer.topics
            for one in topic.partitions
        }
        for replica, proposal in gathered:
            code = whole
            if code is ErrorCode.NONE:
                code = codes.get(replica.partition_id, ErrorCode.UNKNOWN_SERVER_ERROR)
            self._tell(replica, proposal, code)

    def _failed(self, gathered: list[Proposed], end: End) -> None:
        for replica, proposal in gathered:
            self._tell(replica, proposal, ErrorCode.REQUEST_TIMED_OUT)

    def _tell(self, replica: Replica, proposal: IsrProposal, code: ErrorCode) -> None:
        replica.state.answered(proposal.number, code)
        if self._replicas.holds(replica):
            replica.take_over()
