"""Builds the requests of a group member.

This module is pure. `group_core` decides when each is sent.
"""

from collections.abc import Collection, Mapping

from protocol.client.assignment import encode_subscription
from protocol.client.assignors import Assignor
from protocol.client.group_steps import GroupMembership, GroupSettings
from protocol.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from protocol.types import TopicPartition

PROTOCOL_TYPE = "consumer"


def join_request(
    settings: GroupSettings,
    membership: GroupMembership,
    topics: Collection[str],
    owned: Collection[TopicPartition],
    had: tuple[Collection[TopicPartition], int],
) -> JoinGroupRequest:
    """Return a JoinGroup request for these topics, with each assignor that the member knows.

    In an eager group `owned` is already empty. Then the user data of the assignor has the member's
    last partitions and their generation (`had`).
    """

    def metadata(assignor: Assignor) -> bytes:
        user_data = None if assignor.user_data is None else assignor.user_data(*had)
        return encode_subscription(topics, owned, membership.generation_id, user_data)

    return JoinGroupRequest(
        group_id=settings.group_id,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
        member_id=membership.member_id,
        group_instance_id=membership.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(name=assignor.name, metadata=metadata(assignor))
            for assignor in settings.assignors
        ],
    )


def sync_request(
    group_id: str,
    membership: GroupMembership,
    protocol_name: str,
    assignments: Mapping[str, bytes],
) -> SyncGroupRequest:
    """Return a SyncGroup request. The leader also sends `assignments`, by member id."""
    return SyncGroupRequest(
        group_id=group_id,
        generation_id=membership.generation_id,
        member_id=membership.member_id,
        group_instance_id=membership.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocol_name,
        assignments=[
            SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
            for member_id, assignment in assignments.items()
        ],
    )


def heartbeat_request(group_id: str, membership: GroupMembership) -> HeartbeatRequest:
    """Return a heartbeat request, which tells the coordinator that the member is alive."""
    return HeartbeatRequest(
        group_id=group_id,
        generation_id=membership.generation_id,
        member_id=membership.member_id,
        group_instance_id=membership.group_instance_id,
    )
