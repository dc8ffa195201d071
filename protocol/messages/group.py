"""The messages to list, describe, join and delete groups.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, Struct, array, boolean, bytes_, int16, int32, string


class DescribeGroupsRequest(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions=(0, 5), flexible=5):
    """The groups to describe.

    Version 3 adds authorised operations, 4 static members in the answer.
    """

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean(since=3)


class DescribedGroupMember(Struct):
    """One member, with its subscription and assignment as the client encoded them."""

    member_id: str = string()
    group_instance_id: str | None = string(since=4, nullable=4, default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = bytes_()
    member_assignment: bytes = bytes_()


class DescribedGroup(Struct):
    """One group. A group that does not exist is Dead, without an error."""

    error_code: int = int16()
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-2147483648)


class DescribeGroupsResponse(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions=(0, 5), flexible=5):
    """The states and members of the groups."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)


class ListGroupsRequest(Message, api_key=ApiKey.LIST_GROUPS, versions=(0, 4), flexible=3):
    """Ask for all groups of a coordinator. Version 4 adds the filter by state."""

    states_filter: list[str] = array(string, since=4)


class ListedGroup(Struct):
    """One group as its coordinator lists it."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)


class ListGroupsResponse(Message, api_key=ApiKey.LIST_GROUPS, versions=(0, 4), flexible=3):
    """The groups of this coordinator."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


class JoinGroupRequestProtocol(Struct):
    """One assignor that the member knows, with the subscription encoded for it."""

    name: str = string()
    metadata: bytes = bytes_()


class JoinGroupRequest(Message, api_key=ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6):
    """A member's request to join the next generation of its group.

    Version 1 adds the rebalance time-out, 4 the answer MEMBER_ID_REQUIRED, 5 static members, 8 a
    reason.
    """

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32(since=1, default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string(since=8, nullable=8, default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """One member, as the leader of the group sees it."""

    member_id: str = string()
    group_instance_id: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    metadata: bytes = bytes_()


class JoinGroupResponse(Message, api_key=ApiKey.JOIN_GROUP, versions=(0, 9), flexible=6):
    """The generation that the member joined. Only the leader gets the members, and assigns
    partitions.

    With `skip_assignment` (version 9) no partitions are assigned, because a static leader rejoined.
    """

    throttle_time_ms: int = int32(since=2, ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string(since=7, nullable=7, default=None, ignorable=True)
    protocol_name: str | None = string(nullable=7)
    leader: str = string()
    skip_assignment: bool = boolean(since=9)
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


class HeartbeatRequest(Message, api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4):
    """Tells the coordinator that a member is alive. Version 3 adds static members."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)


class HeartbeatResponse(Message, api_key=ApiKey.HEARTBEAT, versions=(0, 4), flexible=4):
    """The error code that tells whether the member still belongs to the group or must join
    again.
    """

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()


class MemberIdentity(Struct):
    """One member that leaves."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable=0, default=None)
    reason: str | None = string(since=5, nullable=5, default=None, ignorable=True)


class LeaveGroupRequest(Message, api_key=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4):
    """Members that leave: `member_id` up to version 2, several `members` from version 3 on."""

    group_id: str = string()
    member_id: str = string(until=2)
    members: list[MemberIdentity] = array(MemberIdentity, since=3)


class MemberResponse(Struct):
    """The result for one member of a LeaveGroup request."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable=0)
    error_code: int = int16()


class LeaveGroupResponse(Message, api_key=ApiKey.LEAVE_GROUP, versions=(0, 5), flexible=4):
    """The result of a LeaveGroup request; from version 3 on for each member."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, since=3)


class SyncGroupRequestAssignment(Struct):
    """The leader's assignment for one member, as the client encoded it."""

    member_id: str = string()
    assignment: bytes = bytes_()


class SyncGroupRequest(Message, api_key=ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4):
    """A member's request for its assignment. The leader sends the assignments of all members.

    Version 3 adds static members, 5 the protocol that the member expects.
    """

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    protocol_type: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Message, api_key=ApiKey.SYNC_GROUP, versions=(0, 5), flexible=4):
    """The assignment of the member."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    protocol_name: str | None = string(since=5, nullable=5, default=None, ignorable=True)
    assignment: bytes = bytes_()


class DeleteGroupsRequest(Message, api_key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2):
    """Groups to delete, with their offsets."""

    groups_names: list[str] = array(string)


class DeletableGroupResult(Struct):
    """The result for one group of a DeleteGroups request."""

    group_id: str = string()
    error_code: int = int16()


class DeleteGroupsResponse(Message, api_key=ApiKey.DELETE_GROUPS, versions=(0, 2), flexible=2):
    """The result of a DeleteGroups request by group."""

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
