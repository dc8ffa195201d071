"""Settings of topics and brokers: what holds, where it comes from, and how it is changed.

Floor: controller. Pure. A topic's value is its own, else the node's under one of its synonyms, else
the default; DescribeConfigs shows all of them, strongest first. What is stored is the text the
client sent, for it is what Kafka gives back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from broker.config import BROKER_ROWS, TOPIC_ROWS, BrokerConfig, check_topic_settings
from broker.controller.image import MetadataImage
from broker.controller.outcome import Outcome
from broker.controller.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
)
from broker.settings import Kind, Setting, scaled, text
from protocol.errors import ApiError, ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.topics import CreatableTopicConfigs


class Source(IntEnum):
    """Where a value comes from, by the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Operation(IntEnum):
    """What IncrementalAlterConfigs does with one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Layer:
    """One place where a setting has a value; the first of its layers holds."""

    name: str
    value: str
    source: Source


def topic_layers(row: Setting, overrides: Mapping[str, str], config: BrokerConfig) -> list[Layer]:
    """Every value there is for one topic setting, strongest first."""
    layers = []
    if row.key in overrides:
        layers.append(Layer(row.key, overrides[row.key], Source.DYNAMIC_TOPIC))
    for synonym in row.synonyms:
        if synonym.key in config.given:
            value = text(config.given[synonym.key])
            layers.append(Layer(synonym.key, value, Source.STATIC_BROKER))
    layers.append(_default_layer(row))
    return layers


def _default_layer(row: Setting) -> Layer:
    """The default under the name of the broker key that carries it: the coarsest synonym."""
    if not row.synonyms:
        return Layer(row.key, text(row.default), Source.DEFAULT)
    synonym = row.synonyms[-1]
    default = row.default
    if synonym.factor != 1 and isinstance(default, int) and default > 0:
        default = default // synonym.factor
    return Layer(synonym.key, text(default), Source.DEFAULT)


def topic_value(row: Setting, layers: list[Layer], config: BrokerConfig) -> str:
    """The value that holds, in the topic setting's own unit."""
    strongest = layers[0]
    if strongest.source is Source.DYNAMIC_TOPIC:
        return strongest.value
    if strongest.source is Source.DEFAULT:
        return text(row.default)
    synonym = next(one for one in row.synonyms if one.key == strongest.name)
    return text(scaled(config.given[synonym.key], synonym))


def created_configs(
    settings: Mapping[str, str], config: BrokerConfig
) -> list[CreatableTopicConfigs]:
    """All settings of a new topic, for the answer to CreateTopics."""
    entries = []
    for _, row in TOPIC_ROWS.values():
        layers = topic_layers(row, settings, config)
        entries.append(
            CreatableTopicConfigs(
                name=row.key,
                value=topic_value(row, layers, config),
                config_source=layers[0].source,
            )
        )
    return entries


def describe_configs(
    request: DescribeConfigsRequest, image: MetadataImage, config: BrokerConfig
) -> DescribeConfigsResponse:
    """DescribeConfigs for topics and for this broker; a resource named twice is described once."""
    asked = {(one.resource_type, one.resource_name): one for one in request.resources}
    return DescribeConfigsResponse(
        results=[_describe(resource, request, image, config) for resource in asked.values()]
    )


def _describe(
    resource: DescribeConfigsResource,
    request: DescribeConfigsRequest,
    image: MetadataImage,
    config: BrokerConfig,
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
            entries = _topic_entries(resource.resource_name, image, config, wanted)
        elif resource.resource_type == BROKER_RESOURCE:
            entries = _broker_entries(resource.resource_name, config, wanted)
        else:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"resource type {resource.resource_type} has no settings here",
            )
        result.configs = [
            _entry(row, layers, value, is_read_only, request)
            for row, layers, value, is_read_only in entries
        ]
    except ApiError as error:
        result.error_code, result.error_message = error.code, str(error)
    return result


_Entry = tuple[Setting, list[Layer], str, bool]


def _topic_entries(
    name: str, image: MetadataImage, config: BrokerConfig, wanted: Collection[str] | None
) -> Iterator[_Entry]:
    if name not in image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
    overrides = image.settings(TOPIC_RESOURCE, name)
    rows = [row for key, (_, row) in TOPIC_ROWS.items() if wanted is None or key in wanted]
    layers = [topic_layers(row, overrides, config) for row in rows]
    return (
        (row, one, topic_value(row, one, config), False)
        for row, one in zip(rows, layers, strict=True)
    )


def _broker_entries(
    name: str, config: BrokerConfig, wanted: Collection[str] | None
) -> Iterator[_Entry]:
    # An empty name asks for the settings of all brokers made at run time: there are none.
    if name and name != str(config.node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"this is broker {config.node_id}; ask broker {name} itself"
        )
    rows = [row for key, (_, row) in BROKER_ROWS.items() if wanted is None or key in wanted]
    return (
        (row, layers, layers[0].value, True)
        for row in (rows if name else [])
        for layers in [_broker_layers(row, config)]
    )


def _broker_layers(row: Setting, config: BrokerConfig) -> list[Layer]:
    layers = []
    if row.key in config.given:
        layers.append(Layer(row.key, text(config.given[row.key]), Source.STATIC_BROKER))
    layers.append(Layer(row.key, text(_broker_default(row)), Source.DEFAULT))
    return layers


def _broker_default(row: Setting) -> bool | int | float | str:
    """The default in the broker key's own unit: rows of synonyms carry the topic's."""
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
    value: str,
    is_read_only: bool,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResourceResult:
    synonyms = [
        DescribeConfigsSynonym(name=layer.name, value=layer.value, source=layer.source)
        for layer in (layers if request.include_synonyms else [])
    ]
    return DescribeConfigsResourceResult(
        name=row.key,
        value=value,
        read_only=is_read_only,
        config_source=layers[0].source,
        is_sensitive=False,
        synonyms=synonyms,
        config_type=row.kind,
        documentation=row.why if request.include_documentation else None,
    )


def alter_configs(
    request: IncrementalAlterConfigsRequest, image: MetadataImage, config: BrokerConfig
) -> Outcome[IncrementalAlterConfigsResponse]:
    """IncrementalAlterConfigs for topics; a resource changes as a whole or not at all."""
    records: list[MetadataRecord] = []
    responses = []
    named = Counter((one.resource_type, one.resource_name) for one in request.resources)
    for resource in request.resources:
        response = AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            if named[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
            changes = _topic_changes(resource, image, config)
            if not request.validate_only:
                records.extend(changes)
        except ApiError as error:
            response.error_code, response.error_message = error.code, str(error)
        responses.append(response)
    return Outcome(records, IncrementalAlterConfigsResponse(responses=responses))


def _topic_changes(
    resource: AlterConfigsResource, image: MetadataImage, config: BrokerConfig
) -> list[ConfigRecord]:
    if resource.resource_type == BROKER_RESOURCE:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "a broker's settings stand in its configuration file and change with a restart",
        )
    if resource.resource_type != TOPIC_RESOURCE:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"resource type {resource.resource_type} has no settings here",
        )
    name = resource.resource_name
    if name not in image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
    old = image.settings(TOPIC_RESOURCE, name)
    new = dict(old)
    seen: set[str] = set()
    for change in resource.configs:
        if change.name in seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name} is changed twice")
        seen.add(change.name)
        _apply(change, new, config)
    faults = check_topic_settings(new)
    if faults:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            "; ".join(
                f"{key}: found {found!r}, expected {wanted}" for key, found, wanted in faults
            ),
        )
    return [
        ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=key, value=new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]


def _apply(change: AlterableConfig, settings: dict[str, str], config: BrokerConfig) -> None:
    known = TOPIC_ROWS.get(change.name)
    if known is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"there is no topic setting '{change.name}'")
    row = known[1]
    if change.config_operation == Operation.DELETE:
        settings.pop(change.name, None)
        return
    if change.value is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{change.name} has no value")
    if change.config_operation == Operation.SET:
        settings[change.name] = change.value
        return
    if change.config_operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"operation {change.config_operation} is not known"
        )
    if row.kind is not Kind.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{change.name} is no list to append to")
    layers = topic_layers(row, settings, config)
    words = [word for word in topic_value(row, layers, config).split(",") if word]
    for word in (part.strip() for part in change.value.split(",")):
        if change.config_operation == Operation.SUBTRACT:
            words = [one for one in words if one != word]
        elif word not in words:
            words.append(word)
    settings[change.name] = ",".join(words)
