"""Create, list and delete ACLs.

This module has only data classes. The numbers are those of `protocol/security/acl`. In filters None
and 1 (ANY) match everything.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, Struct, array, int8, int16, int32, string

LITERAL = 3
"""The pattern type of clients that do not know another one."""


class AclCreation(Struct):
    """An ACL that will be created."""

    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class CreateAclsRequest(Message, api_key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2):
    """Create ACLs. Each succeeds or fails alone."""

    creations: list[AclCreation] = array(AclCreation)


class AclCreationResult(Struct):
    """The result for one ACL, in the order of the request."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)


class CreateAclsResponse(Message, api_key=ApiKey.CREATE_ACLS, versions=(1, 3), flexible=2):
    """The results of a CreateAcls request."""

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


class DeleteAclsFilter(Struct):
    """A filter; all ACLs that it selects will be deleted."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0)
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string(nullable=0)
    host_filter: str | None = string(nullable=0)
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsRequest(Message, api_key=ApiKey.DELETE_ACLS, versions=(1, 3), flexible=2):
    """Delete the ACLs that match filters."""

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsMatchingAcl(Struct):
    """An ACL that was deleted."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DeleteAclsFilterResult(Struct):
    """The result of one filter, in the order of the request."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


class DeleteAclsResponse(Message, api_key=ApiKey.DELETE_ACLS, versions=(1, 3), flexible=2):
    """The deleted ACLs by filter."""

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)


class DescribeAclsRequest(Message, api_key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible=2):
    """Ask for the ACLs that match a filter."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable=0)
    pattern_type_filter: int = int8(default=LITERAL)
    principal_filter: str | None = string(nullable=0)
    host_filter: str | None = string(nullable=0)
    operation: int = int8()
    permission_type: int = int8()


class AclDescription(Struct):
    """One ACL of a pattern."""

    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResource(Struct):
    """A pattern of resources, and its ACLs."""

    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=LITERAL)
    acls: list[AclDescription] = array(AclDescription)


class DescribeAclsResponse(Message, api_key=ApiKey.DESCRIBE_ACLS, versions=(1, 3), flexible=2):
    """The ACLs that match the filter, by pattern."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
