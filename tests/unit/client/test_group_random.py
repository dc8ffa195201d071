"""Several members and a coordinator that follows Kafka's rules, on a network that loses messages.

The coordinator is a double with Kafka's states, generations and error codes. It has no timers:
members expire at random instead. After every event, no partition may have two owners among the
members of the current generation. At the end, once faults have stopped, every partition must have
an owner.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from protocol.client.assignors import ASSIGNORS
from protocol.client.group_core import GroupCore
from protocol.client.group_steps import (
    Adopt,
    Count,
    GroupSettings,
    Join,
    Leave,
    RevokePartitions,
    Sync,
)
from protocol.errors import ErrorCode
from protocol.messages.group import (
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.types import TopicPartition
from tests.harness.seed import seeded

PARTITIONS = 7
Reply = Callable[[Any], None]

EVERYTHING = frozenset(TopicPartition("t", index) for index in range(PARTITIONS))


class Coordinator:
    """One group. `joined` has the members that have joined the next generation, and `syncing` those
    that wait for their assignment."""

    def __init__(self) -> None:
        self.state = "Empty"
        self.generation_id = 0
        self.members: dict[str, JoinGroupRequest] = {}
        self.joined: dict[str, Reply] = {}
        self.syncing: dict[str, Reply] = {}
        self.assignment: dict[str, bytes] = {}
        self.leader = ""
        self.named = 0

    def join(self, reply: Reply, request: JoinGroupRequest) -> None:
        if not request.member_id:
            self.named += 1
            answer = JoinGroupResponse(
                error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=f"m{self.named}"
            )
            self.members[answer.member_id] = request
            reply(answer)
            return
        if request.member_id not in self.members:
            reply(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            return
        self.members[request.member_id] = request
        self.joined[request.member_id] = reply
        self.prepare()

    def prepare(self) -> None:
        self.state = "PreparingRebalance"
        for reply in self.syncing.values():
            reply(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        self.syncing.clear()

    def complete(self) -> None:
        """Perform what the end of the rebalance timeout does: remove members that have not
        joined."""
        if self.state != "PreparingRebalance" or not self.joined:
            return
        self.members = {id_: self.members[id_] for id_ in self.joined}
        self.generation_id += 1
        self.state = "CompletingRebalance"
        self.leader = min(self.members)
        protocol = self.members[self.leader].protocols[0].name
        joined, self.joined = self.joined, {}
        for member_id, reply in joined.items():
            reply(
                JoinGroupResponse(
                    generation_id=self.generation_id,
                    protocol_name=protocol,
                    leader=self.leader,
                    member_id=member_id,
                    members=[
                        JoinGroupResponseMember(
                            member_id=id_, metadata=request.protocols[0].metadata
                        )
                        for id_, request in self.members.items()
                        if member_id == self.leader
                    ],
                )
            )

    def sync(self, reply: Reply, request: SyncGroupRequest) -> None:
        code = self.check(request.member_id, request.generation_id)
        if code:
            reply(SyncGroupResponse(error_code=code))
            return
        if self.state == "CompletingRebalance":
            self.syncing[request.member_id] = reply
            if request.member_id == self.leader:
                self.assignment = {a.member_id: a.assignment for a in request.assignments}
                self.state = "Stable"
                waiting, self.syncing = self.syncing, {}
                for member_id, waiting_reply in waiting.items():
                    waiting_reply(self._part_of(member_id))
        else:
            reply(self._part_of(request.member_id))

    def _part_of(self, member_id: str) -> SyncGroupResponse:
        return SyncGroupResponse(assignment=self.assignment.get(member_id, b""))

    def check(self, member_id: str, generation_id: int) -> ErrorCode:
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        if self.state == "PreparingRebalance":
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def remove(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            if (reply := self.joined.pop(member_id, None)) is not None:
                reply(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            if (reply := self.syncing.pop(member_id, None)) is not None:
                reply(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
            if self.members:
                self.prepare()
            else:
                self.state = "Empty"


class Peer:
    """One group member with its core and its only pending request."""

    def __init__(self, coordinator: Coordinator, assignor: str, rng: random.Random) -> None:
        settings = GroupSettings("g", (ASSIGNORS[assignor],), retry_backoff_ms=(10, 50))
        self.core = GroupCore(settings, rng, 0)
        self.core.subscribe(["t"])
        self.core.poll_began(0)
        self.coordinator = coordinator
        self.asked: Join | Sync | None = None
        self.inbox: list[Any] = []
        self.reads: frozenset[TopicPartition] = frozenset()

    def answer(self, asked: Join | Sync, message: Any) -> None:
        # The response to a request on a connection that has since broken is dropped.
        if self.asked is asked:
            self.inbox.append(message)

    def act(self, now_ms: int) -> None:
        if self.asked is not None:
            self.hear(now_ms)
            return
        step = self.core.step(now_ms)
        match step:
            case Join():
                self.asked = step
                self.coordinator.join(partial(self.answer, step), step.request)
            case Sync():
                self.asked = step
                self.coordinator.sync(partial(self.answer, step), step.request)
            case Count():
                self.core.counted(dict.fromkeys(step.topics, PARTITIONS))
            case RevokePartitions():
                assert step.partitions <= self.reads
                self.reads -= step.partitions
                self.core.revoked(step)
            case Adopt():
                assert not step.added & self.reads
                self.reads |= step.added
                self.core.adopted(step)
            case Leave() | None:
                self.beat(now_ms)

    def hear(self, now_ms: int) -> None:
        if not self.inbox:
            return
        message, asked, self.asked = self.inbox.pop(0), self.asked, None
        if isinstance(asked, Join):
            self.core.on_join(message, now_ms)
        elif asked is not None:
            self.core.on_sync(asked, message, now_ms)

    def lose(self, now_ms: int) -> None:
        asked, self.asked = self.asked, None
        self.inbox.clear()
        if isinstance(asked, Join):
            self.core.on_join_lost(now_ms)
        elif asked is not None:
            self.core.on_sync_lost(asked, now_ms)

    def beat(self, now_ms: int) -> None:
        request = self.core.heartbeat(now_ms)
        if request is not None:
            code = self.coordinator.check(request.member_id, request.generation_id)
            self.core.on_heartbeat(request, code, now_ms)


def check(coordinator: Coordinator, peers: list[Peer]) -> None:
    owners: dict[TopicPartition, str] = {}
    for peer in peers:
        core = peer.core
        assert core.failure is None
        is_member = core.member_id in coordinator.members
        if not is_member or core.generation_id != coordinator.generation_id:
            continue
        for tp in peer.reads:
            assert tp not in owners, f"{tp} is read by {owners[tp]} and {core.member_id}"
            owners[tp] = core.member_id


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_nothing_is_owned_twice_and_in_the_end_all_is_owned(assignor: str) -> None:
    rng = seeded(f"groups by {assignor}")
    for _ in range(60):
        coordinator = Coordinator()
        peers = [Peer(coordinator, assignor, rng) for _ in range(rng.randrange(1, 5))]
        now_ms = 0
        for _ in range(rng.randrange(50, 400)):
            now_ms += rng.randrange(0, 600)
            peer = rng.choice(peers)
            chance = rng.random()
            if chance < 0.04:
                peer.lose(now_ms)
            elif chance < 0.06:
                coordinator.remove(peer.core.member_id)
            elif chance < 0.08:
                peer.core.rejoin()
            elif chance < 0.10 and len(peers) < 6:
                peers.append(Peer(coordinator, assignor, rng))
            elif chance < 0.25:
                coordinator.complete()
            else:
                peer.act(now_ms)
            check(coordinator, peers)
        for moment in range(400):
            now_ms += 500
            for peer in peers:
                peer.act(now_ms)
            if moment % 20 == 19:
                # Every member has joined the rebalance by now.
                coordinator.complete()
            check(coordinator, peers)
        owned = [tp for peer in peers for tp in peer.reads]
        assert len(owned) == len(set(owned))
        assert frozenset(owned) == EVERYTHING, (
            f"{coordinator.state} {[p.core.phase for p in peers]}"
        )
