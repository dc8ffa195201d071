"""The settings of topics and brokers: the effective values and their sources.

This module is pure. The value of a topic setting is the topic's own value, else the node's value
under one of the setting's synonyms, else the default. The value of a node setting is the run-time
value for this node, else the run-time value for all nodes, else the value in the node's file, else
the default. DescribeConfigs shows all these values, the effective one first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from broker.config import BROKER_ROWS, TOPIC_ROWS, BrokerConfig, foreign_setting
from broker.metadata.image import MetadataImage
from broker.metadata.names import check_topic_name
from broker.metadata.own_entries import own_values
from broker.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from broker.settings import ConfigType, Setting, Value, scaled, text
from protocol.errors import ApiError, ErrorCode
from protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from protocol.messages.topics import CreatableTopicConfigs


class SettingSource(IntEnum):
    """The source of a setting's value, with Kafka's numbers in DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of a setting, with its value.

    The first layer of a setting has the effective value.
    """

    name: str
    value: str
    source: SettingSource


def _inherited_layers(row: Setting, config: BrokerConfig) -> list[Layer]:
    """Return the values of a setting for topics that do not set it, the effective one first."""
    return [
        *_node_layers([synonym.key for synonym in row.synonyms], config),
        _default_layer(row),
    ]


def _own_layer(row: Setting, stored: str) -> Layer:
    """Return the layer of a topic's own value.

    The value is stored as the client sent it, and shown without blanks.
    """
    is_list = row.kind is ConfigType.LIST
    value = ",".join(part.strip() for part in stored.split(",")) if is_list else stored.strip()
    return Layer(row.key, value, SettingSource.DYNAMIC_TOPIC)


def _node_layers(keys: Collection[str], config: BrokerConfig) -> Iterator[Layer]:
    """Yield the node's values under these keys, ordered by source and then by key."""
    for source, values in _node_values(config):
        for key in keys:
            if key in values:
                yield Layer(key, text(values[key]), source)


def _node_values(config: BrokerConfig) -> Iterator[tuple[SettingSource, Mapping[str, Value]]]:
    yield SettingSource.DYNAMIC_BROKER, config.dynamic
    yield SettingSource.DYNAMIC_DEFAULT_BROKER, config.dynamic_for_all
    yield SettingSource.STATIC_BROKER, config.given


def _default_layer(row: Setting) -> Layer:
    """Return the layer of the default. Its key is the broker key with the coarsest unit."""
    if not row.synonyms:
        return Layer(row.key, text(row.default), SettingSource.DEFAULT)
    synonym = row.synonyms[-1]
    default = row.default
    if synonym.factor != 1 and isinstance(default, int) and default > 0:
        default = default // synonym.factor
    return Layer(synonym.key, text(default), SettingSource.DEFAULT)


def effective(
    row: Setting, overrides: Mapping[str, str], config: BrokerConfig
) -> tuple[str, SettingSource]:
    """Return the effective value of a topic setting, in the setting's own unit, and its source."""
    if row.key in overrides:
        own = _own_layer(row, overrides[row.key])
        return own.value, own.source
    for source, values in _node_values(config):
        for synonym in row.synonyms:
            if synonym.key in values:
                return text(scaled(values[synonym.key], synonym)), source
    return text(row.default), SettingSource.DEFAULT


def created_configs(
    settings: Mapping[str, str], config: BrokerConfig
) -> list[CreatableTopicConfigs]:
    """Return all settings of a new topic, for the answer to CreateTopics."""
    entries = []
    for _, row in TOPIC_ROWS.values():
        value, source = effective(row, settings, config)
        entries.append(CreatableTopicConfigs(name=row.key, value=value, config_source=source))
    return entries


@dataclass(frozen=True, slots=True)
class Inherited:
    """A topic setting with the values for topics that do not set it."""

    row: Setting
    layers: list[Layer]
    entry: DescribeConfigsResourceResult


def describe_configs(
    request: DescribeConfigsRequest, image: MetadataImage, config: BrokerConfig
) -> DescribeConfigsResponse:
    """Answer DescribeConfigs for topics and this broker. A resource that the request names
    repeatedly is described once."""
    asked = {(one.resource_type, one.resource_name): one for one in request.resources}
    # The values from the node and the defaults are the same for all topics, so compute them once.
    inherited = {
        key: Inherited(row, layers, _entry(row, layers, effective(row, {}, config)[0], request))
        for key, (_, row) in TOPIC_ROWS.items()
        for layers in [_inherited_layers(row, config)]
    }
    return DescribeConfigsResponse(
        results=[
            _describe(resource, request, image, config, inherited) for resource in asked.values()
        ]
    )


def _describe(
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    image: MetadataImage,
    config: BrokerConfig,
    inherited: Mapping[str, Inherited],
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    wanted = resource.configuration_keys or None
    try:
        if resource.resource_type == TOPIC_RESOURCE:
            overrides = _overrides(resource.resource_name, image)
            result.configs = [
                _topic_entry(one, overrides, request)
                for key, one in inherited.items()
                if wanted is None or key in wanted
            ]
        elif resource.resource_type == BROKER_RESOURCE:
            entries = _broker_entries(resource.resource_name, config, wanted)
            result.configs = [
                _entry(row, layers, layers[0].value, request, is_read_only=is_read_only)
                for row, layers, is_read_only in entries
            ]
            if resource.resource_name:
                result.configs.extend(_own_entries(config, wanted, request))
            result.configs.extend(_foreign_entries(resource.resource_name, image, wanted, request))
        else:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"found resource type {resource.resource_type}, for which this broker has no "
                "settings",
            )
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _overrides(name: str, image: MetadataImage) -> Mapping[str, str]:
    if check_topic_name(name) not in image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return image.settings(TOPIC_RESOURCE, name)


def _topic_entry(
    inherited: Inherited, overrides: Mapping[str, str], request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    row = inherited.row
    own = overrides.get(row.key)
    if own is None:
        return inherited.entry
    layers = [_own_layer(row, own), *inherited.layers]
    return _entry(row, layers, layers[0].value, request)


def _broker_entries(
    name: str, config: BrokerConfig, wanted: Collection[str] | None
) -> Iterator[tuple[Setting, list[Layer], bool]]:
    """Yield each selected setting of this broker: its definition, its layers, and True if it is
    read-only."""
    if name and name != str(config.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            (
                f"this is broker {config.node_id}: send requests for the settings of broker "
                f"{name} to that broker"
            ),
        )
    rows = [row for key, (_, row) in BROKER_ROWS.items() if wanted is None or key in wanted]
    if not name:
        # An empty name selects only the settings that were set at run time for all brokers.
        for_all = config.dynamic_for_all
        return (
            (
                row,
                [Layer(row.key, text(for_all[row.key]), SettingSource.DYNAMIC_DEFAULT_BROKER)],
                False,
            )
            for row in rows
            if row.key in for_all
        )
    return ((row, _broker_layers(row, config), not row.is_dynamic) for row in rows)


def _own_entries(
    config: BrokerConfig, wanted: Collection[str] | None, request: DescribeConfigsRequest
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield the entries for the node's identity, which tools look up under Kafka's keys."""
    for row, value in own_values(config):
        if wanted is not None and row.key not in wanted:
            continue
        if value is not None:
            layer = Layer(row.key, value, SettingSource.STATIC_BROKER)
            yield _entry(row, [layer], value, request, is_read_only=True)
        else:
            yield _entry(row, [], None, request, is_read_only=True)


def _foreign_entries(
    name: str,
    image: MetadataImage,
    wanted: Collection[str] | None,
    request: DescribeConfigsRequest,
) -> Iterator[DescribeConfigsResourceResult]:
    """Yield the run-time settings whose keys this broker does not know.

    As in Kafka, their values are not shown, because they can be secrets.
    """
    for_all = image.settings(BROKER_RESOURCE, "")
    own = image.settings(BROKER_RESOURCE, name) if name else {}
    for key in sorted((for_all.keys() | own.keys()) - BROKER_ROWS.keys()):
        if wanted is None or key in wanted:
            source = (
                SettingSource.DYNAMIC_BROKER if key in own else SettingSource.DYNAMIC_DEFAULT_BROKER
            )
            entry = _entry(foreign_setting(key), [], None, request)
            entry.config_source, entry.is_sensitive = source, True
            yield entry


def _broker_layers(row: Setting, config: BrokerConfig) -> list[Layer]:
    default = Layer(row.key, text(_broker_default(row)), SettingSource.DEFAULT)
    return [*_node_layers([row.key], config), default]


def _broker_default(row: Setting) -> bool | int | float | str:
    """Return the default in the broker key's own unit. The rows of synonyms have it in the unit of
    the topic setting."""
    factor = _FACTORS.get(row.key, 1)
    if factor != 1 and isinstance(row.default, int) and row.default > 0:
        return row.default // factor
    return row.default


_FACTORS = {
    synonym.key: synonym.factor for _, row in TOPIC_ROWS.values() for synonym in row.synonyms
}


def _entry(
    row: Setting,
    layers: list[Layer],
    value: str | None,
    request: DescribeConfigsRequest,
    *,
    is_read_only: bool = False,
) -> DescribeConfigsResourceResult:
    synonyms = [
        DescribeConfigsSynonym(name=layer.name, value=layer.value, source=layer.source)
        for layer in (layers if request.include_synonyms else [])
    ]
    return DescribeConfigsResourceResult(
        name=row.key,
        value=value,
        read_only=is_read_only,
        config_source=layers[0].source if layers else SettingSource.DEFAULT,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=row.kind,
        documentation=row.why if request.include_documentation else None,
    )
