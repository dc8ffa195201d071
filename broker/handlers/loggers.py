"""The process's loggers as a resource of the configuration requests: type 8, BROKER_LOGGER.

Floor: handlers. The levels live in `logging` and nowhere else: nothing of it is stored, and a
restart begins with INFO for all, as Kafka begins with its file. A logger without a level of its own
goes by that of the nearest one above it (`broker.produce` for `broker.produce.produces`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from broker.controller.config_changes import ConfigOperation
from broker.metadata.configs import Source
from protocol.errors import ApiError, ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)

LOGGER_RESOURCE = 8

ROOT = "root"

LEVELS = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""Kafka's names, loudest last."""


def describe_loggers(resource: DescribeConfigsResource, node_id: int) -> DescribeConfigsResult:
    """Every logger with the level it goes by."""
    result = DescribeConfigsResult(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        _check_name(resource.resource_name, node_id)
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    wanted = resource.configuration_keys or None
    result.configs = [
        DescribeConfigsResourceResult(
            name=name,
            value=_level_name(_logger(name).getEffectiveLevel()),
            config_source=Source.DYNAMIC_BROKER_LOGGER,
        )
        for name in _names()
        if wanted is None or name in wanted
    ]
    return result


def alter_loggers(
    resources: Sequence[AlterConfigsResource], node_id: int, *, validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    """Set levels or take them away; each resource as a whole or not at all."""
    named = Counter(one.resource_name for one in resources)
    responses = []
    for resource in resources:
        response = AlterConfigsResourceResponse(
            error_code=ErrorCode.NONE,
            error_message=None,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
        try:
            _check_name(resource.resource_name, node_id)
            if named[resource.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "the resource is named more than once")
            levels = _checked(resource.configs)
        except ApiError as error:
            response.error_code, response.error_message = error.code, error.message
        else:
            for name, level in [] if validate_only else levels:
                _logger(name).setLevel(level)
        responses.append(response)
    return responses


def _check_name(name: str, node_id: int) -> None:
    if name != str(node_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"this is broker {node_id}; ask broker '{name}' for its loggers itself",
        )


def _checked(changes: Sequence[AlterableConfig]) -> list[tuple[str, int]]:
    """The loggers to be changed and their new levels."""
    known = set(_names())
    levels: dict[str, int] = {}
    for change in changes:
        if change.name in levels:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name} is changed twice")
        if change.config_operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise ApiError(ErrorCode.INVALID_REQUEST, "a level is set or deleted, nothing else")
        if change.name not in known:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"there is no logger '{change.name}'")
        levels[change.name] = _new_level(change)
    return list(levels.items())


def _new_level(change: AlterableConfig) -> int:
    if change.config_operation == ConfigOperation.DELETE:
        if change.name == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, "nothing lies above root: set its level")
        return logging.NOTSET
    if change.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{change.name} has no value")
    if change.value not in LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"{change.name}: found {change.value!r}, expected one of: {', '.join(LEVELS)}",
        )
    return LEVELS[change.value]


def _names() -> list[str]:
    return [ROOT, *sorted(logging.root.manager.loggerDict)]


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _level_name(level: int) -> str:
    """Kafka's name of a level; libraries may have levels between."""
    return next((name for name, least in LEVELS.items() if level >= least), "TRACE")
