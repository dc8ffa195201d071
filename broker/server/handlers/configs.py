"""Settings of topics and brokers: described from the image, changed by orders to the controller."""

from __future__ import annotations

from collections.abc import Sequence

from broker.controller.configs import describe_configs as describe
from broker.server.connection import Call
from broker.server.services import Services
from protocol.errors import ApiError, ErrorCode
from protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


def describe_configs(
    services: Services, call: Call, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """DescribeConfigs, from the image."""
    return describe(request, services.metadata.image, services.config)


def alter_configs(services: Services, call: Call, request: AlterConfigsRequest) -> None:
    """AlterConfigs: answered when the settings are in force."""

    def refused(error: ApiError) -> None:
        call.answer(AlterConfigsResponse(responses=_not_written(request.resources, error)))

    services.metadata.submit(request, call.answer, refused, call.connection.peer_host)


def incremental_alter_configs(
    services: Services, call: Call, request: IncrementalAlterConfigsRequest
) -> None:
    """IncrementalAlterConfigs: answered when the settings are in force."""

    def refused(error: ApiError) -> None:
        responses = _not_written(request.resources, error)
        call.answer(IncrementalAlterConfigsResponse(responses=responses))

    services.metadata.submit(request, call.answer, refused, call.connection.peer_host)


def _not_written(
    resources: Sequence[AlterConfigsResource | AlterConfigsRequestResource], error: ApiError
) -> list[AlterConfigsResourceResponse]:
    """A time-out is retriable, and in every tool's book."""
    return [
        AlterConfigsResourceResponse(
            error_code=ErrorCode.REQUEST_TIMED_OUT,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in resources
    ]


def list_config_resources(
    services: Services, call: Call, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """ListConfigResources: version 0 asks for subscriptions to client metrics; there are none."""
    return ListConfigResourcesResponse()
