"""Moves a group from one generation to the next: joins, assignment and deadlines.

This module is pure. Work goes into the outbox as effects. Deadlines are in a heap that all groups
of a shard share, and come back as alarms. When an alarm comes, the group checks whether the
deadline still applies, so a stale alarm does no harm.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from broker.coordinators.group_records import (
    GroupMetadataValue,
    encode_group_record,
    stored_member,
    subscribed_topics,
)
from broker.coordinators.group_roster import Member, Roster
from broker.coordinators.group_state import GroupState, check_move, may_follow
from broker.coordinators.group_terms import (
    AssignmentStored,
    Effect,
    GroupAnswer,
    GroupLimits,
    JoinAnswer,
    Moment,
    ReplacementStored,
    StoreGroup,
    SyncAnswer,
)
from broker.timers import Timer, Timers
from protocol.errors import ErrorCode

CONSUMER_PROTOCOL_TYPE = "consumer"

NEW_MEMBER_TIMEOUT_MS = 300_000
"""The time for which a new member can wait in JoinGroup.

A new member sends no heartbeats yet. Without a limit, each retry of a client that has stopped would
leave a member behind.
"""

ABSENT_WAIT_MS_MIN = 1_000  # A group of absent static members may have a timeout of 0.


class AlarmKind(Enum):
    """The kinds of deadlines of a group."""

    JOIN = auto()
    SYNC = auto()
    SESSION = auto()
    PENDING = auto()
    """The deadline of a member id that was given to a client, until a member joins with this id."""


class GroupAlarm(NamedTuple):
    """A deadline in the shard's heap: its group and its kind."""

    group: Rebalancing
    kind: AlarmKind
    subject: Member | str | None = None


class Rebalancing:
    """The state of a group, and all moves between states. `ClassicGroup` handles the requests."""

    def __init__(
        self,
        group_id: str,
        limits: GroupLimits,
        timers: Timers[GroupAlarm],
        outbox: deque[Effect],
        moment: Moment,
    ) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.state_since_ms = moment.wall_ms
        self.generation_id = 0
        self.protocol_type: str | None = None
        """The protocol type of the members, such as "consumer".

        It is kept when all members have left.
        """
        self.protocol_name: str | None = None
        self.topics: frozenset[str] | None = None
        """The topics that the members read; None if unknown."""
        self.roster = Roster()
        self.pending: dict[str, Timer[GroupAlarm]] = {}
        """Member ids that were given to clients, and with which no member has joined yet."""
        self._limits = limits
        self._timers = timers
        self._outbox = outbox
        self._unsynced: set[str] = set()
        """Members of this generation that have not sent SyncGroup yet."""
        self._join_timer: Timer[GroupAlarm] | None = None
        self._sync_timer: Timer[GroupAlarm] | None = None
        self._is_first_wait = False
        """True while a group that was empty waits the whole initial delay for more members."""
        self._first_wait_left_ms = 0
        self._has_newcomer = False

    # Helpers.

    def _move(self, state: GroupState, moment: Moment) -> None:
        check_move(self.state, state)
        self.state = state
        self.state_since_ms = moment.wall_ms

    def _alarm(self, deadline_ms: int, kind: AlarmKind, subject: Member | str | None = None) -> (
        Timer[GroupAlarm]
    ):  # fmt: skip
        return self._timers.add(deadline_ms, GroupAlarm(self, kind, subject))

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        token = self.roster.take_join(member)
        if token is not None:
            self._outbox.append(GroupAnswer(token, answer))

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        token, member.sync_token = member.sync_token, None
        if token is None:
            return False
        self._outbox.append(GroupAnswer(token, answer))
        return True

    def _expect(self, member: Member, timeout_ms: int, moment: Moment) -> None:
        """Start the time-out of a member again, because the member has sent a request.

        The entry in the heap moves only if the deadline gets nearer. Otherwise the alarm comes too
        early, and sets the entry again. So a heartbeat costs only this assignment.
        """
        member.deadline_ms = deadline_ms = moment.now_ms + timeout_ms
        timer = member.timer
        if timer is None or timer.item is None or timer.deadline_ms > deadline_ms:
            self._forget_session(member)
            member.timer = self._alarm(deadline_ms, AlarmKind.SESSION, member)

    def _forget_session(self, member: Member) -> None:
        if member.timer is not None:
            self._timers.cancel(member.timer)
            member.timer = None

    def _cancel_join_timer(self) -> None:
        if self._join_timer is not None:
            self._timers.cancel(self._join_timer)
            self._join_timer = None

    def _cancel_sync_timer(self) -> None:
        if self._sync_timer is not None:
            self._timers.cancel(self._sync_timer)
            self._sync_timer = None

    def _heard_of_sync(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._cancel_sync_timer()

    # Joining.

    def _maybe_rebalance(self, moment: Moment) -> None:
        if may_follow(self.state, GroupState.PREPARING_REBALANCE):
            self._rebalance(moment)

    def _rebalance(self, moment: Moment) -> None:
        """Start a rebalance: all members must join again."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS, moment)
        self._cancel_sync_timer()
        self._is_first_wait = self.state is GroupState.EMPTY
        self._move(GroupState.PREPARING_REBALANCE, moment)
        wait_ms = self.roster.rebalance_timeout_ms
        if self._is_first_wait:
            delay_ms = self._limits.initial_delay_ms
            if not delay_ms:
                self._complete_join(moment)
                return
            self._first_wait_left_ms = max(wait_ms - delay_ms, 0)
            wait_ms = delay_ms
        self._await_joins(wait_ms, moment)
        self._try_complete_join(moment)

    def _await_joins(self, wait_ms: int, moment: Moment) -> None:
        self._cancel_join_timer()
        self._join_timer = self._alarm(moment.now_ms + wait_ms, AlarmKind.JOIN)

    def _try_complete_join(self, moment: Moment) -> None:
        """Complete the join as soon as all members have joined."""
        if self.state is not GroupState.PREPARING_REBALANCE or self._is_first_wait:
            return
        if self.roster.waiting_count == len(self.roster) and not self.pending:
            self._complete_join(moment)

    def _join_time_is_up(self, moment: Moment) -> None:
        if self._is_first_wait and self._has_newcomer and self._first_wait_left_ms:
            # New members are still joining. A generation for each new member would cause one
            # rebalance after another.
            self._has_newcomer = False
            wait_ms = min(self._limits.initial_delay_ms, self._first_wait_left_ms)
            self._first_wait_left_ms -= wait_ms
            self._await_joins(wait_ms, moment)
        else:
            self._complete_join(moment)

    def _complete_join(self, moment: Moment) -> None:
        """Form the next generation of the members that have joined and of absent static members."""
        self._is_first_wait = self._has_newcomer = False
        roster = self.roster
        for member in roster:
            if member.join_token is None and member.group_instance_id is None:
                self._remove(member)
        if len(roster) and not self._elect():
            # Only static members are left, and no member has joined. Their sessions will end.
            self._await_joins(max(roster.rebalance_timeout_ms, ABSENT_WAIT_MS_MIN), moment)
            return
        self._cancel_join_timer()
        self._unsynced.clear()
        self.generation_id += 1
        if not len(roster):
            self.protocol_name = None
            self.topics = frozenset()
            self._move(GroupState.EMPTY, moment)
            self._store(roster, {}, None)
            return
        self.protocol_name = roster.select_protocol()
        self._note_topics()
        self._move(GroupState.COMPLETING_REBALANCE, moment)
        for member in roster:
            self._answer_join(member, self._joined(member))
            member.is_new = False
            self._expect(member, member.session_timeout_ms, moment)
            self._unsynced.add(member.member_id)
        self._sync_timer = self._alarm(moment.now_ms + roster.rebalance_timeout_ms, AlarmKind.SYNC)

    def _elect(self) -> bool:
        """Make sure that the leader is a member that has joined.

        Return False if no member has joined.
        """
        leader_id = self.roster.leader_id
        if leader_id is not None and self.roster.members[leader_id].join_token is not None:
            return True
        joined = next((one for one in self.roster if one.join_token is not None), None)
        if joined is None:
            return False
        self.roster.leader_id = joined.member_id
        return True

    def _joined(self, member: Member) -> JoinAnswer:
        """Return the answer to a member's JoinGroup, which names the present generation."""
        is_leader = self.roster.leader_id == member.member_id
        return JoinAnswer(
            ErrorCode.NONE,
            member.member_id,
            self.generation_id,
            self.protocol_type,
            self.protocol_name,
            self.roster.leader_id or "",
            members=self.roster.seen_by_leader(self.protocol_name) if is_leader else (),
        )

    def _note_topics(self) -> None:
        self.topics = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            self.topics = subscribed_topics(one.metadata(self.protocol_name) for one in self.roster)

    # Assigning.

    def _store(
        self,
        members: Iterable[Member],
        assignments: dict[str, bytes],
        cause: AssignmentStored | ReplacementStored | None,
    ) -> None:
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation_id,
            protocol=self.protocol_name,
            leader=self.roster.leader_id,
            current_state_timestamp=self.state_since_ms,
            members=[
                stored_member(one, self.protocol_name, assignments.get(one.member_id, b""))
                for one in members
            ],
        )
        self._outbox.append(StoreGroup(self, encode_group_record(self.group_id, value), cause))

    def _assigned(self, cause: AssignmentStored, error: ErrorCode, moment: Moment) -> None:
        if (
            self.state is not GroupState.COMPLETING_REBALANCE
            or cause.generation_id != self.generation_id
        ):
            return
        if error is not ErrorCode.NONE:
            self._drop_assignments(error, moment)
            self._maybe_rebalance(moment)
            return
        for member in self.roster:
            member.assignment = cause.assignments.get(member.member_id, b"")
        self._answer_syncs(ErrorCode.NONE, moment)
        self._move(GroupState.STABLE, moment)

    def _drop_assignments(self, error: ErrorCode, moment: Moment) -> None:
        for member in self.roster:
            member.assignment = b""
        self._answer_syncs(error, moment)

    def _answer_syncs(self, error: ErrorCode, moment: Moment) -> None:
        for member in self.roster:
            answer = self._synced(member) if error is ErrorCode.NONE else SyncAnswer(error)
            if self._answer_sync(member, answer):
                # While the member waited for its answer, its session could not end. From here on it
                # can end.
                self._expect(member, member.session_timeout_ms, moment)

    def _synced(self, member: Member) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol_name, member.assignment)

    def stored(self, store: StoreGroup, error: ErrorCode, moment: Moment) -> None:
        """Handle the result of storing a generation: NONE, or the error."""
        if isinstance(store.cause, AssignmentStored):
            self._assigned(store.cause, error, moment)
        elif isinstance(store.cause, ReplacementStored):
            self._replaced(store.cause, error, moment)

    def _replaced(self, cause: ReplacementStored, error: ErrorCode, moment: Moment) -> None:
        if self.roster.static_ids.get(cause.group_instance_id) != cause.member_id:
            return
        if self.state is not GroupState.STABLE or self.generation_id != cause.answer.generation_id:
            # The next generation gets the new member id and is stored with it. Other members can
            # have joined because of the protocols with which this member came back.
            return
        member = self.roster.members[cause.member_id]
        if error is ErrorCode.NONE:
            self._answer_join(member, cause.answer)
            self._expect(member, member.session_timeout_ms, moment)
            return
        self._answer_join(member, JoinAnswer(error))
        self.roster.change(
            member,
            cause.old_protocols,
            cause.old_session_timeout_ms,
            cause.old_rebalance_timeout_ms,
        )
        self.roster.rename_static(cause.group_instance_id, cause.old_member_id)
        self._expect(member, member.session_timeout_ms, moment)

    # Leaving.

    def _remove(self, member: Member) -> None:
        """Remove a member.

        Its waiting requests get UNKNOWN_MEMBER_ID, so that the client can join again.
        """
        self._answer_join(member, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        self._answer_sync(member, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        self.roster.remove(member.member_id)
        self._forget_session(member)
        self._unsynced.discard(member.member_id)

    def _remove_and_go_on(self, member: Member, moment: Moment) -> None:
        self._remove(member)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._try_complete_join(moment)
        else:
            self._maybe_rebalance(moment)

    def _forget_pending(self, member_id: str) -> None:
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            self._timers.cancel(timer)

    # Time.

    def ring(self, alarm: GroupAlarm, moment: Moment) -> None:
        """Handle a deadline of this group that has passed."""
        subject = alarm.subject
        if alarm.kind is AlarmKind.JOIN:
            timer = self._join_timer
            if timer is not None and timer.item is None:
                self._join_timer = None
                self._join_time_is_up(moment)
        elif alarm.kind is AlarmKind.SYNC:
            timer = self._sync_timer
            if timer is not None and timer.item is None:
                self._sync_timer = None
                self._sync_time_is_up(moment)
        elif isinstance(subject, Member):
            self._session_may_be_over(subject, moment)
        elif isinstance(subject, str) and subject in self.pending:
            del self.pending[subject]
            self._try_complete_join(moment)

    def _sync_time_is_up(self, moment: Moment) -> None:
        absent = [one for one in self.roster if one.member_id in self._unsynced]
        if not absent:
            return
        for member in absent:
            self._remove(member)
        self._maybe_rebalance(moment)

    def _session_may_be_over(self, member: Member, moment: Moment) -> None:
        timer = member.timer
        is_stale = timer is not None and timer.item is not None
        if is_stale or self.roster.members.get(member.member_id) is not member:
            return
        member.timer = None
        if member.deadline_ms > moment.now_ms:
            member.timer = self._alarm(member.deadline_ms, AlarmKind.SESSION, member)
        elif member.is_new or (member.join_token is None and member.sync_token is None):
            self._remove_and_go_on(member, moment)
