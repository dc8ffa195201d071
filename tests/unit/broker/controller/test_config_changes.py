"""A change that lowers `min.insync.replicas`, at any level, clears the eligible leader replicas
that are not needed any more (guard 20)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.controller.config_changes import ConfigOperation, alter_fully, alter_incrementally
from broker.controller.outcome import ControllerDecision
from broker.metadata.image import MetadataImage
from broker.metadata.partition_image import PartitionImage
from broker.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE, ConfigRecord
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsRequestResource,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.unit.broker.cluster.kit import broker_config
from tests.unit.broker.controller.kit import ONE, THREE, TWO, after, image_of, one_of, partition

KEY = "min.insync.replicas"
STATIC = broker_config(min_insync_replicas=2)
"""The settings in the controller's file."""

SETS = ((ONE,), (TWO,), (THREE,))
"""The ISR, ELR and last known ELR of a partition below a minimum of two."""

Change = tuple[int, str, ConfigOperation, str | None]


def sets(one: PartitionImage) -> tuple[tuple[int, ...], ...]:
    return one.in_sync_replicas, one.eligible_leader_replicas, one.last_known_elr


def setting(kind: int, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=name, name=KEY, value=value)


def weakened(**settings: str) -> MetadataImage:
    """Return an image with these minima: `logs` for topic `logs`, and `all` for all brokers. One
    replica of its partition is in sync."""
    image = image_of(partition(isr=SETS[0], elr=SETS[1], known=SETS[2]))
    records = [setting(TOPIC_RESOURCE, "logs", settings.get("logs"))]
    if "all" in settings:
        records.append(setting(BROKER_RESOURCE, "", settings["all"]))
    return after(image, records)


def altered(
    image: MetadataImage, *changes: Change, validate_only: bool = False
) -> ControllerDecision[object]:
    resources = [
        AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterableConfig(name=KEY, config_operation=operation, value=value)],
        )
        for kind, name, operation, value in changes
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    config = STATIC.with_dynamic(
        image.settings(BROKER_RESOURCE, ""), image.settings(BROKER_RESOURCE, "1")
    )
    return alter_incrementally(request, image, config)


def put(kind: int, name: str, value: str) -> Change:
    return kind, name, ConfigOperation.SET, value


def unset(kind: int, name: str) -> Change:
    return kind, name, ConfigOperation.DELETE, None


@pytest.mark.parametrize(
    "key",
    [
        "ssl.keystore.location",
        "sasl.jaas.config",
        "listener.name.net.ssl.truststore.password",
        "security.providers",
        "principal.builder.class",
        "listeners",
        "sasl.enabled.mechanisms",
        "listener.security.protocol.map",
    ],
)
@pytest.mark.parametrize("name", ["", "1"])
def test_pitfall_39_clients_set_nothing_that_names_files_classes_or_listeners(
    key: str, name: str
) -> None:
    """CVE-2023-25194: clients must not set such keys. A key that an older version stored can still
    be removed."""
    image = image_of(partition())
    resource = AlterConfigsResource(
        resource_type=BROKER_RESOURCE,
        resource_name=name,
        configs=[AlterableConfig(name=key, config_operation=ConfigOperation.SET, value="x")],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    outcome = alter_incrementally(request, image, STATIC)
    assert outcome.records == []
    assert outcome.reply.responses[0].error_code == ErrorCode.INVALID_REQUEST
    if key == "listeners":
        return
    stored = ConfigRecord(
        resource_type=BROKER_RESOURCE, resource_name=name, name="ssl.protocol", value="x"
    )
    resource.configs = [
        AlterableConfig(name="ssl.protocol", config_operation=ConfigOperation.DELETE)
    ]
    assert alter_incrementally(request, after(image, [stored]), STATIC).records


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"logs": "2"}, [put(TOPIC_RESOURCE, "logs", "1")]),
        ({}, [put(TOPIC_RESOURCE, "logs", "1")]),
        ({"logs": "2", "all": "1"}, [unset(TOPIC_RESOURCE, "logs")]),
        ({}, [put(BROKER_RESOURCE, "", "1")]),
        ({"all": "1", "logs": "2"}, [put(TOPIC_RESOURCE, "logs", "1")]),
        ({}, [put(BROKER_RESOURCE, "1", "1")]),
        ({}, [put(BROKER_RESOURCE, "3", "1")]),
        ({"logs": "2"}, [put(BROKER_RESOURCE, "", "1"), unset(TOPIC_RESOURCE, "logs")]),
    ],
)
def test_a_minimum_that_falls_takes_eligibility_away_in_the_same_batch(
    settings: dict[str, str], changes: list[Change]
) -> None:
    image = weakened(**settings)
    assert sets(one_of(image)) == SETS
    outcome = altered(image, *changes)
    assert sets(one_of(after(image, outcome.records))) == ((ONE,), (), ())
    assert altered(image, *changes, validate_only=True).records == []


@pytest.mark.parametrize(
    ("settings", "changes"),
    [
        ({"logs": "2"}, [put(TOPIC_RESOURCE, "logs", "3")]),
        ({"logs": "3"}, [put(TOPIC_RESOURCE, "logs", "2")]),
        ({"logs": "2"}, [put(BROKER_RESOURCE, "", "1")]),
        ({"all": "3"}, [unset(BROKER_RESOURCE, "")]),
        ({"logs": "2"}, [unset(TOPIC_RESOURCE, "logs")]),
        ({"logs": "2"}, [put(TOPIC_RESOURCE, "logs", "1"), put(TOPIC_RESOURCE, "logs", "2")]),
    ],
)
def test_who_is_eligible_stays_it_while_the_minimum_is_above_what_is_in_sync(
    settings: dict[str, str], changes: list[Change]
) -> None:
    image = weakened(**settings)
    outcome = altered(image, *changes)
    assert sets(one_of(after(image, outcome.records))) == SETS


def test_settings_that_are_altered_as_a_whole_fall_to_their_default() -> None:
    image = weakened(logs="2")
    resource = AlterConfigsRequestResource(
        resource_type=TOPIC_RESOURCE, resource_name="logs", configs=[]
    )
    request = AlterConfigsRequest(resources=[resource])
    outcome = alter_fully(request, image, replace(STATIC, given={}))
    assert sets(one_of(after(image, outcome.records))) == ((ONE,), (), ())
