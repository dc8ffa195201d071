"""A scene for tests of groups: named clients, a clock that the test sets, and a log whose writes
can wait.

Everything that a group decides passes through the scene as through the broker. Responses go to the
waiting request. Generations are written to the log, and are replayed after a restart.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from broker.coordinators.classic_group import ClassicGroup
from broker.coordinators.group_terms import (
    GroupAnswer,
    GroupLimits,
    JoinAnswer,
    JoinRequest,
    Moment,
    StoreGroup,
    SyncAnswer,
    SyncRequest,
)
from broker.coordinators.offsets import GroupShard
from broker.coordinators.outcome import CoordinatorRecord
from protocol.errors import ApiError, ErrorCode
from protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

GROUP = "g"
LOGS_ID = UUID(int=1)
RETENTION_MS = 100_000
PROTOCOLS_BYTES_MAX = 1_000


def subscription(*topics: str) -> bytes:
    """Encode a consumer's subscription of version 0 that has only topics."""
    names = b"".join(len(one).to_bytes(2, "big") + one.encode() for one in topics)
    return b"\x00\x00" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


@dataclass
class Client:
    """A client that can become a member. It remembers its last response."""

    name: str
    instance: str | None = None
    protocols: tuple[str, ...] = ("range",)
    said: bytes = subscription("t")
    session_ms: int = 10_000
    rebalance_ms: int = 30_000
    protocol_type: str = "consumer"
    member_id: str = ""
    generation: int = -1


@dataclass(eq=False)
class Asked:
    """A client's request. `reply` is None while the request waits."""

    client: Client
    replies: list[JoinAnswer | SyncAnswer] = field(default_factory=list)

    @property
    def reply(self) -> JoinAnswer | SyncAnswer | None:
        return self.replies[0] if self.replies else None

    @property
    def joined(self) -> JoinAnswer:
        """Return the response of a JoinGroup request that was answered."""
        assert isinstance(self.reply, JoinAnswer), "not answered"
        return self.reply

    @property
    def synced(self) -> SyncAnswer:
        """Return the response of a SyncGroup request that was answered."""
        assert isinstance(self.reply, SyncAnswer), "not answered"
        return self.reply


class Scene:
    """One shard, its clock and its log."""

    def __init__(
        self,
        *,
        delay_ms: int = 0,
        size_max: int = 100,
        session_ms: tuple[int, int] = (1_000, 60_000),
        random: Random | None = None,
    ) -> None:
        self.now_ms = 0
        self.limits = GroupLimits(delay_ms, size_max, *session_ms, 10, 100, PROTOCOLS_BYTES_MAX)
        self.random = random or Random(1)
        self.log: list[CoordinatorRecord] = []
        self.held: deque[StoreGroup] = deque()
        self.is_held = False
        """True if records wait for `let_store` before they are stored."""
        self.events: list[tuple[int, Asked | StoreGroup]] = []
        """The results, each with its time: answered requests and stored generations."""
        self.shard = self._new_shard()

    def _new_shard(self) -> GroupShard:
        shard = GroupShard(self.limits, 100, RETENTION_MS, self.random)
        for record in self.log:
            shard.replay(record.key, record.value)
        shard.loaded(self.moment)
        return shard

    @property
    def moment(self) -> Moment:
        return Moment(self.now_ms, self.now_ms)

    @property
    def group(self) -> ClassicGroup:
        """Return the only group. Fail if there is none."""
        return self.shard.members.groups[GROUP]

    def restart(self) -> None:
        """Restart the broker after a crash: only the log is left."""
        self.held.clear()
        self.shard = self._new_shard()
        self._perform()

    # Requests.

    def join(self, client: Client, *, needs_id: bool = False, may_skip: bool = False) -> Asked:
        asked = Asked(client)
        protocols = tuple((name, client.said) for name in client.protocols)
        joining = JoinRequest(
            asked, client.member_id, client.instance, client.name, "/here", client.session_ms,
            client.rebalance_ms, client.protocol_type, protocols, needs_id, may_skip,
        )  # fmt: skip
        self.shard.members.join(GROUP, joining, self.moment)
        self._perform()
        return asked

    def sync(
        self,
        client: Client,
        assignments: Mapping[str, bytes] | None = None,
        *,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> Asked:
        asked = Asked(client)
        syncing = SyncRequest(
            asked, client.member_id, client.instance, client.generation, *protocol,
            assignments or {},
        )  # fmt: skip
        self.shard.members.sync(GROUP, syncing, self.moment)
        self._perform()
        return asked

    def heartbeat(self, client: Client) -> ErrorCode:
        code = self.shard.members.heartbeat(
            GROUP, client.member_id, client.instance, client.generation, self.moment
        )
        self._perform()
        return code

    def leave(self, client: Client) -> ErrorCode:
        code = self.shard.members.leave(GROUP, client.member_id, client.instance, self.moment)
        self._perform()
        return code

    def commit(self, client: Client, offset: int, topic: str = "t") -> ErrorCode:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=client.generation,
            member_id=client.member_id,
            group_instance_id=client.instance,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        try:
            outcome = self.shard.commit(request, self.moment, lambda topic, index: LOGS_ID)
        except ApiError as error:
            return error.code
        self.write(*outcome.records)
        self._perform()
        return ErrorCode(outcome.reply.topics[0].partitions[0].error_code)

    # Time and log.

    def pass_to(self, now_ms: int) -> None:
        """Advance the time, and stop at every deadline before its end."""
        timers = self.shard.members.timers
        while (deadline_ms := timers.next_deadline_ms) is not None and deadline_ms <= now_ms:
            self.now_ms = max(deadline_ms, self.now_ms)
            self.shard.members.ring(self.moment)
            self._perform()
        self.now_ms = now_ms

    def write(self, *records: CoordinatorRecord) -> None:
        """Append committed records to the log and replay them."""
        for record in records:
            self.log.append(record)
            self.shard.replay(record.key, record.value)

    def let_store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Complete or fail the write of the oldest generation that waits for the disk."""
        store = self.held.popleft()
        if error is ErrorCode.NONE:
            self.write(store.record)
        store.group.stored(store, error, self.moment)
        self._perform()

    def _perform(self) -> None:
        outbox = self.shard.members.outbox
        while outbox:
            effect = outbox.popleft()
            if isinstance(effect, GroupAnswer):
                self._answered(effect)
                continue
            self.events.append((self.now_ms, effect))
            self.held.append(effect)
            if not self.is_held:
                self.let_store()

    def _answered(self, effect: GroupAnswer) -> None:
        asked, reply = effect.token, effect.reply
        assert isinstance(asked, Asked)
        assert not asked.replies, "a request is answered once"
        asked.replies.append(reply)
        told = (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED)
        if isinstance(reply, JoinAnswer) and reply.error in told:
            asked.client.member_id = reply.member_id
            asked.client.generation = reply.generation_id
        self.events.append((self.now_ms, asked))
