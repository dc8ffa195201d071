"""Handles configuration requests for the process's loggers: resource type 8, BROKER_LOGGER.

The levels exist only in `logging` and are not stored. After a restart all levels are INFO, as Kafka
starts with the levels of its file. A logger without its own level uses the level of the nearest
parent (`broker.produce` for `broker.produce.produces`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from broker.controller.config_changes import ConfigOperation
from broker.metadata.configs import SettingSource
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
"""The levels of `logging` by Kafka's names, the most verbose level last."""


def describe_loggers(resource: DescribeConfigsResource, node_id: int) -> DescribeConfigsResult:
    """Return the requested loggers, or all loggers, with their effective levels."""
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
            config_source=SettingSource.DYNAMIC_BROKER_LOGGER,
        )
        for name in _names()
        if wanted is None or name in wanted
    ]
    return result


def alter_loggers(
    resources: Sequence[AlterConfigsResource], node_id: int, *, validate_only: bool
) -> list[AlterConfigsResourceResponse]:
    """Set or remove the levels of loggers.

    The changes of one resource are made together or not at all.
    """
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
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"broker '{resource.resource_name}' is in the request more than once",
                )
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
            f"this is broker {node_id}: send requests about the loggers of broker '{name}' to it",
        )


def _checked(changes: Sequence[AlterableConfig]) -> list[tuple[str, int]]:
    """Return the loggers to change, with their new levels.

    Raises ApiError for an invalid change.
    """
    known = set(_names())
    levels: dict[str, int] = {}
    for change in changes:
        if change.name in levels:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"logger {change.name} is in the request more than once"
            )
        if change.config_operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"found operation {change.config_operation} for logger {change.name}, expected 0 "
                "(set) or 1 (delete)",
            )
        if change.name not in known:
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"this broker has no logger named '{change.name}'"
            )
        levels[change.name] = _new_level(change)
    return list(levels.items())


def _new_level(change: AlterableConfig) -> int:
    if change.config_operation == ConfigOperation.DELETE:
        if change.name == ROOT:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "the level of root cannot be deleted, because root has no parent logger: set a "
                "level",
            )
        return logging.NOTSET
    if change.value is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the request has no level for logger {change.name}, expected one of: "
            f"{', '.join(LEVELS)}",
        )
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
    """Return Kafka's name of a level.

    The level of a library can be between two of Kafka's levels.
    """
    return next((name for name, least in LEVELS.items() if level >= least), "TRACE")
