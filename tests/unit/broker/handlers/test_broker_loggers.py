"""Resource type 8: the levels of the broker's loggers, described and changed at run time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from broker.controller.config_changes import ConfigOperation
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.unit.broker.rig import Rig

TOPIC, BROKER, LOGGER = 2, 4, 8
SELF = "1"
PRODUCING = "broker.fetch.reading"
DYNAMIC_BROKER_LOGGER = 6


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Yield a broker. Afterwards restore the levels, because loggers belong to the whole
    process."""
    names = ("root", *logging.root.manager.loggerDict)
    levels = {name: logging.getLogger(name).level for name in names if name != "root"}
    root_level = logging.root.level
    logging.root.setLevel(logging.INFO)
    rig = Rig()
    yield rig
    logging.root.setLevel(root_level)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def describe(rig: Rig, name: str = SELF, keys: list[str] | None = None) -> Any:
    resource = DescribeConfigsResource(
        resource_type=LOGGER, resource_name=name, configuration_keys=keys
    )
    return rig.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0]


def levels(rig: Rig) -> dict[str, str]:
    result = describe(rig)
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {one.name: one.value for one in result.configs}


def resource_of(
    *changes: tuple[str, int, str | None], kind: int = LOGGER, name: str = SELF
) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


def alter(rig: Rig, *changes: tuple[str, int, str | None], name: str = SELF) -> ErrorCode:
    request = IncrementalAlterConfigsRequest(resources=[resource_of(*changes, name=name)])
    (answer,) = rig.ask(request, 1).responses
    assert (answer.resource_type, answer.resource_name) == (LOGGER, name)
    assert (answer.error_message is None) == (answer.error_code == ErrorCode.NONE)
    return ErrorCode(answer.error_code)


def test_every_logger_is_described_with_the_level_it_goes_by(rig: Rig) -> None:
    found = levels(rig)
    assert found["root"] == "INFO"
    assert found[PRODUCING] == "INFO"
    assert "broker" in found, "what several loggers have in common may be set for all of them"
    result = describe(rig, keys=[PRODUCING, "none"])
    (entry,) = result.configs
    assert (entry.name, entry.config_source) == (PRODUCING, DYNAMIC_BROKER_LOGGER)
    assert (entry.read_only, entry.is_sensitive, entry.synonyms) == (False, False, [])


@pytest.mark.parametrize(
    ("name", "level"),
    [("FATAL", 50), ("ERROR", 40), ("WARN", 30), ("INFO", 20), ("DEBUG", 10), ("TRACE", 5)],
)
def test_a_level_is_set_and_taken_away(rig: Rig, name: str, level: int) -> None:
    assert alter(rig, (PRODUCING, ConfigOperation.SET, name)) is ErrorCode.NONE
    assert levels(rig)[PRODUCING] == name
    assert logging.getLogger(PRODUCING).level == level
    assert alter(rig, (PRODUCING, ConfigOperation.DELETE, None)) is ErrorCode.NONE
    assert levels(rig)[PRODUCING] == "INFO"


def test_what_lies_below_a_logger_follows_it(rig: Rig) -> None:
    assert alter(rig, ("broker.fetch", ConfigOperation.SET, "ERROR")) is ErrorCode.NONE
    assert alter(rig, ("root", ConfigOperation.SET, "WARN")) is ErrorCode.NONE
    found = levels(rig)
    assert (found["root"], found["asyncio"], found[PRODUCING]) == ("WARN", "WARN", "ERROR")
    assert not logging.getLogger(PRODUCING).isEnabledFor(logging.WARNING)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("no.such.logger", ConfigOperation.SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (("no.such.logger", ConfigOperation.DELETE, None), ErrorCode.INVALID_CONFIG),
        ((PRODUCING, ConfigOperation.SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ((PRODUCING, ConfigOperation.SET, "warn"), ErrorCode.INVALID_CONFIG),
        ((PRODUCING, ConfigOperation.SET, None), ErrorCode.INVALID_REQUEST),
        (("root", ConfigOperation.DELETE, None), ErrorCode.INVALID_REQUEST),
        ((PRODUCING, ConfigOperation.APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ((PRODUCING, ConfigOperation.SUBTRACT, "INFO"), ErrorCode.INVALID_REQUEST),
        ((PRODUCING, 7, "INFO"), ErrorCode.INVALID_REQUEST),
        (("broker", ConfigOperation.SET, "INFO"), ErrorCode.INVALID_REQUEST),  # named twice
    ],
)
def test_a_wrong_change_changes_nothing(
    rig: Rig, change: tuple[str, int, str | None], code: ErrorCode
) -> None:
    assert alter(rig, ("broker", ConfigOperation.SET, "DEBUG"), change) is code
    assert levels(rig)["broker"] == "INFO"
    assert "no.such.logger" not in levels(rig)


@pytest.mark.parametrize("name", ["2", "", "one"])
def test_the_loggers_are_those_of_this_broker(rig: Rig, name: str) -> None:
    assert describe(rig, name).error_code == ErrorCode.INVALID_REQUEST
    assert (
        alter(rig, (PRODUCING, ConfigOperation.SET, "DEBUG"), name=name)
        is ErrorCode.INVALID_REQUEST
    )


def test_validate_only_says_the_same_and_changes_nothing(rig: Rig) -> None:
    for level, code in (("DEBUG", ErrorCode.NONE), ("LOUD", ErrorCode.INVALID_CONFIG)):
        resource = resource_of((PRODUCING, ConfigOperation.SET, level))
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        assert rig.ask(request, 1).responses[0].error_code == code
    assert levels(rig)[PRODUCING] == "INFO"


def test_loggers_and_settings_in_one_request_are_answered_in_its_order(rig: Rig) -> None:
    rig.create("logs")
    request = IncrementalAlterConfigsRequest(
        resources=[
            resource_of(("retention.ms", ConfigOperation.SET, "5"), kind=TOPIC, name="logs"),
            resource_of((PRODUCING, ConfigOperation.SET, "ERROR")),
            resource_of(("num.partitions", ConfigOperation.SET, "no"), kind=BROKER),
        ]
    )
    answers = rig.ask(request, 1).responses
    assert [(one.resource_type, one.error_code) for one in answers] == [
        (TOPIC, ErrorCode.NONE),
        (LOGGER, ErrorCode.NONE),
        (BROKER, ErrorCode.INVALID_REQUEST),
    ]
    assert levels(rig)[PRODUCING] == "ERROR"
    assert rig.broker.parts.replicas.find("logs", 0).log.config.retention_ms == 5


def test_a_logger_resource_named_twice_is_refused_each_time(rig: Rig) -> None:
    resource = resource_of((PRODUCING, ConfigOperation.SET, "ERROR"))
    answers = rig.ask(IncrementalAlterConfigsRequest(resources=[resource, resource]), 1).responses
    assert [one.error_code for one in answers] == [ErrorCode.INVALID_REQUEST] * 2
    assert levels(rig)[PRODUCING] == "INFO"


def test_the_older_request_does_not_know_loggers(rig: Rig) -> None:
    """As in Kafka. The older request would reset each logger that it does not name to a default,
    but loggers have none."""
    resource = AlterConfigsRequestResource(resource_type=LOGGER, resource_name=SELF)
    answer = rig.ask(AlterConfigsRequest(resources=[resource]), 2).responses[0]
    assert answer.error_code == ErrorCode.INVALID_REQUEST
