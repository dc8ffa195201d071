"""Settings of brokers that change at run time: for one broker, for all, stored, and applied."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from broker.config import BROKER_ROWS, FOREIGN_KEYS_MAX, TOPIC_ROWS
from broker.controller.config_changes import ConfigOperation
from broker.settings import ConfigType, parse
from protocol.errors import ErrorCode
from protocol.messages.cluster import FindCoordinatorRequest
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
from tests.unit.broker.rig import FakeSession, Rig

TOPIC, BROKER, LOGGER, CLIENT_METRICS = 2, 4, 8, 16
ALL = ""
SELF = "1"


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig(num_partitions=3)
    yield rig


def alter(
    rig: Rig, name: str, *changes: tuple[str, int, str | None], kind: int = BROKER, **options: bool
) -> Any:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], **options)
    return rig.ask(request, 1).responses[0]


def put(rig: Rig, name: str, key: str, value: str, kind: int = BROKER) -> None:
    answer = alter(rig, name, (key, ConfigOperation.SET, value), kind=kind)
    assert answer.error_code == ErrorCode.NONE, answer.error_message


def described(rig: Rig, name: str, kind: int = BROKER, version: int = 4) -> dict[str, Any]:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=version >= 3
    )
    result = rig.ask(request, version).results[0]
    assert result.error_code == ErrorCode.NONE, result.error_message
    return {one.name: one for one in result.configs}


def test_a_nodes_own_value_lies_above_that_of_all_above_the_file_above_the_default(
    rig: Rig,
) -> None:
    put(rig, ALL, "num.partitions", "4")
    put(rig, SELF, "num.partitions", "5")
    found = described(rig, SELF)["num.partitions"]
    assert (found.value, found.config_source, found.read_only) == ("5", 2, False)
    assert [(one.value, one.source) for one in found.synonyms] == [
        ("5", 2),
        ("4", 3),
        ("3", 4),
        ("1", 5),
    ]
    assert alter(rig, SELF, ("num.partitions", ConfigOperation.DELETE, None)).error_code == 0
    assert described(rig, SELF)["num.partitions"].config_source == 3
    assert alter(rig, ALL, ("num.partitions", ConfigOperation.DELETE, None)).error_code == 0
    assert described(rig, SELF)["num.partitions"].value == "3"


def test_the_empty_name_describes_only_what_is_set_for_all(rig: Rig) -> None:
    assert described(rig, ALL) == {}
    put(rig, ALL, "fetch.max.bytes", "2048")
    put(rig, SELF, "max.connections", "7")
    found = described(rig, ALL)
    assert list(found) == ["fetch.max.bytes"]
    assert (found["fetch.max.bytes"].value, found["fetch.max.bytes"].config_source) == ("2048", 3)


def test_a_change_takes_effect_on_the_running_broker(rig: Rig) -> None:
    rig.create("old")
    parts = rig.broker.parts
    put(rig, ALL, "message.max.bytes", "4321")
    put(rig, SELF, "log.retention.ms", "99")
    put(rig, SELF, "fetch.max.bytes", "5000")
    put(rig, SELF, "max.connections", "8")
    assert parts.replicas.find("old", 0).log.config.max_message_bytes == 4321
    assert parts.replicas.find("old", 0).log.config.retention_ms == 99
    assert rig.broker.settings.config.fetch_max_bytes == 5000
    rig.create("new")
    assert parts.replicas.find("new", 0).log.config.retention_ms == 99
    put(rig, "new", "max.message.bytes", "77", kind=TOPIC)
    put(rig, ALL, "message.max.bytes", "4000")
    assert parts.replicas.find("new", 0).log.config.max_message_bytes == 77
    assert parts.replicas.find("old", 0).log.config.max_message_bytes == 4000


def test_a_topic_shows_where_on_the_node_its_value_comes_from(rig: Rig) -> None:
    rig.create("logs")
    put(rig, ALL, "log.retention.ms", "1000")
    found = described(rig, "logs", TOPIC)["retention.ms"]
    assert (found.value, found.config_source) == ("1000", 3)
    assert [(one.name, one.source) for one in found.synonyms] == [
        ("log.retention.ms", 3),
        ("log.retention.hours", 5),
    ]


def test_the_brokers_own_topics_keep_the_codec_of_their_writer(rig: Rig) -> None:
    """The broker never decompresses the batches of these topics, so they must not name another
    codec."""
    put(rig, ALL, "compression.type", "zstd")
    rig.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
    found = described(rig, "__consumer_offsets", TOPIC)["compression.type"]
    assert (found.value, found.config_source) == ("producer", 1)


def test_the_number_of_partitions_of_a_topic_that_asks_for_none_follows(rig: Rig) -> None:
    put(rig, SELF, "num.partitions", "2")
    rig.create("two", partitions=-1)
    assert len(rig.broker.parts.metadata.image.topics["two"].partitions) == 2


def test_changes_survive_a_restart(rig: Rig) -> None:
    put(rig, SELF, "log.segment.bytes", "5555")
    put(rig, ALL, "fetch.max.bytes", "6000")
    rig.create("logs")
    rig.power_cut(random.Random(1))
    parts = rig.broker.parts
    assert rig.broker.settings.config.fetch_max_bytes == 6000
    assert parts.replicas.find("logs", 0).log.config.segment_bytes == 5555
    assert described(rig, SELF)["log.segment.bytes"].config_source == 2


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("log.retention.hours", "1", "cannot be changed while the broker runs"),
        ("socket.request.max.bytes", "5000", "cannot be changed while the broker runs"),
        ("num.partitions", "0", "from 1 to 10000"),
        ("node.id", "4", "cannot be changed while the broker runs"),
        ("", "4", "at most 249 characters"),
        ("x" * 250, "4", "at most 249 characters"),
        ("auto.create.topics.enable", "perhaps", "true or false"),
    ],
)
def test_what_cannot_be_changed_is_refused_with_the_reason(
    rig: Rig, key: str, value: str, text: str
) -> None:
    for name in (SELF, ALL):
        answer = alter(rig, name, (key, ConfigOperation.SET, value))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert text in answer.error_message
    assert rig.broker.settings.config.dynamic == {}


@pytest.mark.parametrize("name", [SELF, ALL])
def test_a_key_that_only_somebody_else_knows_is_kept_and_shown_and_said_to_be_without_effect(
    rig: Rig, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("background.threads", "num.partitons"):
        put(rig, name, key, "4")
    put(rig, name, "num.partitions", "5")
    said = [
        one
        for one in caplog.records
        if one.getMessage() == "a setting has no effect, because the broker does not know it"
    ]
    assert [vars(one)["mill_fields"]["key"] for one in said] == [
        "background.threads",
        "num.partitons",
    ]
    assert "did you mean num.partitions?" in vars(said[1])["mill_fields"]["meant"]
    assert rig.broker.settings.config.num_partitions == 5
    rig.power_cut(random.Random(1))
    shown = described(rig, name)
    for key in ("background.threads", "num.partitons"):
        # As in Kafka, an unknown key is shown without its value, because the value can be a secret.
        entry = shown[key]
        assert (entry.value, entry.is_sensitive, entry.read_only) == (None, True, False)
        assert entry.config_source == (2 if name else 3)
    refused = alter(rig, name, ("num.partitons", ConfigOperation.APPEND, "5"))
    assert (refused.error_code, "is not a list" in refused.error_message) == (42, True)
    answer = alter(rig, name, ("num.partitons", ConfigOperation.DELETE, None))
    assert answer.error_code == ErrorCode.NONE
    assert "num.partitons" not in described(rig, name)


def test_keys_that_nobody_knows_here_have_a_limit(rig: Rig) -> None:
    for number in range(FOREIGN_KEYS_MAX):
        put(rig, SELF, f"key-{number:03}", "v")
    answer = alter(rig, SELF, ("key-more", ConfigOperation.SET, "v"))
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert f"at most {FOREIGN_KEYS_MAX} keys" in answer.error_message
    assert "key-more" not in described(rig, SELF)


def test_the_throttles_of_a_reassignment_are_taken(rig: Rig) -> None:
    for key in ("leader.replication.throttled.rate", "follower.replication.throttled.rate"):
        put(rig, SELF, key, "1000000")
        assert described(rig, SELF)[key].value == "1000000"


@pytest.mark.parametrize(
    ("kind", "name"),
    [(BROKER, "2"), (BROKER, "one"), (LOGGER, "2"), (CLIENT_METRICS, "x"), (0, "")],
)
def test_other_resources_have_no_settings_here(rig: Rig, kind: int, name: str) -> None:
    answer = alter(rig, name, ("num.partitions", ConfigOperation.SET, "2"), kind=kind)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_validate_only_says_the_same_and_changes_nothing(rig: Rig) -> None:
    change = ("num.partitions", ConfigOperation.SET, "9")
    assert alter(rig, SELF, change, validate_only=True).error_code == ErrorCode.NONE
    bad = ("num.partitions", ConfigOperation.SET, "no")
    assert alter(rig, SELF, bad, validate_only=True).error_code == ErrorCode.INVALID_REQUEST
    assert rig.broker.settings.config.num_partitions == 3


def test_validate_only_of_the_older_request_changes_nothing_either(rig: Rig) -> None:
    rig.create("logs")

    def ask(value: str, *, only_validates: bool) -> ErrorCode:
        config = AlterConfigsRequestConfig(name="retention.ms", value=value)
        resource = AlterConfigsRequestResource(
            resource_type=TOPIC, resource_name="logs", configs=[config]
        )
        request = AlterConfigsRequest(resources=[resource], validate_only=only_validates)
        return ErrorCode(rig.ask(request, 2).responses[0].error_code)

    def retention_ms() -> int:
        return rig.broker.parts.replicas.find("logs", 0).log.config.retention_ms

    before = retention_ms()
    assert ask("77", only_validates=True) is ErrorCode.NONE
    assert ask("soon", only_validates=True) is ErrorCode.INVALID_CONFIG
    assert retention_ms() == before
    assert ask("77", only_validates=False) is ErrorCode.NONE
    assert retention_ms() == 77


def test_a_key_that_was_never_set_can_be_taken_away(rig: Rig) -> None:
    throttle = ("leader.replication.throttled.rate", ConfigOperation.DELETE, None)
    assert alter(rig, SELF, throttle).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", [0, 1, 2])
def test_pitfall_32_alter_configs_resets_what_it_does_not_name(rig: Rig, version: int) -> None:
    rig.create("logs", retention_ms="5", segment_ms="6")

    def replace(kind: int, name: str, *settings: tuple[str, str | None]) -> Any:
        resource = AlterConfigsRequestResource(
            resource_type=kind,
            resource_name=name,
            configs=[AlterConfigsRequestConfig(name=key, value=value) for key, value in settings],
        )
        return rig.ask(AlterConfigsRequest(resources=[resource]), version).responses[0]

    assert replace(TOPIC, "logs", ("segment.ms", "7")).error_code == ErrorCode.NONE
    assert rig.broker.parts.metadata.image.settings(TOPIC, "logs") == {"segment.ms": "7"}
    assert replace(TOPIC, "logs", ("segment.ms", None)).error_code == ErrorCode.INVALID_REQUEST
    assert replace(TOPIC, "logs", ("segment.ms", "x")).error_code == ErrorCode.INVALID_CONFIG
    missing = replace(TOPIC, "none", ("segment.ms", "7"))
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    put(rig, SELF, "num.partitions", "4")
    assert replace(BROKER, SELF, ("fetch.max.bytes", "2000")).error_code == ErrorCode.NONE
    assert rig.broker.settings.config.num_partitions == 3
    assert rig.broker.settings.config.fetch_max_bytes == 2000


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_every_setting_is_described_in_every_version(rig: Rig, version: int) -> None:
    found = described(rig, SELF, version=version)
    assert {"log.segment.bytes", "num.partitions", "group.max.size"} <= found.keys()
    if version >= 3:
        assert all(one.documentation for one in found.values())


OTHER_VALUES = {
    "cordoned.log.dirs": "*",
    "log.cleanup.policy": "compact",
    "compression.type": "lz4",
    "log.message.format.version": "2.8",
    "log.preallocate": "false",
    "unclean.leader.election.enable": "false",
    "log.message.timestamp.type": "LogAppendTime",
    "log.cleaner.min.cleanable.ratio": "0.25",
    "compression.gzip.level": "6",
    "compression.lz4.level": "12",
}


def other_value(key: str) -> str:
    """Return a valid value of a setting that is not its default."""
    row = BROKER_ROWS[key][1]
    if key in OTHER_VALUES:
        return OTHER_VALUES[key]
    if row.kind is ConfigType.BOOLEAN:
        return "false" if row.default else "true"
    return str(max(int(row.low or 0), 20) + 1)


@pytest.mark.parametrize(
    "key", sorted(key for key, (_, row) in BROKER_ROWS.items() if row.is_dynamic)
)
def test_every_setting_that_may_change_does(rig: Rig, key: str) -> None:
    rig.create("logs")
    parts = rig.broker.parts
    put(rig, SELF, key, other_value(key))
    wanted = parse(BROKER_ROWS[key][1], other_value(key))
    attribute = BROKER_ROWS[key][0]
    if attribute:
        assert getattr(rig.broker.settings.config, attribute) == wanted
        assert getattr(rig.broker._controller.config, attribute) == wanted
        return
    (attribute,) = (
        name
        for name, row in TOPIC_ROWS.values()
        if any(one.key == key and one.factor == 1 for one in row.synonyms)
    )
    assert getattr(parts.replicas.find("logs", 0).log.config, attribute) == wanted


def test_fewer_connections_are_let_in_at_once(rig: Rig) -> None:
    put(rig, SELF, "max.connections", "1")
    peer: Any = FakeSession()
    other: Any = FakeSession()
    assert rig.broker.listeners.sessions.admit(peer, 0) == ""
    assert "max.connections 1" in rig.broker.listeners.sessions.admit(other, 0)
