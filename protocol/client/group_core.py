"""A member of a consumer group without its network: decides each next step.

This module is pure: time and the random source are arguments. The driver (`membership.py`) asks
`step` for the next step, performs it, reports the result and asks again. In parallel it sends the
requests from `heartbeat`. A rebalance of the classic protocol has these phases:

    UNJOINED    first give owned partitions back: all (eager), or only those not wanted any more
    JOINING     JoinGroup is under way; the leader gets all members, the others their generation
    SYNCING     the leader assigns and sends; each member gets its partitions from SyncGroup
    ADOPTING    removed partitions are given back, added ones are prepared
    STABLE      heartbeats; another rebalance when one is required or the subscription changes

A member whose generation has ended (expired or fenced) has *lost* its partitions. Other members may
read them already, so they are given back without a commit. Cooperative members keep their
partitions during the rebalance. A member that gave partitions back joins once more, so that they
can be assigned to others.
"""

import random
from collections.abc import Collection, Mapping

from protocol.client.assignment import NO_GENERATION, decode_assignment
from protocol.client.assignors import Assignor
from protocol.client.backoff import Backoff
from protocol.client.group_leader import GroupLeader
from protocol.client.group_requests import heartbeat_request, join_request, sync_request
from protocol.client.group_steps import (
    Adopt,
    Count,
    GroupMembership,
    GroupSettings,
    Join,
    Leave,
    MemberPhase,
    RevokePartitions,
    Step,
    Sync,
)
from protocol.client.polls import Polls
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.messages.group import (
    HeartbeatRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.types import TopicPartition

NO_MEMBER = ""
JOIN_ALLOWANCE_MS = 5_000
"""The time by which the answer to JoinGroup can exceed the rebalance time-out."""

_FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class GroupCore:
    """The membership of one consumer in its group. Every method gets the time in milliseconds."""

    def __init__(self, settings: GroupSettings, rng: random.Random, now_ms: int) -> None:
        self.settings = settings
        self.phase = MemberPhase.UNJOINED
        self.member_id = NO_MEMBER
        self.generation_id = NO_GENERATION
        self.protocol_name = ""
        self.owned: frozenset[TopicPartition] = frozenset()
        self.topics: frozenset[str] = frozenset()
        self.failure: Exception | None = None
        self._backoff = Backoff(*settings.retry_backoff_ms, rng)
        self._retry_at_ms = 0
        self._wants_round = True
        self._is_lost = False
        self._is_idle = False
        self._leader = GroupLeader()
        self._next: frozenset[TopicPartition] = frozenset()
        self._polls = Polls(settings.max_poll_interval_ms, now_ms)
        self._heartbeat_at_ms = 0
        self._had: tuple[frozenset[TopicPartition], int] = (frozenset(), NO_GENERATION)
        self._has_revoked = False

    # --- calls of the consumer ----------------------------------------------------------------

    def subscribe(self, topics: Collection[str]) -> None:
        """Subscribe to these topics. A change starts a rebalance."""
        wanted = frozenset(topics)
        if wanted != self.topics:
            self.topics = wanted
            self.rejoin()

    def rejoin(self) -> None:
        """Start a rebalance as soon as the present one is over."""
        self._wants_round = True

    def topics_seen(self, partition_counts: Mapping[str, int]) -> None:
        """Start a rebalance, as the leader, if topics have grown, been created or been deleted."""
        if self.phase is MemberPhase.STABLE and self._leader.has_changed(partition_counts):
            self.rejoin()

    @property
    def watched_topics(self) -> frozenset[str]:
        """The topics that `topics_seen` needs; for the leader those of all members."""
        return self._leader.watched_topics if self._leader.is_leader else self.topics

    @property
    def is_idle(self) -> bool:
        """True if the member has left because it was not polled. The next poll rejoins."""
        return self._is_idle

    def polled(self, now_ms: int) -> None:
        """Handle a poll that was answered at once, with records that were already fetched."""
        self._polls.note(now_ms)

    def poll_began(self, now_ms: int) -> None:
        """Handle the start of a poll. An idle member that had left rejoins."""
        self._polls.begin(now_ms)
        if self._is_idle:
            self._is_idle = False
            self._wants_round = True

    def poll_ended(self, now_ms: int) -> None:
        """Handle the end of a poll; the caller now processes its records."""
        self._polls.end(now_ms)

    def fail(self, error: Exception) -> None:
        """Stop permanently: readers get `failure`, and the partitions are lost."""
        self.failure = error
        self.phase = MemberPhase.FAILED
        self._is_lost = bool(self.owned)

    # --- steps --------------------------------------------------------------------------------

    def step(self, now_ms: int) -> Step | None:
        """Return the next step; None if there is none before `next_deadline_ms` or the next
        call."""
        if self._is_lost and self.owned:
            return RevokePartitions(self.owned, is_lost=True)
        if self.phase is MemberPhase.STABLE and self._polls.is_overdue(now_ms):
            return self._leave_idle()
        if self.phase in (MemberPhase.UNJOINED, MemberPhase.STABLE):
            return self._step_to_join(now_ms)
        if self.phase is MemberPhase.SYNCING:
            return self._step_to_sync()
        if self.phase is MemberPhase.ADOPTING:
            taken_away = self.owned - self._next
            if taken_away:
                return RevokePartitions(taken_away, is_lost=False)
            return Adopt(self._next - self.owned, self._next)
        return None

    def next_deadline_ms(self) -> int | None:
        """Return the time at which `step` must be called even if nothing else happens, or None."""
        if self.phase is MemberPhase.FAILED or self._is_idle:
            return None
        if self.phase is MemberPhase.STABLE and not self._wants_round:
            return self._polls.overdue_at_ms
        return self._retry_at_ms

    def _step_to_join(self, now_ms: int) -> Step | None:
        if not self._wants_round or self._is_idle or now_ms < self._retry_at_ms:
            return None
        revoked = self.owned
        if self.settings.is_cooperative:
            revoked = frozenset(tp for tp in self.owned if tp.topic not in self.topics)
        if revoked:
            return RevokePartitions(revoked, is_lost=False)
        self.phase = MemberPhase.JOINING
        self._wants_round = False
        request = join_request(self.settings, self._present, self.topics, self.owned, self._had)
        return Join(request, self._round_timeout_ms)

    def _step_to_sync(self) -> Step:
        leader = self._leader
        if leader.is_leader and leader.assignments is None:
            return Count(leader.topics)
        request = sync_request(
            self.settings.group_id, self._present, self.protocol_name, leader.assignments or {}
        )
        return Sync(request, self._round_timeout_ms)

    def _leave_idle(self) -> Leave:
        """Leave the group, because the consumer was not polled for too long. Other members get its
        partitions."""
        member_id = self.member_id
        self._forget_membership(ErrorCode.UNKNOWN_MEMBER_ID)
        self._is_idle = True
        return Leave(member_id)

    @property
    def _round_timeout_ms(self) -> int:
        longest = max(self.settings.max_poll_interval_ms, self.settings.session_timeout_ms)
        return longest + JOIN_ALLOWANCE_MS

    # --- results of steps ---------------------------------------------------------------------

    def revoked(self, step: RevokePartitions) -> None:
        """Handle the end of the step: the listener was called, and the partitions are not read."""
        self.owned -= step.partitions
        if not self.owned:
            self._is_lost = False
        if self.phase is MemberPhase.ADOPTING:
            self._has_revoked = True

    def on_join(self, response: JoinGroupResponse, now_ms: int) -> None:
        """Handle the answer to JoinGroup: a completed join or an error."""
        if self.phase is not MemberPhase.JOINING:
            return
        code = ErrorCode.of(response.error_code)
        if code == ErrorCode.NONE:
            self._joined(response, now_ms)
        elif code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self._back_to_join()
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._forget_membership(code)
            self._wait(now_ms)
        else:
            self._refused(code, "JoinGroup", now_ms)

    def on_join_lost(self, now_ms: int) -> None:
        """Join again, because it is unknown whether the coordinator has added this member."""
        if self.phase is MemberPhase.JOINING:
            self._back_to_join()
            self._wait(now_ms)

    def counted(self, partition_counts: Mapping[str, int]) -> None:
        """Assign partitions by these counts, as the leader. Topics without a count do not exist."""
        if self.phase is MemberPhase.SYNCING and self._leader.assignments is None:
            self._leader.assign(partition_counts)

    def on_count_lost(self, now_ms: int) -> None:
        """Join again, because the partition counts are unknown and all members would wait."""
        if self.phase is MemberPhase.SYNCING:
            self._back_to_join()
            self._wait(now_ms)

    def on_sync(self, step: Sync, response: SyncGroupResponse, now_ms: int) -> None:
        """Handle the answer to SyncGroup: the partitions of this member, or an error."""
        if self.phase is not MemberPhase.SYNCING or not self._is_ours(step.request):
            return
        code = ErrorCode.of(response.error_code)
        if code in _FORGOTTEN:
            self._forget_membership(code)
            self._wait(now_ms)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._back_to_join()
        elif code != ErrorCode.NONE:
            self._refused(code, "SyncGroup", now_ms)
        else:
            try:
                self._next = decode_assignment(response.assignment)
            except WireError as error:
                self.fail(error)
                return
            self._backoff.reset()
            self._has_revoked = False
            self.phase = MemberPhase.ADOPTING

    def on_sync_lost(self, step: Sync, now_ms: int) -> None:
        """Join again, because no answer came and the rebalance may be over."""
        if self.phase is MemberPhase.SYNCING and self._is_ours(step.request):
            self._back_to_join()
            self._wait(now_ms)

    def adopted(self, step: Adopt) -> None:
        """Take over the step's partitions. They are lost if the membership has ended."""
        self.owned = step.assignment
        if self.phase is not MemberPhase.ADOPTING or self._next != step.assignment:
            self._is_lost = bool(self.owned)
            return
        self._had = (self.owned, self.generation_id)
        self.phase = MemberPhase.STABLE
        if self._has_revoked and self.settings.is_cooperative:
            # The partitions that were given back can reach other members only in another rebalance.
            self.rejoin()

    def on_commit_refused(self, membership: GroupMembership, code: ErrorCode) -> None:
        """Handle an error code of a commit that was sent with this membership. During a rebalance
        the error is ignored, because every commit is refused then. The answers to JoinGroup and
        SyncGroup show whether the member still belongs to the group.
        """
        if self.phase in (MemberPhase.ADOPTING, MemberPhase.STABLE) and self._is_ours(membership):
            self._membership_code(code, "OffsetCommit")

    # --- heartbeats ---------------------------------------------------------------------------

    @property
    def heartbeat_at_ms(self) -> int | None:
        """The time of the next heartbeat; None while no heartbeat must be sent."""
        # A heartbeat behind a waiting JoinGroup or SyncGroup would not be answered, and the
        # coordinator expects none.
        is_due = self.phase in (MemberPhase.ADOPTING, MemberPhase.STABLE)
        return self._heartbeat_at_ms if is_due else None

    def heartbeat(self, now_ms: int) -> HeartbeatRequest | None:
        """Return the heartbeat to send now; None if none is due.

        Report its result with `on_heartbeat` or `on_heartbeat_lost` before the next call. A member
        that is not polled sends no heartbeat, because the next step makes it leave.
        """
        due = self.heartbeat_at_ms
        if due is None or now_ms < due:
            return None
        self._heartbeat_at_ms = now_ms + self.settings.heartbeat_interval_ms
        return heartbeat_request(self.settings.group_id, self._present)

    def on_heartbeat(self, request: HeartbeatRequest, code: ErrorCode, now_ms: int) -> None:
        """Handle the answer to a heartbeat. Answers to an earlier membership are ignored."""
        if self.heartbeat_at_ms is None or not self._is_ours(request):
            return
        if code.retriable:
            self.on_heartbeat_lost(now_ms)
        else:
            self._membership_code(code, "Heartbeat")

    def on_heartbeat_lost(self, now_ms: int) -> None:
        """Send the next heartbeat soon, because no answer came and the session could expire."""
        self._heartbeat_at_ms = now_ms + self.settings.retry_backoff_ms[0]

    # --- internals ----------------------------------------------------------------------------

    @property
    def membership(self) -> GroupMembership | None:
        """The membership with which to commit; None while there is no generation."""
        if self.generation_id == NO_GENERATION:
            return None
        return self._present

    @property
    def _present(self) -> GroupMembership:
        """The membership for requests, with a generation or without one."""
        return GroupMembership(self.generation_id, self.member_id, self.settings.group_instance_id)

    @property
    def leaves_at_the_end(self) -> bool:
        """True if the member sends LeaveGroup when it closes. A static member does not leave."""
        return self.member_id != NO_MEMBER and self.settings.group_instance_id is None

    def _is_ours(self, of: "HeartbeatRequest | SyncGroupRequest | GroupMembership") -> bool:
        return of.generation_id == self.generation_id and of.member_id == self.member_id

    def _joined(self, response: JoinGroupResponse, now_ms: int) -> None:
        self.member_id = response.member_id
        self.generation_id = response.generation_id
        self.protocol_name = response.protocol_name or ""
        assignor = self._assignor()
        if assignor is None:
            text = f"the group uses {self.protocol_name!r}, which this member does not know"
            self.fail(ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text))
            return
        try:
            self._leader.begin(response, assignor)
        except WireError as error:
            self.fail(error)
            return
        self._backoff.reset()
        self._retry_at_ms = 0
        self._heartbeat_at_ms = now_ms + self.settings.heartbeat_interval_ms
        self.phase = MemberPhase.SYNCING

    def _assignor(self) -> Assignor | None:
        for assignor in self.settings.assignors:
            if assignor.name == self.protocol_name:
                return assignor
        return None

    def _membership_code(self, code: ErrorCode, api: str) -> None:
        if code in _FORGOTTEN:
            self._forget_membership(code)
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()
        elif code == ErrorCode.FENCED_INSTANCE_ID or (api == "Heartbeat" and code):
            self._refuse_for_good(code, api)

    def _refused(self, code: ErrorCode, api: str, now_ms: int) -> None:
        if code.retriable or code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._back_to_join()
            self._wait(now_ms)
        else:
            self._refuse_for_good(code, api)

    def _refuse_for_good(self, code: ErrorCode, api: str) -> None:
        text = f"{api} of group {self.settings.group_id!r}: {code.description}"
        self.fail(ApiError(code, text))

    def _back_to_join(self) -> None:
        self.phase = MemberPhase.UNJOINED
        self._wants_round = True

    def _forget_membership(self, code: ErrorCode) -> None:
        """Forget the generation, because other members can already own the partitions."""
        if code != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = NO_MEMBER
        self.generation_id = NO_GENERATION
        self._leader.end()
        self._is_lost = bool(self.owned)
        self._back_to_join()

    def _wait(self, now_ms: int) -> None:
        self._retry_at_ms = now_ms + self._backoff.next_ms()
