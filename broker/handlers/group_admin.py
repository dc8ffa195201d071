"""Handles the administration of groups: list, describe, delete, and delete committed offsets."""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.metadata import Metadata
from broker.coordinators.classic_group import ClassicGroup
from broker.coordinators.group_roster import Member
from broker.coordinators.group_state import GroupState
from broker.coordinators.outcome import ShardOutcome
from broker.handlers.rights import readable_only, refuse_unreadable
from broker.metadata.image import OFFSETS_TOPIC
from broker.security.rights import operation_bits
from broker.sessions.call import Call
from broker.shards.groups import GroupCoordinator
from protocol.errors import ApiError, ErrorCode
from protocol.messages.group import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from protocol.messages.offsets import OffsetDeleteRequest, OffsetDeleteResponse
from protocol.security.acl import AclOperation, AclResource

Done = Callable[[int, ErrorCode], None]
"""A callback for the result of deleting one group: its index in the request, and the error code."""


class GroupAdminHandlers:
    """Handles ListGroups, DescribeGroups, DeleteGroups and OffsetDelete."""

    def __init__(self, groups: GroupCoordinator, metadata: Metadata) -> None:
        self._groups = groups
        self._metadata = metadata

    def list_groups(self, call: Call, request: ListGroupsRequest) -> ListGroupsResponse:
        """Return every group of this broker that the client may see.

        The whole request is refused while a shard is loading.
        """
        if self._groups.is_loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        sees_all = call.may_with_cluster(AclOperation.DESCRIBE, is_logged=False)
        return ListGroupsResponse(
            error_code=ErrorCode.NONE,
            groups=[
                ListedGroup(
                    group_id=one.group_id, protocol_type=one.protocol_type, group_state=one.state
                )
                for shard in self._groups.shards()
                for one in shard.listed(request.states_filter)
                if sees_all
                or call.may(AclOperation.DESCRIBE, AclResource.GROUP, one.group_id, is_logged=False)
            ],
        )

    def describe_groups(self, call: Call, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        """Return the groups with these names. An unknown group is in state Dead, which is not an
        error.

        A repeated name is answered once, because a small request must not get a huge answer.
        """
        groups = []
        for group_id in dict.fromkeys(request.groups):
            try:
                if not call.may(AclOperation.DESCRIBE, AclResource.GROUP, group_id):
                    raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
                described = self._described(group_id)
            except ApiError as error:
                described = DescribedGroup(group_id=group_id, error_code=error.code)
            else:
                if request.include_authorized_operations:
                    described.authorized_operations = operation_bits(
                        call.session.rights, AclResource.GROUP, group_id
                    )
            groups.append(described)
        return DescribeGroupsResponse(groups=groups)

    def _described(self, group_id: str) -> DescribedGroup:
        described = DescribedGroup(
            group_id=group_id, error_code=ErrorCode.NONE, group_state=GroupState.DEAD
        )
        if OFFSETS_TOPIC not in self._metadata.image.topics:
            return described
        shard = self._groups.readable(group_id)
        described.group_state = shard.state(group_id)
        group = shard.members.get(group_id)
        if group is not None:
            described.protocol_type = group.protocol_type or ""
            if group.state is GroupState.STABLE:
                described.protocol_data = group.protocol_name or ""
            described.members = [_described_member(group, member) for member in group.roster]
        return described

    def delete_groups(self, call: Call, request: DeleteGroupsRequest) -> None:
        """Handle DeleteGroups, each group separately.

        The answer is sent when all deletions are durable.
        """
        names = dict.fromkeys(request.groups_names)
        results = [DeletableGroupResult(group_id=group_id) for group_id in names]
        waiting = set(range(len(results)))

        def done(index: int, code: ErrorCode) -> None:
            results[index].error_code = code
            waiting.discard(index)
            if not waiting:
                call.answer(DeleteGroupsResponse(results=results))

        if not results:
            call.answer(DeleteGroupsResponse())
        for index, result in enumerate(results):
            if call.may(AclOperation.DELETE, AclResource.GROUP, result.group_id):
                self._delete_group(index, result.group_id, done)
            else:
                done(index, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def _delete_group(self, index: int, group_id: str, done: Done) -> None:
        groups = self._groups
        try:
            loaded = groups.find(group_id)
            tombstones = loaded.state.delete_group(group_id)
        except ApiError as error:
            done(index, error.code)
            return
        groups.submit_tombstones(
            loaded,
            ShardOutcome(tombstones, None),
            lambda _: done(index, ErrorCode.NONE),
            lambda error: done(index, error.code),
        )

    def offset_delete(self, call: Call, request: OffsetDeleteRequest) -> None:
        """Handle OffsetDelete. The answer is sent when the deletion is durable."""
        groups = self._groups
        if not call.may(AclOperation.DELETE, AclResource.GROUP, request.group_id):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        loaded = groups.find(request.group_id)
        outcome = loaded.state.delete_offsets(request, readable_only(call, groups.topic_with))
        refuse_unreadable(call, outcome.reply.topics)
        groups.submit_tombstones(
            loaded,
            outcome,
            call.answer,
            lambda error: call.answer(OffsetDeleteResponse(error_code=error.code)),
        )


def _described_member(group: ClassicGroup, member: Member) -> DescribedGroupMember:
    described = DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
    )
    if group.state is GroupState.STABLE:
        # During a rebalance the last assignment is no longer valid.
        described.member_metadata = member.metadata(group.protocol_name)
        described.member_assignment = member.assignment
    return described
