"""Settings: their values, their sources, and their changes."""

from dataclasses import replace
from typing import Any

import pytest

from broker.config import TOPIC_ROWS, BrokerConfig, Listener
from broker.controller.config_changes import ConfigOperation
from broker.metadata import configs
from broker.metadata.configs import SettingSource, describe_configs
from broker.settings import ConfigType
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.unit.broker.cluster.kit import Cluster

TOPIC, BROKER = 2, 4


def describe(
    cluster: Cluster,
    name: str = "logs",
    kind: int = TOPIC,
    keys: list[str] | None = None,
    **options: bool,
) -> Any:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(resources=[resource], **options)
    return describe_configs(request, cluster.image, cluster.config).results[0]


def entries(result: Any) -> dict[str, Any]:
    assert result.error_code == ErrorCode.NONE
    return {one.name: one for one in result.configs}


def alter(
    cluster: Cluster,
    *changes: tuple[str, ConfigOperation, str | None],
    name: str = "logs",
    kind: int = TOPIC,
    validate_only: bool = False,
) -> ErrorCode:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    return ErrorCode(cluster.submit(request).responses[0].error_code)


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(log_retention_hours=24)
    cluster.create("logs", segment_ms="604800000")
    return cluster


def test_all_settings_are_described_where_none_is_named(cluster: Cluster) -> None:
    """Null and the empty list mean the same, because some clients send null and others an empty
    list."""
    everything = entries(describe(cluster, keys=None))
    assert len(everything) > 20
    assert entries(describe(cluster, keys=[])).keys() == everything.keys()
    assert entries(describe(cluster, keys=["retention.ms"])).keys() == {"retention.ms"}


def test_pitfall_32_all_settings_come_with_source_and_synonyms(cluster: Cluster) -> None:
    found = entries(describe(cluster, include_synonyms=True, include_documentation=True))
    assert len(found) >= 20
    retention = found["retention.ms"]
    assert (retention.value, retention.config_source) == ("86400000", 4)
    assert [(one.name, one.value, one.source) for one in retention.synonyms] == [
        ("log.retention.hours", "24", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert all(one.synonyms and one.documentation for one in found.values())
    assert all(one.config_type in range(1, 10) for one in found.values())


def test_pitfall_32_a_value_set_to_its_default_stays_the_topics_own(cluster: Cluster) -> None:
    segment = entries(describe(cluster, include_synonyms=True))["segment.ms"]
    assert segment.config_source == 1
    assert [one.source for one in segment.synonyms] == [1, 5]


def test_pitfall_32_no_names_are_invented(cluster: Cluster) -> None:
    assert "partition_count" not in entries(describe(cluster))
    assert list(entries(describe(cluster, keys=["retention.ms", "partition_count"]))) == [
        "retention.ms"
    ]


def test_the_broker_describes_itself_and_no_other(cluster: Cluster) -> None:
    found = entries(describe(cluster, name="1", kind=BROKER))
    hours = found["log.retention.hours"]
    assert (hours.value, hours.config_source, hours.read_only) == ("24", 4, True)
    assert not found["log.retention.ms"].read_only
    assert found["log.roll.hours"].value == "168"
    assert entries(describe(cluster, name="", kind=BROKER)) == {}
    assert describe(cluster, name="2", kind=BROKER).error_code == ErrorCode.INVALID_REQUEST


def test_the_broker_says_who_and_where_it_is(cluster: Cluster) -> None:
    """Tools read these keys, but no client can set them."""
    one, other = (
        Listener(host=host, port=port, advertised_host=name, advertised_port=port)
        for host, port, name in (("0.0.0.0", 9092, "broker-1"), ("::1", 9192, "::1"))
    )
    cluster.config = replace(
        cluster.config, node_id=7, log_dir="/data/b7", listeners={"HOST": one, "MILL": other}
    )
    result = describe(cluster, name="7", kind=BROKER, include_synonyms=True)
    found = {
        key: (entry.value, entry.config_source, entry.config_type)
        for key, entry in entries(result).items()
    }
    assert found.items() >= {
        "listeners": (
            "HOST://0.0.0.0:9092,MILL://[::1]:9192", SettingSource.STATIC_BROKER, ConfigType.LIST,
        ),
        "advertised.listeners": (
            "HOST://broker-1:9092,MILL://[::1]:9192", SettingSource.STATIC_BROKER, ConfigType.LIST,
        ),
        "log.dirs": ("/data/b7", SettingSource.STATIC_BROKER, ConfigType.LIST),
        "node.id": ("7", SettingSource.STATIC_BROKER, ConfigType.INT),
        "broker.id": ("7", SettingSource.STATIC_BROKER, ConfigType.INT),
        "process.roles": ("broker,controller", SettingSource.STATIC_BROKER, ConfigType.LIST),
        "broker.rack": (None, SettingSource.DEFAULT, ConfigType.STRING),
    }.items()  # fmt: skip
    assert all(entries(result)[key].read_only for key in ("listeners", "broker.rack"))
    cluster.config = replace(cluster.config, rack="hall-1")
    assert entries(describe(cluster, name="7", kind=BROKER))["broker.rack"].value == "hall-1"
    asked = describe(cluster, name="7", kind=BROKER, keys=["node.id"])
    assert list(entries(asked)) == ["node.id"]
    code = alter(cluster, ("node.id", ConfigOperation.SET, "8"), name="1", kind=BROKER)
    assert code is ErrorCode.INVALID_REQUEST


def test_blanks_in_a_value_are_kept_and_not_shown(cluster: Cluster) -> None:
    spaced = ("cleanup.policy", ConfigOperation.SET, " compact , delete ")
    assert alter(cluster, spaced, ("retention.ms", ConfigOperation.SET, " 5 ")) is ErrorCode.NONE
    found = entries(describe(cluster, include_synonyms=True))
    policy = found["cleanup.policy"]
    assert (policy.value, policy.synonyms[0].value) == ("compact,delete", "compact,delete")
    assert found["retention.ms"].value == "5"
    assert alter(cluster, ("cleanup.policy", ConfigOperation.SUBTRACT, "compact")) is ErrorCode.NONE
    assert entries(describe(cluster))["cleanup.policy"].value == "delete"


def test_topics_of_one_request_share_what_they_inherit_and_keep_what_is_their_own(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"t{number}" for number in range(50)]
    for number, name in enumerate(names):
        cluster.create(name, retention_ms=str(number))
    looks = 0
    node_values = configs._node_values

    def count(config: BrokerConfig) -> Any:
        nonlocal looks
        looks += 1
        return node_values(config)

    monkeypatch.setattr(configs, "_node_values", count)
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=TOPIC, resource_name=name, configuration_keys=None
            )
            for name in names
        ],
        include_synonyms=True,
    )
    results = describe_configs(request, cluster.image, cluster.config).results
    # However many topics are described, each setting reads the node's values twice: for its layers
    # and for its value.
    assert looks <= 2 * len(TOPIC_ROWS)
    for number, result in enumerate(results):
        found = entries(result)
        assert (found["retention.ms"].value, found["retention.ms"].config_source) == (
            str(number),
            1,
        )
        assert [one.source for one in found["retention.ms"].synonyms] == [1, 4, 5]
        assert (found["segment.ms"].value, found["segment.ms"].config_source) == ("604800000", 5)


def test_an_unknown_topic_has_no_settings(cluster: Cluster) -> None:
    assert describe(cluster, name="none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    code = alter(cluster, ("retention.ms", ConfigOperation.SET, "1"), name="none")
    assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_name_no_topic_can_have_is_told_from_one_that_none_has(
    cluster: Cluster, name: str, code: ErrorCode
) -> None:
    assert describe(cluster, name=name).error_code == code


@pytest.mark.parametrize(
    ("name", "code", "text"),
    [
        ("", ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, "a topic's name has only ASCII letters"),
        ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'none' does not exist."),
    ],
)
def test_settings_of_no_topic_cannot_be_changed(
    cluster: Cluster, name: str, code: ErrorCode, text: str
) -> None:
    change = AlterableConfig(name="retention.ms", config_operation=ConfigOperation.SET, value="5")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[change])
    fully = AlterConfigsRequestResource(
        resource_type=TOPIC,
        resource_name=name,
        configs=[AlterConfigsRequestConfig(name="retention.ms", value="5")],
    )
    for request in (
        IncrementalAlterConfigsRequest(resources=[resource]),
        AlterConfigsRequest(resources=[fully]),
    ):
        (refused,) = cluster.submit(request).responses
        assert ErrorCode(refused.error_code) is code
        assert refused.error_message.startswith(text)


def test_an_unknown_setting_is_refused_in_kafkas_words(cluster: Cluster) -> None:
    change = AlterableConfig(name="retention.mss", config_operation=ConfigOperation.SET, value="5")
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="logs", configs=[change])
    (refused,) = cluster.submit(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert ErrorCode(refused.error_code) is ErrorCode.INVALID_CONFIG
    expected = "Unknown topic config name: retention.mss; did you mean retention.ms?"
    assert refused.error_message == expected


def test_settings_are_set_and_given_back(cluster: Cluster) -> None:
    assert alter(cluster, ("retention.ms", ConfigOperation.SET, "77")) is ErrorCode.NONE
    assert entries(describe(cluster))["retention.ms"].value == "77"
    assert alter(cluster, ("retention.ms", ConfigOperation.DELETE, None)) is ErrorCode.NONE
    assert entries(describe(cluster))["retention.ms"].value == "86400000"


def test_pitfall_13_append_and_subtract_start_from_the_effective_default(cluster: Cluster) -> None:
    assert alter(cluster, ("cleanup.policy", ConfigOperation.APPEND, "compact")) is ErrorCode.NONE
    assert entries(describe(cluster))["cleanup.policy"].value == "delete,compact"
    assert alter(cluster, ("cleanup.policy", ConfigOperation.APPEND, "compact")) is ErrorCode.NONE
    assert entries(describe(cluster))["cleanup.policy"].value == "delete,compact"
    assert alter(cluster, ("cleanup.policy", ConfigOperation.SUBTRACT, "delete")) is ErrorCode.NONE
    assert entries(describe(cluster))["cleanup.policy"].value == "compact"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("nonsense", ConfigOperation.SET, "1"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", ConfigOperation.SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("retention.ms", ConfigOperation.SET, None), ErrorCode.INVALID_REQUEST),
        (("retention.ms", ConfigOperation.APPEND, "1"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", ConfigOperation.SUBTRACT, "delete"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", 7, "delete"), ErrorCode.INVALID_REQUEST),
        (("retention.ms", ConfigOperation.SET, " " * 1_000 + "5"), ErrorCode.INVALID_CONFIG),
        (("cleanup.policy", ConfigOperation.APPEND, "delete," * 150), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_wrong_change_changes_nothing(
    cluster: Cluster, change: tuple[str, ConfigOperation, str | None], code: ErrorCode
) -> None:
    before = cluster.image.settings(TOPIC, "logs")
    assert alter(cluster, ("delete.retention.ms", ConfigOperation.SET, "5"), change) is code
    assert cluster.image.settings(TOPIC, "logs") == before


def test_the_same_key_or_resource_twice_is_refused(cluster: Cluster) -> None:
    twice = ("retention.ms", ConfigOperation.SET, "1")
    assert alter(cluster, twice, twice) is ErrorCode.INVALID_REQUEST
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="logs")
    reply = cluster.submit(IncrementalAlterConfigsRequest(resources=[resource, resource]))
    assert {one.error_code for one in reply.responses} == {ErrorCode.INVALID_REQUEST}


def test_validate_only_changes_nothing(cluster: Cluster) -> None:
    change = ("retention.ms", ConfigOperation.SET, "1")
    assert alter(cluster, change, validate_only=True) is ErrorCode.NONE
    assert "retention.ms" not in cluster.image.settings(TOPIC, "logs")
