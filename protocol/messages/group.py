"""Groups seen from outside: list and describe.

Floor: messages. Data only.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, Struct, array, boolean, bytes_, int16, int32, string


class DescribeGroupsRequest(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions=(0, 5), flexible=5):
    """Groups to describe. 3 adds authorised operations, 4 static members in the answer."""

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
    """One group; an unknown one is Dead without an error."""

    error_code: int = int16()
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32(since=3, default=-2147483648)


class DescribeGroupsResponse(Message, api_key=ApiKey.DESCRIBE_GROUPS, versions=(0, 5), flexible=5):
    """The groups' states and members."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)


class ListGroupsRequest(Message, api_key=ApiKey.LIST_GROUPS, versions=(0, 4), flexible=3):
    """All groups of a coordinator. 4 adds the filter by state."""

    states_filter: list[str] = array(string, since=4)


class ListedGroup(Struct):
    """One group of the list."""

    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string(since=4, ignorable=True)


class ListGroupsResponse(Message, api_key=ApiKey.LIST_GROUPS, versions=(0, 4), flexible=3):
    """The groups of this coordinator."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
