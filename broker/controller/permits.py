"""Checks the rights of a user for a controller request, in the step that decides the request.

This module is pure. The rights are those of the image against which the request is decided. So a
request cannot use a right that an earlier decision took away. The parts of a request that the user
may not do are refused with Kafka's errors. The other parts are decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from broker.controller.features import FeatureUpdate
from broker.controller.outcome import ControllerDecision, CreateOwnTopic
from broker.metadata.image import MetadataImage
from broker.metadata.records import TOPIC_RESOURCE
from broker.security.rights import Asker, RequestRights, Rights
from protocol.errors import ApiError, ErrorCode
from protocol.messages.acls import CreateAclsRequest, DeleteAclsRequest
from protocol.messages.api import ApiKey
from protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
)
from protocol.messages.membership import UnregisterBrokerRequest
from protocol.messages.quotas import AlterClientQuotasRequest
from protocol.messages.scram import AlterUserScramCredentialsRequest
from protocol.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.security.acl import CLUSTER_NAME, AclOperation, AclResource
from protocol.types import ZERO_UUID
from protocol.wire.schema import Message

GROUP_RESOURCE = 32
"""Kafka's number of the resource type group, in requests for settings."""

CLUSTER_WIDE = (
    ElectLeadersRequest,
    AlterPartitionReassignmentsRequest,
    UnregisterBrokerRequest,
    FeatureUpdate,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
)
"""The requests that need ALTER on the cluster."""

Decide = Callable[[Any], ControllerDecision[Any]]


def decide_permitted(
    order: Any, image: MetadataImage, rights: Rights, decide: Decide
) -> ControllerDecision[Any]:
    """Decide the permitted part of a request, and refuse the other parts.

    Raises ApiError CLUSTER_AUTHORIZATION_FAILED if the whole request is refused.
    """
    asker = RequestRights(rights, _request_of(order))
    match order:
        case CreateTopicsRequest():
            return _create_topics(order, asker, decide)
        case CreateOwnTopic(name):
            if not may_create(asker, name):
                return ControllerDecision([], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return decide(order)
        case DeleteTopicsRequest():
            return _delete_topics(order, image, asker, decide)
        case CreatePartitionsRequest():
            return _create_partitions(order, asker, decide)
        case IncrementalAlterConfigsRequest() | AlterConfigsRequest():
            return _alter_configs(order, asker, decide)
        case AlterClientQuotasRequest():
            return _with_cluster(AclOperation.ALTER_CONFIGS, order, asker, decide)
    # A request without a rule is refused.
    if not isinstance(order, CLUSTER_WIDE):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return _with_cluster(AclOperation.ALTER, order, asker, decide)


def _request_of(order: Any) -> ApiKey:
    """Return the client's request that became this order."""
    match order:
        case FeatureUpdate():
            return ApiKey.UPDATE_FEATURES
        case Message():
            return ApiKey(order.api_key)
    return ApiKey.METADATA


def _with_cluster(
    operation: AclOperation, order: Any, asker: Asker, decide: Decide
) -> ControllerDecision[Any]:
    """Decide a request that needs a right on the cluster."""
    if not asker.may(operation, AclResource.CLUSTER, CLUSTER_NAME):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return decide(order)


def may_create(asker: Asker, topic: str) -> bool:
    """Return True if the user may create a topic of this name."""
    return asker.may(
        AclOperation.CREATE, AclResource.CLUSTER, CLUSTER_NAME, is_logged=False
    ) or asker.may(AclOperation.CREATE, AclResource.TOPIC, topic)


def _create_topics(
    order: CreateTopicsRequest, asker: Asker, decide: Decide
) -> ControllerDecision[Any]:
    # The decision refuses repeated names, whatever rights the user has.
    counts = Counter(topic.name for topic in order.topics)
    denied = {
        name: None for name, count in counts.items() if count == 1 and not may_create(asker, name)
    }
    allowed = [topic for topic in order.topics if topic.name not in denied]
    decision = decide(
        CreateTopicsRequest(
            topics=allowed, timeout_ms=order.timeout_ms, validate_only=order.validate_only
        )
    )
    for result in decision.reply.topics:
        if result.error_code == ErrorCode.NONE and not asker.may(
            AclOperation.DESCRIBE_CONFIGS, AclResource.TOPIC, result.name, is_logged=False
        ):
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            result.num_partitions = result.replication_factor = -1
            result.configs = []
    decision.reply.topics.extend(
        CreatableTopicResult(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, configs=[])
        for name in denied
    )
    return decision


def _delete_topics(
    order: DeleteTopicsRequest, image: MetadataImage, asker: Asker, decide: Decide
) -> ControllerDecision[Any]:
    """Refuse to delete topics without the right DELETE. Without DESCRIBE, the answer does not show
    the name of a topic that the request names by id."""
    states = order.topics or [DeleteTopicState(name=name) for name in order.topic_names]
    counts = Counter((state.name, state.topic_id) for state in states)
    allowed, denied = [], []
    for state in states:
        name, topic_id = state.name, state.topic_id
        is_odd = counts[name, topic_id] > 1 or (name is None) == (topic_id == ZERO_UUID)
        known = image.topic_names.get(topic_id) if name is None else name
        if is_odd or known is None or asker.may(AclOperation.DELETE, AclResource.TOPIC, known):
            # The decision refuses invalid and unknown topics, whatever rights the user has.
            allowed.append(state)
            continue
        is_shown = asker.may(AclOperation.DESCRIBE, AclResource.TOPIC, known, is_logged=False)
        denied.append(
            DeletableTopicResult(
                name=known if name is not None or is_shown else None,
                topic_id=topic_id,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
        )
    decision = decide(DeleteTopicsRequest(topics=allowed, timeout_ms=order.timeout_ms))
    decision.reply.responses.extend(denied)
    return decision


def _create_partitions(
    order: CreatePartitionsRequest, asker: Asker, decide: Decide
) -> ControllerDecision[Any]:
    counts = Counter(topic.name for topic in order.topics)
    denied = {
        name: None
        for name, count in counts.items()
        if count == 1 and not asker.may(AclOperation.ALTER, AclResource.TOPIC, name)
    }
    decision = decide(
        CreatePartitionsRequest(
            topics=[topic for topic in order.topics if topic.name not in denied],
            timeout_ms=order.timeout_ms,
            validate_only=order.validate_only,
        )
    )
    decision.reply.results.extend(
        CreatePartitionsTopicResult(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for name in denied
    )
    return decision


def config_refusal(
    asker: Asker, operation: AclOperation, resource_type: int, name: str
) -> ErrorCode:
    """Return the error for a user that may not read or change the settings of a resource; else
    NONE."""
    kind, code = AclResource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    asked = CLUSTER_NAME
    if resource_type == TOPIC_RESOURCE:
        kind, code, asked = AclResource.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED, name
    elif resource_type == GROUP_RESOURCE:
        kind, code, asked = AclResource.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED, name
    return ErrorCode.NONE if asker.may(operation, kind, asked) else code


def _alter_configs(
    order: IncrementalAlterConfigsRequest | AlterConfigsRequest, asker: Asker, decide: Decide
) -> ControllerDecision[Any]:
    codes = [
        config_refusal(asker, AclOperation.ALTER_CONFIGS, one.resource_type, one.resource_name)
        for one in order.resources
    ]
    allowed: list[Any] = [
        one for one, code in zip(order.resources, codes, strict=True) if code is ErrorCode.NONE
    ]
    decision = decide(type(order)(resources=allowed, validate_only=order.validate_only))
    decided = iter(decision.reply.responses)
    asked: list[Any] = [*order.resources]
    decision.reply.responses = [
        next(decided) if code is ErrorCode.NONE else _not_altered(one, code)
        for one, code in zip(asked, codes, strict=True)
    ]
    return decision


def _not_altered(
    resource: AlterConfigsResource | AlterConfigsRequestResource, code: ErrorCode
) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
