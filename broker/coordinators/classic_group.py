"""A group of the classic protocol: it handles the requests of its members.

This module is pure: time and new ids are arguments. Every JoinGroup and SyncGroup gets exactly one
answer, now or later, as an effect in the outbox. Heartbeat, LeaveGroup and the checks of a commit
are answered by the return value. Rules: KIP-62 (timeouts), KIP-134 (delayed first join), KIP-345
(static members), KIP-394 (member id required), KIP-559 (protocol checked in SyncGroup), KIP-814 (a
static leader that rejoins).
"""

from __future__ import annotations

from collections import deque
from typing import Self

from broker.coordinators.group_rebalance import (
    NEW_MEMBER_TIMEOUT_MS,
    AlarmKind,
    GroupAlarm,
    Rebalancing,
)
from broker.coordinators.group_records import GroupMetadataValue
from broker.coordinators.group_roster import Member
from broker.coordinators.group_state import GroupState
from broker.coordinators.group_terms import (
    NO_MEMBER,
    AssignmentStored,
    Effect,
    GroupAnswer,
    GroupLimits,
    JoinAnswer,
    JoinRequest,
    Moment,
    ReplacementStored,
    SyncAnswer,
    SyncRequest,
)
from broker.timers import Timers
from protocol.errors import ErrorCode


class ClassicGroup(Rebalancing):
    """A consumer group that has members, or had members."""

    @classmethod
    def restored(
        cls,
        group_id: str,
        value: GroupMetadataValue,
        limits: GroupLimits,
        timers: Timers[GroupAlarm],
        outbox: deque[Effect],
        moment: Moment,
    ) -> Self:
        """Return a stored group, whose members must send a heartbeat within one session timeout."""
        group = cls(group_id, limits, timers, outbox, moment)
        group.generation_id = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        group.topics = frozenset()
        if value.members:
            group.state = GroupState.STABLE
        for stored in value.members:
            member = Member(
                stored.member_id,
                stored.group_instance_id,
                stored.client_id,
                stored.client_host,
                stored.session_timeout,
                max(stored.rebalance_timeout, 0) or stored.session_timeout,
                value.protocol_type,
                ((value.protocol or "", stored.subscription),),
                stored.assignment,
            )
            group.roster.add(member)
            group.expect_life(member, member.session_timeout_ms, moment)
        if value.members:
            group.note_topics()
            if value.leader in group.roster:
                group.roster.leader_id = value.leader
        if value.current_state_timestamp >= 0:
            group.state_since_ms = value.current_state_timestamp
        if len(group.roster) > limits.size_max:
            group.rebalance(moment)
        return group

    @property
    def is_void(self) -> bool:
        """True if the group has never had a generation, so that the shard need not keep it."""
        return self.state is GroupState.EMPTY and not (self.generation_id or self.pending)

    # Joining.

    def join(self, joining: JoinRequest, new_member_id: str, moment: Moment) -> None:
        """Handle JoinGroup. The caller has checked the session timeout. `new_member_id` is the id
        to give to a member without an id, or to a static member that rejoins."""
        if self.state is GroupState.DEAD:
            self._refuse_join(joining, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif not self._has_room(joining):
            self._drop(joining.member_id)
            self._refuse_join(joining, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER)
        elif not self._speaks(joining):
            self._refuse_join(joining, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        elif joining.member_id == NO_MEMBER:
            self._join_as_new(joining, new_member_id, moment)
        elif joining.member_id in self.pending and joining.group_instance_id is None:
            self._add(joining, joining.member_id, moment)
        else:
            self._join_again(joining, moment)
        self.try_complete_join(moment)

    def _refuse_join(
        self, joining: JoinRequest, error: ErrorCode, member_id: str | None = None
    ) -> None:
        answer = JoinAnswer(error, joining.member_id if member_id is None else member_id)
        self.outbox.append(GroupAnswer(joining.token, answer))

    def _has_room(self, joining: JoinRequest) -> bool:
        """Return True if the group may accept the sender of this JoinGroup.

        A static member that restarts keeps its membership in a full group. Kafka refuses it.
        """
        if self.state is GroupState.EMPTY:
            return True
        member_id = joining.member_id
        if member_id == NO_MEMBER and joining.group_instance_id is not None:
            member_id = self.roster.static_ids.get(joining.group_instance_id, NO_MEMBER)
        member = self.roster.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.join_token is not None
            return is_waiting or self.roster.waiting_count < self.limits.size_max
        return member is not None or len(self.roster) < self.limits.size_max

    def _drop(self, member_id: str) -> None:
        """Remove a member, because the next generation is full."""
        self.forget_pending(member_id)
        member = self.roster.members.get(member_id)
        if member is not None:
            self.remove_member(member)

    def _speaks(self, joining: JoinRequest) -> bool:
        """Return True if the member has the group's protocol type and a protocol of all members."""
        if self.state is GroupState.EMPTY:
            return bool(joining.protocol_type and joining.protocols)
        # While the group was preparing, all members can have been removed. In this case any
        # protocol is accepted.
        is_of_kind = not len(self.roster) or self.protocol_type == joining.protocol_type
        return bool(is_of_kind and joining.protocol_type) and self.roster.supports(
            joining.protocols
        )

    def _join_as_new(self, joining: JoinRequest, new_member_id: str, moment: Moment) -> None:
        instance_id = joining.group_instance_id
        if instance_id is None and joining.needs_member_id:
            if len(self.pending) >= self.limits.pending_count_max:
                self._refuse_join(joining, ErrorCode.GROUP_MAX_SIZE_REACHED)
                return
            deadline_ms = moment.now_ms + joining.session_timeout_ms
            self.pending[new_member_id] = self.set_alarm(
                deadline_ms, AlarmKind.PENDING, new_member_id
            )
            self._refuse_join(joining, ErrorCode.MEMBER_ID_REQUIRED, new_member_id)
        elif instance_id is not None and instance_id in self.roster.static_ids:
            self._replace_static(joining, instance_id, new_member_id, moment)
        else:
            self._add(joining, new_member_id, moment)

    def _add(self, joining: JoinRequest, member_id: str, moment: Moment) -> None:
        self.forget_pending(member_id)
        if self.state is GroupState.PREPARING_REBALANCE and not self.generation_id:
            self.has_newcomer = True
        if not len(self.roster):
            self.protocol_type = joining.protocol_type
        member = Member(
            member_id,
            joining.group_instance_id,
            joining.client_id,
            joining.client_host,
            joining.session_timeout_ms,
            joining.rebalance_timeout_ms,
            joining.protocol_type,
            joining.protocols,
            join_token=joining.token,
            is_new=True,
            rights=joining.rights,
        )
        self.roster.add(member)
        self.expect_life(member, NEW_MEMBER_TIMEOUT_MS, moment)
        self.maybe_rebalance(moment)

    def _join_again(self, joining: JoinRequest, moment: Moment) -> None:
        error = self._check_member(joining.member_id, joining.group_instance_id)
        if error is not ErrorCode.NONE:
            self._refuse_join(joining, error)
            return
        member = self.roster.members[joining.member_id]
        is_leader = self.roster.leader_id == member.member_id
        is_same = member.protocols == joining.protocols
        if self.state is GroupState.PREPARING_REBALANCE or not is_same:
            self._rejoin(member, joining, moment)
        elif self.state is GroupState.STABLE and is_leader:
            # The leader rejoins in order to assign the partitions again.
            self._rejoin(member, joining, moment)
        else:
            # The member's last answer was lost, or the member does not need a new generation.
            self.outbox.append(GroupAnswer(joining.token, self.join_answer(member)))

    def _rejoin(self, member: Member, joining: JoinRequest, moment: Moment) -> None:
        self.roster.update(member, joining)
        self._park_join(member, joining.token)
        self.maybe_rebalance(moment)

    def _park_join(self, member: Member, token: object) -> None:
        old = self.roster.park_join(member, token)
        if old is not None:
            # The member sent a second JoinGroup. The first one is still answered, even if no client
            # reads it.
            answer = JoinAnswer(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            self.outbox.append(GroupAnswer(old, answer))

    def _replace_static(
        self, joining: JoinRequest, instance_id: str, member_id: str, moment: Moment
    ) -> None:
        """Give a static member that has restarted its new member id (KIP-345)."""
        roster = self.roster
        old_leader_id = roster.leader_id or NO_MEMBER
        old_id = roster.static_ids[instance_id]
        member = roster.members[old_id]
        self.answer_join(member, JoinAnswer(ErrorCode.FENCED_INSTANCE_ID, old_id))
        self.answer_sync(member, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID))
        was = (member.protocols, member.session_timeout_ms, member.rebalance_timeout_ms)
        was_unsynced = old_id in self.unsynced
        roster.rename_static(instance_id, member_id)
        if was_unsynced:
            self.unsynced.discard(old_id)
            self.unsynced.add(member_id)
        roster.update(member, joining)
        self.expect_life(member, member.session_timeout_ms, moment)
        self._park_join(member, joining.token)
        if self.state is GroupState.STABLE and self.protocol_name == roster.select_protocol():
            answer = self.join_answer(member)
            if not joining.may_skip_assignment:
                # Do not tell the member that it is the leader. Otherwise it would assign the
                # partitions again.
                answer = JoinAnswer(
                    ErrorCode.NONE, member_id, self.generation_id, self.protocol_type,
                    self.protocol_name, old_leader_id,
                )  # fmt: skip
            elif answer.members:
                answer = JoinAnswer(
                    ErrorCode.NONE, member_id, self.generation_id, self.protocol_type,
                    self.protocol_name, member_id, True, answer.members,
                )  # fmt: skip
            assignments = {one.member_id: one.assignment for one in roster}
            cause = ReplacementStored(instance_id, member_id, answer, old_id, *was)
            self.store_generation(roster, assignments, cause)
        else:
            # Even in CompletingRebalance, because the leader is assigning to the old member id.
            self.maybe_rebalance(moment)

    # Syncing.

    def sync(self, syncing: SyncRequest, moment: Moment) -> None:
        """Handle SyncGroup.

        The answer has the member's assignment, and is sent once the leader's assignments are
        stored.
        """
        error = self._check_sync(syncing)
        if error is not ErrorCode.NONE:
            self.outbox.append(GroupAnswer(syncing.token, SyncAnswer(error)))
            return
        member = self.roster.members[syncing.member_id]
        if self.state is GroupState.STABLE:
            self.note_sync(member.member_id)
            self.outbox.append(GroupAnswer(syncing.token, self.sync_answer(member)))
            self.expect_life(member, member.session_timeout_ms, moment)
            return
        self.answer_sync(member, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = syncing.token
        self.note_sync(member.member_id)
        if member.member_id == self.roster.leader_id:
            assignments = {
                one.member_id: bytes(syncing.assignments.get(one.member_id, b""))
                for one in self.roster
            }
            cause = AssignmentStored(self.generation_id, assignments)
            self.store_generation(self.roster, assignments, cause)

    def _check_sync(self, syncing: SyncRequest) -> ErrorCode:
        error = self._check_generation(
            syncing.member_id, syncing.group_instance_id, syncing.generation_id
        )
        if error is not ErrorCode.NONE:
            return error
        if syncing.protocol_type not in (None, self.protocol_type):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if syncing.protocol_name not in (None, self.protocol_name):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    # Requests with an immediate answer.

    def _check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if group_instance_id is not None:
            current_id = self.roster.static_ids.get(group_instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        elif member_id not in self.roster:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _check_generation(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        error = self._check_member(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation_id != self.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def heartbeat(
        self, member_id: str, group_instance_id: str | None, generation_id: int, moment: Moment
    ) -> ErrorCode:
        """Handle Heartbeat: extend the session, and tell the member whether it must rejoin."""
        error = self._check_generation(member_id, group_instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        member = self.roster.members[member_id]
        self.expect_life(member, member.session_timeout_ms, moment)
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_commit(
        self, member_id: str, group_instance_id: str | None, generation_id: int, moment: Moment
    ) -> ErrorCode:
        """Return NONE if this member of this generation may commit, else the error. Extend the
        member's session."""
        is_nobody = member_id == NO_MEMBER and group_instance_id is None
        if generation_id < 0 and (is_nobody or self.state is GroupState.EMPTY):
            # Commits without a member id come from tools, and from consumers that assign partitions
            # to themselves.
            is_free = self.state is GroupState.EMPTY
            return ErrorCode.NONE if is_free else ErrorCode.UNKNOWN_MEMBER_ID
        error = self._check_generation(member_id, group_instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        if self.state is GroupState.COMPLETING_REBALANCE:
            # The member knows the generation but not yet its assignment, which it must get with
            # SyncGroup first.
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self.roster.members[member_id]
        self.expect_life(member, member.session_timeout_ms, moment)
        return ErrorCode.NONE

    def check_commit_in_transaction(
        self, member_id: str, group_instance_id: str | None, generation_id: int
    ) -> ErrorCode:
        """Check a TxnOffsetCommit by the rules of `check_commit`.

        A request before version 3 names no member (KIP-447).
        """
        is_nobody = member_id == NO_MEMBER and group_instance_id is None
        if generation_id < 0 and (is_nobody or self.state is GroupState.EMPTY):
            return ErrorCode.NONE
        return self._check_generation(member_id, group_instance_id, generation_id)

    def leave(self, member_id: str, group_instance_id: str | None, moment: Moment) -> ErrorCode:
        """Remove one member. An administrator removes a static member by its instance id alone."""
        if self.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member_id == NO_MEMBER and group_instance_id is not None:
            member_id = self.roster.static_ids.get(group_instance_id, NO_MEMBER)
        if member_id in self.pending:
            self.forget_pending(member_id)
            self.try_complete_join(moment)
            return ErrorCode.NONE
        error = self._check_member(member_id, group_instance_id)
        if error is ErrorCode.NONE:
            self.remove_and_go_on(self.roster.members[member_id], moment)
        return error

    def unload(self, moment: Moment) -> None:
        """Unload the group from this broker. Waiting members must look for another coordinator."""
        for member in self.roster:
            answer = JoinAnswer(ErrorCode.NOT_COORDINATOR, member.member_id)
            self.answer_join(member, answer)
            self.answer_sync(member, SyncAnswer(ErrorCode.NOT_COORDINATOR))
            self.forget_session(member)
        for member_id in list(self.pending):
            self.forget_pending(member_id)
        self.cancel_join_timer()
        self.cancel_sync_timer()
        self.move_to(GroupState.DEAD, moment)
