"""Decides CreateAcls and DeleteAcls.

This module is pure. The errors are Kafka's. Each ACL of a request succeeds or fails alone. Creating
an ACL that already exists succeeds. Users, topics and groups that do not exist can have ACLs.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import TypeVar

from broker.controller.outcome import ControllerDecision
from broker.metadata.acl_changes import fields_of
from broker.metadata.image import MetadataImage
from broker.metadata.records import (
    AccessControlEntryRecord,
    MetadataRecord,
    RemoveAccessControlEntryRecord,
)
from protocol.errors import ApiError, ErrorCode
from protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
)
from protocol.security.acl import (
    CLUSTER_NAME,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
)
from protocol.types import Uuid

ACLS_MAX = 50_000
"""The most ACLs of a cluster; each takes about a kilobyte in every broker."""

TEXT_LENGTH_MAX = 1_024
"""The longest name, principal and host of an ACL. Names of topics and users are shorter."""

WANTED_MAX = 10_000
"""The most ACLs that one request can create or delete, as in Kafka."""

Word = TypeVar("Word", bound=IntEnum)


def create_acls(
    request: CreateAclsRequest, image: MetadataImage, new_id: Callable[[], Uuid]
) -> ControllerDecision[CreateAclsResponse]:
    """Create the ACLs of a request."""
    if len(request.creations) > WANTED_MAX:
        raise _too_many(len(request.creations))
    records: list[MetadataRecord] = []
    results = []
    added: set[AclEntry] = set()
    for creation in request.creations:
        result = AclCreationResult(error_code=ErrorCode.NONE)
        try:
            entry = _entry(creation)
            if entry not in image.acls.ids and entry not in added:
                if len(image.acls.entries) + len(added) >= ACLS_MAX:
                    raise ApiError(
                        ErrorCode.POLICY_VIOLATION,
                        f"the cluster already has {ACLS_MAX} ACLs, which is the limit: delete some",
                    )
                added.add(entry)
                records.append(AccessControlEntryRecord(id=new_id(), **fields_of(entry)))
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return ControllerDecision(records, CreateAclsResponse(results=results))


def _entry(creation: AclCreation) -> AclEntry:
    """Return the ACL that a creation in a request asks for. Raises ApiError if its meaning would be
    unclear."""
    entry = AclEntry(
        _word(AclResource, creation.resource_type, "resource type"),
        creation.resource_name,
        _word(PatternType, creation.resource_pattern_type, "pattern type"),
        creation.principal,
        creation.host,
        _word(AclOperation, creation.operation, "operation"),
        _word(AclPermission, creation.permission_type, "permission type"),
    )
    texts = (entry.resource_name, entry.principal, entry.host)
    faults = (
        (entry.pattern_type is PatternType.MATCH, "found pattern type MATCH, which is for filters"),
        (not entry.resource_name, "the name of the resource is empty"),
        (not entry.host, "the host is empty, expected an address or *"),
        (
            entry.resource_type is AclResource.CLUSTER and entry.resource_name != CLUSTER_NAME,
            f"the only valid name for the CLUSTER resource is {CLUSTER_NAME}",
        ),
        (
            not all(entry.principal.partition(":")),
            "the principal has no type, expected User:NAME or User:*",
        ),
        (
            max(map(len, texts)) > TEXT_LENGTH_MAX,
            f"a text has more than {TEXT_LENGTH_MAX} characters",
        ),
    )
    for is_wrong, text in faults:
        if is_wrong:
            raise ApiError(ErrorCode.INVALID_REQUEST, text)
    return entry


def _word(words: type[Word], number: int, what: str) -> Word:
    """Return the member of an enumeration with this number, which must not be ANY or UNKNOWN."""
    # The first two members of each enumeration are UNKNOWN and ANY.
    if number not in list(words)[2:]:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"found {what} {number}, expected one of {', '.join(map(str, list(words)[2:]))}",
        )
    return words(number)


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the ACL filter of a request. Raises ApiError if it has an unknown number."""
    try:
        found = AclFilter(
            AclResource(asked.resource_type_filter),
            asked.resource_name_filter,
            PatternType(asked.pattern_type_filter),
            asked.principal_filter,
            asked.host_filter,
            AclOperation(asked.operation),
            AclPermission(asked.permission_type),
        )
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the filter is not valid: {error}") from error
    # 0 is the number of UNKNOWN in each enumeration. The names in a filter can be None.
    if 0 in (found.resource_type, found.pattern_type, found.operation, found.permission):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "the filter has an unknown resource type, pattern type, operation or permission",
        )
    return found


def delete_acls(
    request: DeleteAclsRequest, image: MetadataImage
) -> ControllerDecision[DeleteAclsResponse]:
    """Delete the ACLs that match any filter of a request. The answer lists for each filter the ACLs
    that it selected."""
    doomed: dict[Uuid, None] = {}
    results = []
    for asked in request.filters:
        result = DeleteAclsFilterResult(error_code=ErrorCode.NONE)
        try:
            wanted = filter_of(asked)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        else:
            for acl_id, entry in image.acls.entries.items():
                if wanted.matches(entry):
                    doomed[acl_id] = None
                    result.matching_acls.append(
                        DeleteAclsMatchingAcl(error_code=ErrorCode.NONE, **fields_of(entry))
                    )
        results.append(result)
        if len(doomed) > WANTED_MAX:
            raise _too_many(len(doomed))
    records = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in doomed]
    return ControllerDecision(records, DeleteAclsResponse(filter_results=results))


def _too_many(count: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REQUEST,
        f"the request is for {count} ACLs, and at most {WANTED_MAX} are allowed: split it",
    )
