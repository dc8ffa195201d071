"""Make the reading of a group from its coordinator's answers: commits, members, assignments.

This module is pure.
"""

from collections.abc import Mapping

from monitor.state.reading import Commit, GroupReading, MemberReading
from protocol.client.admin_types import GroupDescription
from protocol.client.assignment import decode_assignment
from protocol.client.errors import ClientError
from protocol.client.group import OffsetAndMetadata
from protocol.client.group_requests import PROTOCOL_TYPE
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.types import TopicPartition

GroupOffsets = Mapping[TopicPartition, OffsetAndMetadata] | ApiError | ClientError


def group_reading(
    group_id: str,
    state: str,
    offsets: Mapping[str, GroupOffsets],
    described: GroupDescription | None,
) -> GroupReading:
    """Return one group from the coordinator's answers; `described` is None if the coordinator did
    not describe the group.
    """
    found = offsets.get(group_id, {})
    if isinstance(found, Exception):
        return GroupReading(
            group_id, state or "Unknown", None, {}, str(found) or type(found).__name__
        )
    commits = {row: Commit(commit.offset, commit.metadata) for row, commit in found.items()}
    if described is None or described.error is not ErrorCode.NONE:
        return GroupReading(group_id, state or "Unknown", None, commits)
    members = tuple(
        MemberReading(
            member.member_id,
            member.client_id,
            member.client_host.removeprefix("/"),
            member.group_instance_id,
            _assignment(described.protocol_type, member.assignment),
        )
        for member in described.members
    )
    return GroupReading(
        group_id,
        described.state or state or "Unknown",
        members,
        commits,
        coordinator=described.coordinator_id if described.coordinator_id >= 0 else None,
        assignor=described.protocol or None,
    )


def _assignment(protocol_type: str, assignment: bytes) -> frozenset[TopicPartition]:
    """Return the partitions that are assigned to a member; none if the protocol type is not
    `consumer`."""
    if protocol_type != PROTOCOL_TYPE:
        return frozenset()
    try:
        return decode_assignment(assignment)
    except (WireError, ValueError):
        return frozenset()
