"""Decides changes of settings at run time: settings of topics, of one broker, or of all brokers.

This module is pure. The settings of a resource change together or not at all. The stored value is
the client's text, because Kafka returns this text unchanged. With a lower `min.insync.replicas`,
records can be committed without the eligible leader replicas. So the batch that lowers the setting
also removes those replicas.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

from broker.config import (
    BROKER_ROWS,
    TOPIC_ROWS,
    BrokerConfig,
    check_dynamic_settings,
    check_topic_settings,
    foreign_setting,
)
from broker.controller import leadership
from broker.controller.outcome import ControllerDecision
from broker.metadata.configs import effective
from broker.metadata.image import MetadataDelta, MetadataImage, TopicImage
from broker.metadata.names import check_topic_name
from broker.metadata.own_entries import OWN_KEYS
from broker.metadata.records import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    ConfigRecord,
    MetadataRecord,
)
from broker.settings import ConfigType, Fault, Setting, nearest, parse, text
from protocol.errors import ApiError, ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

MIN_ISR = "min.insync.replicas"

SECURITY_KEY = re.compile(r"ssl\.|sasl\.|security\.|listener\.|principal\.|password\.")
"""Kafka's keys that name files, classes and secrets. They are rejected and never stored. Brokers of
Kafka loaded the classes that clients named in such keys (CVE-2023-25194)."""

Resource = TypeVar("Resource", AlterConfigsResource, AlterConfigsRequestResource)


class ConfigOperation(IntEnum):
    """The operation of IncrementalAlterConfigs on one setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigTarget:
    """A resource whose settings can be changed: its settings so far, and the rules for new ones."""

    settings: Mapping[str, str]
    row_of: Callable[[str], Setting]
    """A function that returns the definition of a key.

    It raises ApiError if the key cannot be set for this resource.
    """
    value_of: Callable[[Setting], str]
    """A function that returns a setting's effective value, to which APPEND and SUBTRACT are
    applied."""
    faults_of: Callable[[Mapping[str, str]], list[Fault]]
    fault_code: ErrorCode


def alter_incrementally(
    request: IncrementalAlterConfigsRequest, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[IncrementalAlterConfigsResponse]:
    """Decide IncrementalAlterConfigs. Settings that the request does not name keep their values."""

    def change(resource: AlterConfigsResource, target: ConfigTarget) -> dict[str, str]:
        settings = dict(target.settings)
        for one in resource.configs:
            _apply(one, settings, target)
        return settings

    records, responses = _alter(request.resources, image, config, change)
    return ControllerDecision(
        [] if request.validate_only else records,
        IncrementalAlterConfigsResponse(responses=responses),
    )


def alter_fully(
    request: AlterConfigsRequest, image: MetadataImage, config: BrokerConfig
) -> ControllerDecision[AlterConfigsResponse]:
    """Decide AlterConfigs. Settings that the request does not name return to their defaults."""

    def change(resource: AlterConfigsRequestResource, target: ConfigTarget) -> dict[str, str]:
        settings = {}
        for one in resource.configs:
            row = target.row_of(one.name)
            settings[one.name] = _stated(row, one.value, target)
        return settings

    records, responses = _alter(request.resources, image, config, change)
    return ControllerDecision(
        [] if request.validate_only else records, AlterConfigsResponse(responses=responses)
    )


def _alter(
    resources: Sequence[Resource],
    image: MetadataImage,
    config: BrokerConfig,
    change: Callable[[Resource, ConfigTarget], dict[str, str]],
) -> tuple[list[MetadataRecord], list[AlterConfigsResourceResponse]]:
    records: list[ConfigRecord] = []
    responses = []
    named = Counter((one.resource_type, one.resource_name) for one in resources)
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        response = AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE, error_message=None, resource_type=kind, resource_name=name
        )
        try:
            if named[kind, name] > 1:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST, f"resource '{name}' is in the request more than once"
                )
            keys = Counter(one.name for one in resource.configs)
            if repeated := [key for key, count in keys.items() if count > 1]:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    (
                        f"the setting {repeated[0]} is in the request more than once for one "
                        "resource"
                    ),
                )
            target = _target(kind, name, image, config)
            new = change(resource, target)
            if faults := target.faults_of(new):
                raise ApiError(target.fault_code, _fault_text(faults))
            records.extend(_differences(kind, name, target.settings, new))
        except ApiError as error:
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    return [*records, *_less_eligible(records, image, config)], responses


def _less_eligible(
    records: Sequence[ConfigRecord], image: MetadataImage, config: BrokerConfig
) -> Iterator[MetadataRecord]:
    """Yield the partition changes that must be in the same batch when `min.insync.replicas` of a
    topic falls."""
    if all(record.name != MIN_ISR for record in records):
        return
    after = MetadataDelta(image).replay_all(records).image(image.end_offset)
    default_before, default_after = _least_default(image, config), _least_default(after, config)
    for topic in image.topics.values():
        min_isr = _min_isr(topic, after, default_after)
        if min_isr < _min_isr(topic, image, default_before):
            yield from leadership.lowered_min_isr(image, topic, min_isr)


def _min_isr(topic: TopicImage, image: MetadataImage, default: int) -> int:
    own = image.settings(TOPIC_RESOURCE, topic.name).get(MIN_ISR)
    if own is None:
        return default
    value = parse(TOPIC_ROWS[MIN_ISR][1], own)
    assert isinstance(value, int), "it was checked when it was set"
    return value


def _least_default(image: MetadataImage, config: BrokerConfig) -> int:
    """Return the lowest `min.insync.replicas` that any leader uses for topics without a value of
    their own.

    Each broker uses its run-time setting, else its configuration file. The files of all brokers are
    assumed to be the same.
    """
    for_all = image.settings(BROKER_RESOURCE, "")
    configs = (
        config.with_dynamic(for_all, image.settings(BROKER_RESOURCE, str(node_id)))
        for node_id in image.brokers
    )
    return min((one.log_config().min_insync_replicas for one in configs), default=0)


def _differences(
    kind: int, name: str, old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[ConfigRecord]:
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=new.get(key))


def _fault_text(faults: list[Fault]) -> str:
    return "; ".join(f"{key}: found {found!r}, expected {wanted}" for key, found, wanted in faults)


def _target(kind: int, name: str, image: MetadataImage, config: BrokerConfig) -> ConfigTarget:
    if kind == TOPIC_RESOURCE:
        return _topic_target(name, image, config)
    if kind == BROKER_RESOURCE:
        return _broker_target(name, image, config)
    raise ApiError(
        ErrorCode.INVALID_REQUEST,
        f"found resource type {kind}, expected {TOPIC_RESOURCE} (topic) or "
        f"{BROKER_RESOURCE} (broker)",
    )


def _topic_target(name: str, image: MetadataImage, config: BrokerConfig) -> ConfigTarget:
    if not name:
        # The empty name stands for all brokers. Defaults of topics are settings of all brokers, so
        # there is no resource for the defaults of topics.
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    if check_topic_name(name) not in image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    settings = image.settings(TOPIC_RESOURCE, name)

    def row_of(key: str) -> Setting:
        known = TOPIC_ROWS.get(key)
        if known is None:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"Unknown topic config name: {key}{nearest(key, TOPIC_ROWS)}",
            )
        return known[1]

    def value_of(row: Setting) -> str:
        return effective(row, settings, config)[0]

    return ConfigTarget(settings, row_of, value_of, check_topic_settings, ErrorCode.INVALID_CONFIG)


def _broker_target(name: str, image: MetadataImage, config: BrokerConfig) -> ConfigTarget:
    """Return the target for one broker by its id, or for all brokers if the name is empty.

    As in Kafka (KAFKA-13609), faults are INVALID_REQUEST and not INVALID_CONFIG. Any key is
    accepted, as in Kafka, except those of security. A key that this broker does not know is stored,
    and `node/publisher` logs it.
    """
    if name and name not in {str(node_id) for node_id in image.brokers}:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"broker '{name}' is not registered in this cluster"
        )
    settings = image.settings(BROKER_RESOURCE, name)

    def row_of(key: str) -> Setting:
        if SECURITY_KEY.match(key) and key not in settings:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{key} cannot be changed by clients: the section network of the configuration "
                "file sets listeners, certificates and logins",
            )
        known = BROKER_ROWS.get(key)
        row = known[1] if known is not None else foreign_setting(key)
        if not row.is_dynamic or key in OWN_KEYS:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{key} cannot be changed while the broker runs: "
                "set it in the configuration file and restart the broker",
            )
        return row

    def value_of(row: Setting) -> str:
        if row.key in settings:
            return settings[row.key]
        return text(config.in_force.get(row.key, row.default))

    return ConfigTarget(
        settings, row_of, value_of, check_dynamic_settings, ErrorCode.INVALID_REQUEST
    )


def _stated(row: Setting, value: str | None, target: ConfigTarget) -> str:
    if value is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{row.key} has no value: give it one, or delete the setting",
        )
    if len(value) > row.length_max:
        # Check the length before the value is split, because the client chooses the length.
        raise ApiError(
            target.fault_code,
            f"{row.key} has {len(value)} characters, expected at most {row.length_max}",
        )
    return value


def _apply(change: AlterableConfig, settings: dict[str, str], target: ConfigTarget) -> None:
    operation = change.config_operation
    if operation == ConfigOperation.DELETE:
        # Accept an unknown key too, because tools expect that deleting an unset key succeeds.
        settings.pop(change.name, None)
        return
    row = target.row_of(change.name)
    value = _stated(row, change.value, target)
    if operation == ConfigOperation.SET:
        settings[change.name] = value
        return
    if operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"found operation {operation} for {change.name}, expected 0 (set), 1 (delete), "
            "2 (append) or 3 (subtract)",
        )
    if row.kind is not ConfigType.LIST:
        raise ApiError(
            target.fault_code,
            f"{change.name} is not a list, so you cannot append or subtract: set its whole value",
        )
    # A dictionary keeps the order of the words, and looks a word up quickly in a long list.
    words = dict.fromkeys(word for word in target.value_of(row).split(",") if word)
    for word in (part.strip() for part in value.split(",")):
        if operation == ConfigOperation.SUBTRACT:
            words.pop(word, None)
        else:
            words[word] = None
    settings[change.name] = ",".join(words)
