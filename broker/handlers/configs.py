"""Handles requests for settings of topics and brokers, and for the levels of the process's loggers.

Settings are read from the image and changed by the controller. The levels of loggers are not part
of the metadata.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.cluster.metadata import Metadata
from broker.config import InForce
from broker.controller.permits import config_refusal
from broker.handlers.loggers import LOGGER_RESOURCE, alter_loggers, describe_loggers
from broker.handlers.rights import order_code
from broker.metadata.configs import describe_configs as describe
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from protocol.security.acl import AclOperation


class ConfigHandlers:
    """Handles the requests that read or change settings of topics, brokers and loggers."""

    def __init__(self, metadata: Metadata, settings: InForce) -> None:
        self._metadata = metadata
        self._settings = settings

    def describe_configs(
        self, call: Call, request: DescribeConfigsRequest
    ) -> DescribeConfigsResponse:
        """Handle DescribeConfigs from the image."""
        refused = [
            _refused(one, code)
            for one in request.resources
            if (
                code := config_refusal(
                    call, AclOperation.DESCRIBE_CONFIGS, one.resource_type, one.resource_name
                )
            )
        ]
        if refused:
            denied = {(one.resource_type, one.resource_name) for one in refused}
            request.resources = [
                one
                for one in request.resources
                if (one.resource_type, one.resource_name) not in denied
            ]
        response = describe(request, self._metadata.image, self._settings.config)
        loggers = {
            one.resource_name: one
            for one in request.resources
            if one.resource_type == LOGGER_RESOURCE
        }
        if loggers:
            response.results = [
                describe_loggers(loggers[one.resource_name], self._settings.config.node_id)
                if one.resource_type == LOGGER_RESOURCE
                else one
                for one in response.results
            ]
        response.results.extend(refused)
        return response

    def alter_configs(self, call: Call, request: AlterConfigsRequest) -> None:
        """Handle AlterConfigs. The answer is sent when the new settings apply."""

        def refused(error: ApiError) -> None:
            call.answer(AlterConfigsResponse(responses=_not_written(request.resources, error)))

        self._metadata.submit(request, call.answer, refused, *call.asker)

    def incremental_alter_configs(
        self, call: Call, request: IncrementalAlterConfigsRequest
    ) -> None:
        """Handle IncrementalAlterConfigs. The answer is sent when the new settings apply."""
        loggers = [one for one in request.resources if one.resource_type == LOGGER_RESOURCE]
        others = [one for one in request.resources if one.resource_type != LOGGER_RESOURCE]
        if not loggers or call.may_with_cluster(AclOperation.ALTER_CONFIGS):
            altered = alter_loggers(
                loggers, self._settings.config.node_id, validate_only=request.validate_only
            )
        else:
            denied = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            altered = _not_written(loggers, denied)

        def answer(responses: list[AlterConfigsResourceResponse]) -> None:
            parts = {True: iter(altered), False: iter(responses)}
            in_order = [
                next(parts[one.resource_type == LOGGER_RESOURCE]) for one in request.resources
            ]
            call.answer(IncrementalAlterConfigsResponse(responses=in_order))

        def done(response: IncrementalAlterConfigsResponse) -> None:
            answer(response.responses)

        def refused(error: ApiError) -> None:
            answer(_not_written(others, error))

        if loggers and not others:
            answer([])
            return
        order = IncrementalAlterConfigsRequest(
            resources=others, validate_only=request.validate_only
        )
        self._metadata.submit(order, done, refused, *call.asker)

    def list_config_resources(
        self, call: Call, request: ListConfigResourcesRequest
    ) -> ListConfigResourcesResponse:
        """Handle ListConfigResources.

        Version 0 lists subscriptions to client metrics, and this broker has none.
        """
        call.need_of_cluster(AclOperation.DESCRIBE_CONFIGS)
        return ListConfigResourcesResponse()


def _refused(resource: DescribeConfigsResource, code: ErrorCode) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=code.description,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _not_written(
    resources: Sequence[AlterConfigsResource | AlterConfigsRequestResource], error: ApiError
) -> list[AlterConfigsResourceResponse]:
    """Return an error for each resource, because the changes were not written."""
    return [
        AlterConfigsResourceResponse(
            error_code=order_code(error),
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        for resource in resources
    ]
