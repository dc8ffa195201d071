"""Handles the requests of group members: join, sync, heartbeat, leave.

It translates between the versions of the requests and the group coordinator. The rules are in
`broker/coordinators`. A waiting JoinGroup or SyncGroup delays later requests of its connection, as
in Kafka. Heartbeats of other members use other connections.
"""

from __future__ import annotations

from broker.coordinators.group_terms import JoinAnswer, JoinRequest, SyncAnswer, SyncRequest
from broker.sessions.call import Call
from broker.shards.groups import GroupCoordinator
from protocol.errors import ApiError, ErrorCode
from protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

MEMBER_ID_REQUIRED_SINCE = 4
NULL_PROTOCOL_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOL_NAMED_SINCE = 5
MANY_LEAVE_SINCE = 3


class MembershipHandlers:
    """Handles JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    def __init__(self, groups: GroupCoordinator) -> None:
        self._groups = groups

    def join_group(self, call: Call, request: JoinGroupRequest) -> None:
        """Handle JoinGroup.

        The answer is sent when the group's next generation is formed; a refusal is sent at once.
        """

        def answer(joined: JoinAnswer) -> None:
            if not call.may_use_group(request.group_id):
                # The right can have ended while the request waited.
                joined = JoinAnswer(ErrorCode.GROUP_AUTHORIZATION_FAILED, "")
            call.answer(_join_response(call.version, joined))

        try:
            _refuse_stranger(call, request.group_id)
            loaded = self._groups.find(request.group_id)
        except ApiError as error:
            answer(JoinAnswer(error.code, request.member_id))
            return
        rebalance_timeout_ms = request.rebalance_timeout_ms
        joining = JoinRequest(
            answer,
            request.member_id,
            request.group_instance_id,
            call.client_id or "",
            # Java's form of an address, which Kafka's tools display unchanged.
            f"/{call.session.peer_host}",
            request.session_timeout_ms,
            # Version 0 has no separate timeout for the rebalance.
            request.session_timeout_ms if rebalance_timeout_ms < 0 else rebalance_timeout_ms,
            request.protocol_type,
            tuple((one.name, bytes(one.metadata)) for one in request.protocols),
            needs_member_id=call.version >= MEMBER_ID_REQUIRED_SINCE,
            may_skip_assignment=call.version >= SKIP_ASSIGNMENT_SINCE,
            rights=call.session.rights,
        )
        groups = self._groups
        loaded.state.members.join(request.group_id, joining, groups.moment())
        groups.perform(loaded)

    def sync_group(self, call: Call, request: SyncGroupRequest) -> None:
        """Handle SyncGroup. The answer is sent when the leader's assignments are stored."""

        def answer(synced: SyncAnswer) -> None:
            if not call.may_use_group(request.group_id):
                synced = SyncAnswer(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            call.answer(
                SyncGroupResponse(
                    error_code=synced.error,
                    protocol_type=synced.protocol_type,
                    protocol_name=synced.protocol_name,
                    assignment=synced.assignment,
                )
            )

        is_named = request.protocol_type is not None and request.protocol_name is not None
        if call.version >= PROTOCOL_NAMED_SINCE and not is_named:
            answer(SyncAnswer(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return
        try:
            _refuse_stranger(call, request.group_id)
            loaded = self._groups.find(request.group_id)
        except ApiError as error:
            # While the group is loading, the current rebalance is lost anyway. The member must join
            # again, but it need not look for the coordinator.
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer(SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS if is_loading else error.code))
            return
        syncing = SyncRequest(
            answer,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            request.protocol_type,
            request.protocol_name,
            {one.member_id: bytes(one.assignment) for one in request.assignments},
        )
        groups = self._groups
        loaded.state.members.sync(request.group_id, syncing, groups.moment())
        groups.perform(loaded)

    def heartbeat(self, call: Call, request: HeartbeatRequest) -> HeartbeatResponse:
        """Handle Heartbeat.

        A heartbeat succeeds while the group is loading, because no member is removed during this
        time.
        """
        groups = self._groups
        try:
            _refuse_stranger(call, request.group_id)
            shard = groups.shard(request.group_id)
        except ApiError as error:
            is_loading = error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else error.code)
        code = shard.members.heartbeat(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            groups.moment(),
        )
        return HeartbeatResponse(error_code=groups.told(code))

    def leave_group(self, call: Call, request: LeaveGroupRequest) -> LeaveGroupResponse:
        """Handle LeaveGroup for one member or, from version 3 on, for many members with a result
        each."""
        groups = self._groups
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        _refuse_stranger(call, request.group_id)
        loaded = groups.find(request.group_id)
        members = loaded.state.members
        leaving = request.members
        if call.version < MANY_LEAVE_SINCE:
            leaving = [MemberIdentity(member_id=request.member_id)]
        answers = [
            MemberResponse(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                error_code=groups.told(
                    members.leave(
                        request.group_id, one.member_id, one.group_instance_id, groups.moment()
                    )
                ),
            )
            for one in leaving
        ]
        groups.perform(loaded)
        if call.version < MANY_LEAVE_SINCE:
            return LeaveGroupResponse(error_code=answers[0].error_code)
        return LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers)


def _refuse_stranger(call: Call, group_id: str) -> None:
    """Raise ApiError if the client may not be a member of the group."""
    if not call.may_use_group(group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def _join_response(version: int, joined: JoinAnswer) -> JoinGroupResponse:
    name = joined.protocol_name
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation_id,
        protocol_type=joined.protocol_type,
        protocol_name=name if name is not None or version >= NULL_PROTOCOL_SINCE else "",
        leader=joined.leader_id,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id,
                metadata=one.metadata,
            )
            for one in joined.members
        ],
    )
