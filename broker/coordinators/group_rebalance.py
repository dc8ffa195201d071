"""Moves a group from one generation to the next: joins, assignment and deadlines.

This module is pure. The answers to members and the records to store are added to an outbox, and the
driver carries them out. The deadlines of all groups of a shard are in one heap. When a deadline has
come, the group first checks whether the deadline still applies.
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

A new member sends no heartbeats yet. Without this limit, a client that retries and then stops would
leave one member in the group for each retry.
"""

ABSENT_WAIT_MS_MIN = 1_000  # If all absent members are static, their timeout can be 0.


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
    """The group's state and all moves between states. The subclass `ClassicGroup` handles the
    requests, and uses only the public names of this class."""

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
        """The member ids that were given to clients and with which no member has joined yet."""
        self.limits = limits
        self._timers = timers
        self.outbox = outbox
        self.unsynced: set[str] = set()
        """Members of this generation that have not asked for their assignment yet."""
        self._join_timer: Timer[GroupAlarm] | None = None
        self._sync_timer: Timer[GroupAlarm] | None = None
        self._is_first_wait = False
        """True while a group that was empty waits for more members, for the whole initial delay."""
        self._first_wait_left_ms = 0
        self.has_newcomer = False

    # Helpers.

    def move_to(self, state: GroupState, moment: Moment) -> None:
        """Enter a state. Raises IllegalGroupMove if this move is not allowed from the present
        state."""
        check_move(self.state, state)
        self.state = state
        self.state_since_ms = moment.wall_ms

    def set_alarm(
        self, deadline_ms: int, kind: AlarmKind, subject: Member | str | None = None
    ) -> Timer[GroupAlarm]:
        """Set a deadline of this group, on the monotonic clock."""
        return self._timers.add(deadline_ms, GroupAlarm(self, kind, subject))

    def answer_join(self, member: Member, answer: JoinAnswer) -> None:
        """Answer a member's JoinGroup, if one is waiting."""
        token = self.roster.take_join(member)
        if token is not None:
            self.outbox.append(GroupAnswer(token, answer))

    def answer_sync(self, member: Member, answer: SyncAnswer) -> bool:
        """Answer a member's SyncGroup. Return False if no SyncGroup is waiting."""
        token, member.sync_token = member.sync_token, None
        if token is None:
            return False
        self.outbox.append(GroupAnswer(token, answer))
        return True

    def expect_life(self, member: Member, timeout_ms: int, moment: Moment) -> None:
        """Extend a member's session: its next request must come within this time.

        The entry in the heap moves only if the deadline gets nearer. If the deadline gets later,
        the alarm comes too early and then sets the entry again. So a heartbeat costs only this
        assignment.
        """
        member.deadline_ms = deadline_ms = moment.now_ms + timeout_ms
        timer = member.timer
        if timer is None or timer.item is None or timer.deadline_ms > deadline_ms:
            self.forget_session(member)
            member.timer = self.set_alarm(deadline_ms, AlarmKind.SESSION, member)

    def forget_session(self, member: Member) -> None:
        """Cancel the deadline of a member's session."""
        if member.timer is not None:
            self._timers.cancel(member.timer)
            member.timer = None

    def cancel_join_timer(self) -> None:
        """Cancel the deadline for joins."""
        if self._join_timer is not None:
            self._timers.cancel(self._join_timer)
            self._join_timer = None

    def cancel_sync_timer(self) -> None:
        """Cancel the deadline for syncs."""
        if self._sync_timer is not None:
            self._timers.cancel(self._sync_timer)
            self._sync_timer = None

    def note_sync(self, member_id: str) -> None:
        """Record that a member of this generation has asked for its assignment."""
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self.cancel_sync_timer()

    # Joining.

    def maybe_rebalance(self, moment: Moment) -> None:
        """Make all members join again if the present state allows it."""
        if may_follow(self.state, GroupState.PREPARING_REBALANCE):
            self.rebalance(moment)

    def rebalance(self, moment: Moment) -> None:
        """Make all members join again."""
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS, moment)
        self.cancel_sync_timer()
        self._is_first_wait = self.state is GroupState.EMPTY
        self.move_to(GroupState.PREPARING_REBALANCE, moment)
        wait_ms = self.roster.rebalance_timeout_ms
        if self._is_first_wait:
            delay_ms = self.limits.initial_delay_ms
            if not delay_ms:
                self._complete_join(moment)
                return
            self._first_wait_left_ms = max(wait_ms - delay_ms, 0)
            wait_ms = delay_ms
        self._await_joins(wait_ms, moment)
        self.try_complete_join(moment)

    def _await_joins(self, wait_ms: int, moment: Moment) -> None:
        self.cancel_join_timer()
        self._join_timer = self.set_alarm(moment.now_ms + wait_ms, AlarmKind.JOIN)

    def try_complete_join(self, moment: Moment) -> None:
        """Complete the join as soon as all members have joined."""
        if self.state is not GroupState.PREPARING_REBALANCE or self._is_first_wait:
            return
        if self.roster.waiting_count == len(self.roster) and not self.pending:
            self._complete_join(moment)

    def _join_time_is_up(self, moment: Moment) -> None:
        if self._is_first_wait and self.has_newcomer and self._first_wait_left_ms:
            # New members are still joining. A generation for each would cause one rebalance after
            # another.
            self.has_newcomer = False
            wait_ms = min(self.limits.initial_delay_ms, self._first_wait_left_ms)
            self._first_wait_left_ms -= wait_ms
            self._await_joins(wait_ms, moment)
        else:
            self._complete_join(moment)

    def _complete_join(self, moment: Moment) -> None:
        """Form the next generation from the members that have joined and the absent static
        members."""
        self._is_first_wait = self.has_newcomer = False
        roster = self.roster
        for member in roster:
            if member.join_token is None and member.group_instance_id is None:
                self.remove_member(member)
        if len(roster) and not self._elect():
            # Only absent static members are left, because no member has joined. Wait for the end of
            # their sessions.
            self._await_joins(max(roster.rebalance_timeout_ms, ABSENT_WAIT_MS_MIN), moment)
            return
        self.cancel_join_timer()
        self.unsynced.clear()
        self.generation_id += 1
        if not len(roster):
            self.protocol_name = None
            self.topics = frozenset()
            self.move_to(GroupState.EMPTY, moment)
            self.store_generation(roster, {}, None)
            return
        self.protocol_name = roster.select_protocol()
        self.note_topics()
        self.move_to(GroupState.COMPLETING_REBALANCE, moment)
        for member in roster:
            self.answer_join(member, self.join_answer(member))
            member.is_new = False
            self.expect_life(member, member.session_timeout_ms, moment)
            self.unsynced.add(member.member_id)
        self._sync_timer = self.set_alarm(
            moment.now_ms + roster.rebalance_timeout_ms, AlarmKind.SYNC
        )

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

    def join_answer(self, member: Member) -> JoinAnswer:
        """Return the answer that tells a member the present generation."""
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

    def note_topics(self) -> None:
        """Record the topics that the members read."""
        self.topics = None
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE:
            self.topics = subscribed_topics(one.metadata(self.protocol_name) for one in self.roster)

    # Assigning.

    def store_generation(
        self,
        members: Iterable[Member],
        assignments: dict[str, bytes],
        cause: AssignmentStored | ReplacementStored | None,
    ) -> None:
        """Store the present generation. `stored` handles the outcome with its `cause`."""
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
        self.outbox.append(StoreGroup(self, encode_group_record(self.group_id, value), cause))

    def _assigned(self, cause: AssignmentStored, error: ErrorCode, moment: Moment) -> None:
        if (
            self.state is not GroupState.COMPLETING_REBALANCE
            or cause.generation_id != self.generation_id
        ):
            return
        if error is not ErrorCode.NONE:
            self._drop_assignments(error, moment)
            self.maybe_rebalance(moment)
            return
        for member in self.roster:
            member.assignment = cause.assignments.get(member.member_id, b"")
        self._answer_syncs(ErrorCode.NONE, moment)
        self.move_to(GroupState.STABLE, moment)

    def _drop_assignments(self, error: ErrorCode, moment: Moment) -> None:
        for member in self.roster:
            member.assignment = b""
        self._answer_syncs(error, moment)

    def _answer_syncs(self, error: ErrorCode, moment: Moment) -> None:
        for member in self.roster:
            answer = self.sync_answer(member) if error is ErrorCode.NONE else SyncAnswer(error)
            if self.answer_sync(member, answer):
                # While the member waited, its session could not end. From now on it can.
                self.expect_life(member, member.session_timeout_ms, moment)

    def sync_answer(self, member: Member) -> SyncAnswer:
        """Return the answer that tells a member its assignment."""
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
            # The next generation contains the new member id and is stored with it. Do not undo the
            # replacement, because other members can have joined with the protocols of the returned
            # member.
            return
        member = self.roster.members[cause.member_id]
        if error is ErrorCode.NONE:
            self.answer_join(member, cause.answer)
            self.expect_life(member, member.session_timeout_ms, moment)
            return
        self.answer_join(member, JoinAnswer(error))
        self.roster.change(
            member,
            cause.old_protocols,
            cause.old_session_timeout_ms,
            cause.old_rebalance_timeout_ms,
        )
        self.roster.rename_static(cause.group_instance_id, cause.old_member_id)
        self.expect_life(member, member.session_timeout_ms, moment)

    # Leaving.

    def remove_member(self, member: Member) -> None:
        """Remove a member. Its waiting requests get UNKNOWN_MEMBER_ID, so it can join again."""
        self.answer_join(member, JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        self.answer_sync(member, SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID))
        self.roster.remove(member.member_id)
        self.forget_session(member)
        self.unsynced.discard(member.member_id)

    def remove_and_go_on(self, member: Member, moment: Moment) -> None:
        """Remove a member, and form the next generation from the other members."""
        self.remove_member(member)
        if self.state is GroupState.PREPARING_REBALANCE:
            self.try_complete_join(moment)
        else:
            self.maybe_rebalance(moment)

    def forget_pending(self, member_id: str) -> None:
        """Forget a member id that was given to a client."""
        timer = self.pending.pop(member_id, None)
        if timer is not None:
            self._timers.cancel(timer)

    # Time.

    def ring(self, alarm: GroupAlarm, moment: Moment) -> None:
        """Handle a deadline of this group that has come."""
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
            self.try_complete_join(moment)

    def _sync_time_is_up(self, moment: Moment) -> None:
        absent = [one for one in self.roster if one.member_id in self.unsynced]
        if not absent:
            return
        for member in absent:
            self.remove_member(member)
        self.maybe_rebalance(moment)

    def _session_may_be_over(self, member: Member, moment: Moment) -> None:
        timer = member.timer
        is_stale = timer is not None and timer.item is not None
        if is_stale or self.roster.members.get(member.member_id) is not member:
            return
        member.timer = None
        if member.deadline_ms > moment.now_ms:
            member.timer = self.set_alarm(member.deadline_ms, AlarmKind.SESSION, member)
        elif member.is_new or (member.join_token is None and member.sync_token is None):
            self.remove_and_go_on(member, moment)
