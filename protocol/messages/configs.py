"""The messages that describe and alter settings, one resource at a time.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsResource(Struct):
    """One resource. If the keys are None or empty, all of its settings are described."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable=0)


class DescribeConfigsRequest(Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4):
    """Resources to describe. Version 3 adds documentation."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean(since=3)


class DescribeConfigsSynonym(Struct):
    """A possible source of a setting, in order of precedence."""

    name: str = string()
    value: str | None = string(nullable=0)
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    """One setting in effect, with its source."""

    name: str = string()
    value: str | None = string(nullable=0)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3, ignorable=True)
    documentation: str | None = string(since=3, nullable=0, default=None, ignorable=True)


class DescribeConfigsResult(Struct):
    """One resource's settings."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(
    Message, api_key=ApiKey.DESCRIBE_CONFIGS, versions=(1, 4), flexible=4
):
    """The settings by resource."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


class AlterableConfig(Struct):
    """One change. Operations: 0 set, 1 delete, 2 append, 3 subtract."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable=0)


class AlterConfigsResource(Struct):
    """One resource whose settings are altered."""

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(
    Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible=1
):
    """Settings to set, delete, append to or subtract from."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """The result for one resource of an IncrementalAlterConfigs request."""

    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(
    Message, api_key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), flexible=1
):
    """The result of an IncrementalAlterConfigs request by resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class AlterConfigsRequestConfig(Struct):
    """One setting and its value.

    Kafka's name is AlterableConfig, which IncrementalAlterConfigsRequest has too.
    """

    name: str = string()
    value: str | None = string(nullable=0)


class AlterConfigsRequestResource(Struct):
    """One resource with all settings that it must have afterwards.

    Kafka's name is AlterConfigsResource, which IncrementalAlterConfigsRequest has too.
    """

    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterConfigsRequestConfig] = array(AlterConfigsRequestConfig)


class AlterConfigsRequest(Message, api_key=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible=2):
    """Settings to replace. Settings that are not named return to their defaults."""

    resources: list[AlterConfigsRequestResource] = array(AlterConfigsRequestResource)
    validate_only: bool = boolean()


class AlterConfigsResponse(Message, api_key=ApiKey.ALTER_CONFIGS, versions=(0, 2), flexible=2):
    """The result of an AlterConfigs request by resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class ListConfigResourcesRequest(
    Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 0), flexible=0
):
    """Ask for client-metrics resources. Version 0 has no other kind."""


class ListedConfigResource(Struct):
    """One resource that has settings. Kafka's name is ConfigResource."""

    resource_name: str = string()


class ListConfigResourcesResponse(
    Message, api_key=ApiKey.LIST_CONFIG_RESOURCES, versions=(0, 0), flexible=0
):
    """The resources that have settings."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ListedConfigResource] = array(ListedConfigResource)
