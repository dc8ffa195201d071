"""Lists, creates and deletes the ACLs of a cluster."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from protocol.client.errors import raise_for
from protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from protocol.security.acl import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster


async def describe_acls(
    cluster: "Cluster", wanted: AclFilter, *, timeout_ms: int | None = None
) -> list[AclEntry]:
    """Return the ACLs that match a filter. Raises ApiError."""
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )

    async def attempt(left_ms: int) -> list[AclEntry]:
        response: DescribeAclsResponse = await cluster.request(None, request, timeout_ms=left_ms)
        raise_for(response.error_code, response.error_message)
        return [
            AclEntry(
                AclResource(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                one.principal,
                one.host,
                AclOperation(one.operation),
                AclPermission(one.permission_type),
            )
            for resource in response.resources
            for one in resource.acls
        ]

    return await cluster.repeat(attempt, timeout_ms)


async def create_acls(
    cluster: "Cluster", entries: Iterable[AclEntry], *, timeout_ms: int | None = None
) -> None:
    """Create ACLs. An ACL that exists already is no error.

    If the cluster refuses some of them, it creates the others, and this raises ApiError for the
    first refused one.
    """
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=one.resource_type,
                resource_name=one.resource_name,
                resource_pattern_type=one.pattern_type,
                principal=one.principal,
                host=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in entries
        ]
    )

    async def attempt(left_ms: int) -> None:
        response: CreateAclsResponse = await cluster.request(None, request, timeout_ms=left_ms)
        for result in response.results:
            raise_for(result.error_code, result.error_message)

    await cluster.repeat(attempt, timeout_ms)


async def delete_acls(
    cluster: "Cluster", filters: Sequence[AclFilter], *, timeout_ms: int | None = None
) -> None:
    """Delete the ACLs that match any of the filters. Raises ApiError."""
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=one.resource_type,
                resource_name_filter=one.resource_name,
                pattern_type_filter=one.pattern_type,
                principal_filter=one.principal,
                host_filter=one.host,
                operation=one.operation,
                permission_type=one.permission,
            )
            for one in filters
        ]
    )

    async def attempt(left_ms: int) -> None:
        response: DeleteAclsResponse = await cluster.request(None, request, timeout_ms=left_ms)
        for result in response.filter_results:
            raise_for(result.error_code, result.error_message)

    await cluster.repeat(attempt, timeout_ms)
