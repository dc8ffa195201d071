"""Handles requests about ACLs: describe them, and pass changes on to the controller."""

from __future__ import annotations

from broker.cluster.metadata import Metadata
from broker.controller.acls import filter_of
from broker.handlers.rights import order_code
from broker.sessions.call import Call
from protocol.errors import ApiError
from protocol.messages.acls import (
    AclCreationResult,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from protocol.security.acl import AclOperation, AclResource, PatternType


class AclHandlers:
    """Handles DescribeAcls, CreateAcls and DeleteAcls."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def describe(self, call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
        """Return the ACLs that match the filter, by pattern."""
        call.need_of_cluster(AclOperation.DESCRIBE)
        wanted = filter_of(request)
        found: dict[tuple[AclResource, PatternType, str], DescribeAclsResource] = {}
        for entry in self._metadata.image.acls.entries.values():
            if not wanted.matches(entry):
                continue
            pattern = (entry.resource_type, entry.pattern_type, entry.resource_name)
            if pattern not in found:
                found[pattern] = DescribeAclsResource(
                    resource_type=entry.resource_type,
                    resource_name=entry.resource_name,
                    pattern_type=entry.pattern_type,
                )
            found[pattern].acls.append(
                AclDescription(
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
            )
        return DescribeAclsResponse(resources=list(found.values()))

    def create(self, call: Call, request: CreateAclsRequest) -> None:
        """Handle CreateAcls. The answer is sent when the ACLs are committed and in force here."""

        def refused(error: ApiError) -> None:
            result = AclCreationResult(error_code=order_code(error), error_message=error.message)
            call.answer(CreateAclsResponse(results=[result] * len(request.creations)))

        self._metadata.submit(request, call.answer, refused, *call.asker)

    def delete(self, call: Call, request: DeleteAclsRequest) -> None:
        """Handle DeleteAcls. The answer is sent when the deletion is committed and in force
        here."""

        def refused(error: ApiError) -> None:
            result = DeleteAclsFilterResult(
                error_code=order_code(error), error_message=error.message
            )
            call.answer(DeleteAclsResponse(filter_results=[result] * len(request.filters)))

        self._metadata.submit(request, call.answer, refused, *call.asker)
