"""A member of a consumer group without its network: what to do next, and what each answer means.

Floor: client. Pure: time and chance are arguments. The driver (`membership.py`) asks `step` for the
next thing to do, does it, reports what came of it and asks again; beside that it sends what
`heartbeat` gives. One round of the classic protocol:

    UNJOINED    what is owned is given back first: all of it (eager), or what is wanted no longer
    JOINING     JoinGroup is on its way; the leader gets all members, the others their generation
    SYNCING     the leader assigns and sends; all get their part from SyncGroup
    ADOPTING    what was taken away is given back, what is added is made ready
    STABLE      heartbeats; a new round when one says so, or when the wishes change

A member whose generation is gone (expired, fenced by time) has *lost* what it owned: others may
read it already, so it is given back without committing. Cooperative members keep what they own
through the round; one that had to give something back joins once more, so that it can move on.
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
    GiveBack,
    GroupMembership,
    GroupSettings,
    Join,
    Leave,
    Phase,
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
"""How much longer than the rebalance timeout an answer to JoinGroup may take."""

_FORGOTTEN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class GroupCore:
    """One membership. Every method is given the time in milliseconds."""

    def __init__(self, settings: GroupSettings, rng: random.Random, now_ms: int) -> None:
        self.settings = settings
        self.phase = Phase.UNJOINED
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
        self._gave_back = False

    # --- what the consumer says ---------------------------------------------------------------

    def subscribe(self, topics: Collection[str]) -> None:
        """Want these topics; a change begins a new round."""
        wanted = frozenset(topics)
        if wanted != self.topics:
            self.topics = wanted
            self.rejoin()

    def rejoin(self) -> None:
        """Begin a new round as soon as the present one is over."""
        self._wants_round = True

    def topics_seen(self, partition_counts: Mapping[str, int]) -> None:
        """The leader answers for topics that have grown, come or gone since it assigned them."""
        if self.phase is Phase.STABLE and self._leader.has_changed(partition_counts):
            self.rejoin()

    @property
    def watched_topics(self) -> frozenset[str]:
        """Whose partition counts `topics_seen` wants: for the leader those of all members."""
        return self._leader.watched_topics if self._leader.is_leader else self.topics

    @property
    def is_idle(self) -> bool:
        """Whether the member has left because nobody polled; the next poll brings it back."""
        return self._is_idle

    def polled(self, now_ms: int) -> None:
        """Somebody reads what is here already."""
        self._polls.note(now_ms)

    def poll_began(self, now_ms: int) -> None:
        """Somebody reads; an idle member that had left comes back."""
        self._polls.begin(now_ms)
        if self._is_idle:
            self._is_idle = False
            self._wants_round = True

    def poll_ended(self, now_ms: int) -> None:
        """The reader works on what it got."""
        self._polls.end(now_ms)

    def fail(self, error: Exception) -> None:
        """Stop for good: `failure` goes to whoever reads, and what was owned is lost."""
        self.failure = error
        self.phase = Phase.FAILED
        self._is_lost = bool(self.owned)

    # --- what to do ---------------------------------------------------------------------------

    def step(self, now_ms: int) -> Step | None:
        """The next thing to do, or None until `next_deadline_ms` or until something is said."""
        if self._is_lost and self.owned:
            return GiveBack(self.owned, is_lost=True)
        if self.phase is Phase.STABLE and self._polls.is_overdue(now_ms):
            return self._leave_idle()
        if self.phase in (Phase.UNJOINED, Phase.STABLE):
            return self._step_to_join(now_ms)
        if self.phase is Phase.SYNCING:
            return self._step_to_sync()
        if self.phase is Phase.ADOPTING:
            taken_away = self.owned - self._next
            if taken_away:
                return GiveBack(taken_away, is_lost=False)
            return Adopt(self._next - self.owned, self._next)
        return None

    def next_deadline_ms(self) -> int | None:
        """When `step` has something to say by itself, apart from what it says at once."""
        if self.phase is Phase.FAILED or self._is_idle:
            return None
        if self.phase is Phase.STABLE and not self._wants_round:
            return self._polls.overdue_at_ms
        return self._retry_at_ms

    def _step_to_join(self, now_ms: int) -> Step | None:
        if not self._wants_round or self._is_idle or now_ms < self._retry_at_ms:
            return None
        given_back = self.owned
        if self.settings.is_cooperative:
            given_back = frozenset(tp for tp in self.owned if tp.topic not in self.topics)
        if given_back:
            return GiveBack(given_back, is_lost=False)
        self.phase = Phase.JOINING
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
        """Not polled for too long: whoever reads is stuck, and the others shall have its part."""
        member_id = self.member_id
        self._forget_membership(ErrorCode.UNKNOWN_MEMBER_ID)
        self._is_idle = True
        return Leave(member_id)

    @property
    def _round_timeout_ms(self) -> int:
        longest = max(self.settings.max_poll_interval_ms, self.settings.session_timeout_ms)
        return longest + JOIN_ALLOWANCE_MS

    # --- what came of it ----------------------------------------------------------------------

    def given_back(self, step: GiveBack) -> None:
        """The listener has been told, and nothing of these is read any more."""
        self.owned -= step.partitions
        if not self.owned:
            self._is_lost = False
        if self.phase is Phase.ADOPTING:
            self._gave_back = True

    def on_join(self, response: JoinGroupResponse, now_ms: int) -> None:
        """The round is complete, or the coordinator refuses."""
        if self.phase is not Phase.JOINING:
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
        """No answer came: the coordinator may count us in or not, so ask again."""
        if self.phase is Phase.JOINING:
            self._back_to_join()
            self._wait(now_ms)

    def counted(self, partition_counts: Mapping[str, int]) -> None:
        """Assign, as the leader; topics that do not exist have no partitions."""
        if self.phase is Phase.SYNCING and self._leader.assignments is None:
            self._leader.assign(partition_counts)

    def on_count_lost(self, now_ms: int) -> None:
        """The topics could not be asked for: give the round up, so that it does not block all."""
        if self.phase is Phase.SYNCING:
            self._back_to_join()
            self._wait(now_ms)

    def on_sync(self, step: Sync, response: SyncGroupResponse, now_ms: int) -> None:
        """Our part is here, or the round was for nothing."""
        if self.phase is not Phase.SYNCING or not self._is_ours(step.request):
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
            self._gave_back = False
            self.phase = Phase.ADOPTING

    def on_sync_lost(self, step: Sync, now_ms: int) -> None:
        """No answer came; the round may be over without us."""
        if self.phase is Phase.SYNCING and self._is_ours(step.request):
            self._back_to_join()
            self._wait(now_ms)

    def adopted(self, step: Adopt) -> None:
        """What was added can be read. If we were thrown out meanwhile it is lost again."""
        self.owned = step.assignment
        if self.phase is not Phase.ADOPTING or self._next != step.assignment:
            self._is_lost = bool(self.owned)
            return
        self._had = (self.owned, self.generation_id)
        self.phase = Phase.STABLE
        if self._gave_back and self.settings.is_cooperative:
            # What we gave back can only be given to others in another round.
            self.rejoin()

    def on_commit_refused(self, membership: GroupMembership, code: ErrorCode) -> None:
        """A commit says something about the membership under which it was sent.

        Within a round nothing is to be learnt from it: the round's own answers tell it, and every
        commit is refused until it is over. Nor does anything bring back a member that has failed.
        """
        if self.phase in (Phase.ADOPTING, Phase.STABLE) and self._is_ours(membership):
            self._membership_code(code, "OffsetCommit")

    # --- heartbeats ---------------------------------------------------------------------------

    @property
    def heartbeat_at_ms(self) -> int | None:
        """When the next heartbeat is due; None while none is to be sent."""
        # Behind a JoinGroup or SyncGroup that waits, no heartbeat would be answered; nor does the
        # coordinator expect any from members that wait there.
        is_due = self.phase in (Phase.ADOPTING, Phase.STABLE)
        return self._heartbeat_at_ms if is_due else None

    def heartbeat(self, now_ms: int) -> HeartbeatRequest | None:
        """The heartbeat to send now; report `on_heartbeat` or `on_heartbeat_lost` before the next.

        A member that is overdue sends none: the next step makes it leave.
        """
        due = self.heartbeat_at_ms
        if due is None or now_ms < due:
            return None
        self._heartbeat_at_ms = now_ms + self.settings.heartbeat_interval_ms
        return heartbeat_request(self.settings.group_id, self._present)

    def on_heartbeat(self, request: HeartbeatRequest, code: ErrorCode, now_ms: int) -> None:
        """What the coordinator says to a heartbeat of this membership; of others it is stale."""
        if self.heartbeat_at_ms is None or not self._is_ours(request):
            return
        if code.retriable:
            self.on_heartbeat_lost(now_ms)
        else:
            self._membership_code(code, "Heartbeat")

    def on_heartbeat_lost(self, now_ms: int) -> None:
        """No answer came: try again soon, for the session runs out meanwhile."""
        self._heartbeat_at_ms = now_ms + self.settings.retry_backoff_ms[0]

    # --- inside -------------------------------------------------------------------------------

    @property
    def membership(self) -> GroupMembership | None:
        """What a commit must name, or None while there is no generation."""
        if self.generation_id == NO_GENERATION:
            return None
        return self._present

    @property
    def _present(self) -> GroupMembership:
        """What requests name, in a generation or without one."""
        return GroupMembership(self.generation_id, self.member_id, self.settings.group_instance_id)

    @property
    def leaves_at_the_end(self) -> bool:
        """Whether to send LeaveGroup: a static member that stops is expected back."""
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
        self.phase = Phase.SYNCING

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
        self.phase = Phase.UNJOINED
        self._wants_round = True

    def _forget_membership(self, code: ErrorCode) -> None:
        """We are out, and whatever we owned may be somebody else's by now."""
        if code != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = NO_MEMBER
        self.generation_id = NO_GENERATION
        self._leader.end()
        self._is_lost = bool(self.owned)
        self._back_to_join()

    def _wait(self, now_ms: int) -> None:
        self._retry_at_ms = now_ms + self._backoff.next_ms()
