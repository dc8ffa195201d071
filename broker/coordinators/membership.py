"""The groups of a shard that have members, and their deadlines.

This module is pure. Membership is in memory only; the log stores each generation for the next
start. The groups put their work as effects into `outbox`, and the driver performs them in order.
Deadlines are in `timers`, on the monotonic clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random
from uuid import UUID

from broker.coordinators.classic_group import ClassicGroup
from broker.coordinators.group_rebalance import GroupAlarm
from broker.coordinators.group_records import GroupMetadataValue
from broker.coordinators.group_state import GroupState
from broker.coordinators.group_terms import (
    NO_MEMBER,
    Effect,
    GroupAnswer,
    GroupLimits,
    JoinAnswer,
    JoinRequest,
    Moment,
    SyncAnswer,
    SyncRequest,
)
from broker.timers import Timers
from protocol.errors import ErrorCode
from protocol.security.acl import AclOperation, AclResource
from protocol.wire.primitives import STRING_BYTES_MAX

STOPPED_MS_MIN = 2_000
"""The delay of a deadline in milliseconds above which the broker is assumed to have been stopped
(SIGSTOP, suspend)."""

HEARING_MS = 3_000
"""The time in milliseconds that members get to send a heartbeat after the broker was stopped.

Kafka's clients send a heartbeat every 3 s.
"""


class MemberGroups:
    """All groups of a shard that have members, had members, or have given a member id to a
    client."""

    def __init__(self, limits: GroupLimits, random: Random) -> None:
        self.groups: dict[str, ClassicGroup] = {}
        self.timers: Timers[GroupAlarm] = Timers()
        self.outbox: deque[Effect] = deque()
        self._limits = limits
        self._random = random

    def restore(self, stored: Mapping[str, GroupMetadataValue], moment: Moment) -> None:
        """Restore the generations that the log stores."""
        for group_id, value in stored.items():
            self.groups[group_id] = ClassicGroup.restored(
                group_id, value, self._limits, self.timers, self.outbox, moment
            )

    def get(self, group_id: str) -> ClassicGroup | None:
        """Return a group if it has or had members."""
        return self.groups.get(group_id)

    def forget(self, group_id: str) -> None:
        """Handle the committed tombstone of a group.

        The group is kept if a member has joined since.
        """
        group = self.groups.get(group_id)
        if group is not None and group.state is GroupState.EMPTY and not group.pending:
            del self.groups[group_id]

    def _tidy(self, group: ClassicGroup) -> None:
        if group.is_void:
            self.groups.pop(group.group_id, None)

    def join(self, group_id: str, joining: JoinRequest, moment: Moment) -> None:
        """Handle JoinGroup.

        The answer comes as an effect, at once or when the generation is formed.
        """
        error = self._join_refusal(group_id, joining)
        if error is not ErrorCode.NONE:
            answer = JoinAnswer(error, joining.member_id)
            self.outbox.append(GroupAnswer(joining.token, answer))
            return
        group = self.groups.get(group_id)
        if group is None:
            group = ClassicGroup(group_id, self._limits, self.timers, self.outbox, moment)
            self.groups[group_id] = group
        unique = UUID(bytes=self._random.randbytes(16), version=4)
        name = joining.group_instance_id or joining.client_id
        group.join(joining, _member_id(name, unique), moment)
        self._tidy(group)

    def _join_refusal(self, group_id: str, joining: JoinRequest) -> ErrorCode:
        limits = self._limits
        timeout_ms = joining.session_timeout_ms
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not limits.session_timeout_ms_min <= timeout_ms <= limits.session_timeout_ms_max:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if group_id not in self.groups and joining.member_id != NO_MEMBER:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group_id not in self.groups and len(self.groups) >= limits.group_count_max:
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        said_bytes = sum(len(name.encode()) + len(said) for name, said in joining.protocols)
        if said_bytes > limits.protocols_bytes_max:
            return ErrorCode.MESSAGE_TOO_LARGE
        return ErrorCode.NONE

    def sync(self, group_id: str, syncing: SyncRequest, moment: Moment) -> None:
        """Handle SyncGroup.

        The answer comes as an effect, at once or when the assignments are stored.
        """
        group = self.groups.get(group_id)
        if group is not None:
            group.sync(syncing, moment)
            return
        error = ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
        self.outbox.append(GroupAnswer(syncing.token, SyncAnswer(error)))

    def heartbeat(
        self,
        group_id: str,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        moment: Moment,
    ) -> ErrorCode:
        """Handle a Heartbeat, and return its error code."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID if group_id else ErrorCode.INVALID_GROUP_ID
        return group.heartbeat(member_id, group_instance_id, generation_id, moment)

    def leave(
        self, group_id: str, member_id: str, group_instance_id: str | None, moment: Moment
    ) -> ErrorCode:
        """Handle one member of a LeaveGroup, and return its error code."""
        group = self.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = group.leave(member_id, group_instance_id, moment)
        self._tidy(group)
        return error

    def rights_changed(self, moment: Moment) -> None:
        """Remove the members that no longer have the right to be in their group."""
        for group in list(self.groups.values()):
            for member in list(group.roster):
                if not member.rights.allows(AclOperation.READ, AclResource.GROUP, group.group_id):
                    group.leave(member.member_id, member.group_instance_id, moment)
            self._tidy(group)

    def ring(self, moment: Moment) -> None:
        """Handle all deadlines that have passed.

        If the broker was stopped when a deadline passed, the sockets can contain unread requests of
        members. So members get more time before their sessions end.
        """
        deadline_ms = self.timers.next_deadline_ms
        if deadline_ms is not None and moment.now_ms - deadline_ms >= STOPPED_MS_MIN:
            self.timers.postpone(moment.now_ms, moment.now_ms + HEARING_MS)
            return
        for alarm in self.timers.due(moment.now_ms):
            alarm.group.ring(alarm, moment)
            group = self.groups.get(alarm.group.group_id)
            if group is not None:
                self._tidy(group)

    def unload(self, moment: Moment) -> None:
        """Unload all groups, because the shard or the broker stops.

        Waiting members must look for another coordinator.
        """
        for group in self.groups.values():
            group.unload(moment)
        self.groups.clear()


def _member_id(name: str, unique: UUID) -> str:
    """Return a new member id: the client's name or the instance id, shortened if needed, and a
    unique suffix."""
    end = f"-{unique}"
    return name.encode()[: STRING_BYTES_MAX - len(end)].decode(errors="ignore") + end
