"""The broker's settings: one table that is read, checked and merged."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config import (
    BROKER_LISTENER,
    BROKER_ROWS,
    FAULT_COUNT_MAX,
    TOPIC_ROWS,
    BrokerConfig,
    LogConfig,
    TlsFiles,
    check_dynamic_settings,
    check_settings,
    check_topic_settings,
    topic_settings_text,
)
from broker.settings import (
    LIST_LENGTH_MAX,
    LONG_MAX,
    VALUE_LENGTH_MAX,
    ConfigError,
    ConfigType,
    WrongValue,
    parse,
    rows,
    text,
)

RAW: dict[str, Any] = {
    "part": "broker-1",
    "node_id": 1,
    "cluster_id": "AAAAAAAAAAAAAAAAAAAAAA",
    "log_dir": "data/broker-1",
    "listeners": {
        "HOST": {
            "host": "127.0.0.1",
            "port": 9092,
            "advertised_host": "127.0.0.1",
            "advertised_port": 9092,
        }
    },
    "status": {"host": "127.0.0.1", "port": 8093},
    "settings": {"num.partitions": 3, "log.retention.hours": 2},
}


def config(**settings: object) -> BrokerConfig:
    named = {key.replace("__", "."): value for key, value in settings.items()}
    return BrokerConfig.from_json({**RAW, "settings": named})


def test_the_object_on_the_descriptor_becomes_a_frozen_configuration() -> None:
    ours = BrokerConfig.from_json(RAW)
    assert (ours.part, ours.node_id, ours.log_dir) == ("broker-1", 1, "data/broker-1")
    assert ours.listeners["HOST"].advertised_port == 9092
    assert (ours.status_host, ours.status_port) == ("127.0.0.1", 8093)
    assert ours.num_partitions == 3
    assert ours.auto_create_topics_enable is True
    with pytest.raises(AttributeError):
        ours.num_partitions = 4  # type: ignore[misc]  # that is the point


def test_a_topic_setting_comes_from_topic_then_broker_then_default() -> None:
    assert LogConfig.of({}).retention_ms == 604_800_000
    assert config(log__retention__hours=2).log_config().retention_ms == 7_200_000
    both = config(log__retention__hours=2, log__retention__ms=5)
    assert both.log_config().retention_ms == 5
    assert both.log_config({"retention.ms": "-1"}).retention_ms == -1


def test_a_synonym_in_other_units_keeps_its_meaning_of_no_limit() -> None:
    assert config(log__retention__hours=-1).log_config().retention_ms == -1
    assert config(log__roll__hours=1).log_config().segment_ms == 3_600_000


def test_acknowledged_means_on_the_disk_by_default() -> None:
    assert LogConfig.of({}).is_flushed_before_ack
    assert not LogConfig.of({"flush.messages": "1000"}).is_flushed_before_ack
    assert not config(log__flush__interval__messages=2).log_config().is_flushed_before_ack


def test_policies_are_a_list() -> None:
    assert LogConfig.of({}).is_deleted
    both = LogConfig.of({"cleanup.policy": "delete, compact"})
    assert both.cleanup_policy == "compact,delete"
    assert (both.is_compacted, both.is_deleted) == (True, True)
    assert not LogConfig.of({"cleanup.policy": "compact"}).is_deleted


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"num.partitons": 3}, "did you mean num.partitions?"),
        ({"num.partitions": 0}, "from 1 to 10000"),
        ({"num.partitions": "many"}, "a whole number of partitions"),
        ({"num.partitions": True}, "a whole number"),
        ({"num.partitions": 1.5}, "a whole number"),
        ({"num.partitions": None}, "a whole number"),
        ({"auto.create.topics.enable": "maybe"}, "true or false"),
        ({"log.cleanup.policy": "shred"}, "a list of: compact, delete"),
        ({"compression.type": "br"}, "one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"unclean.leader.election.enable": "true"}, "false: a replica that may lack"),
        ({"log.preallocate": True}, "false: files are extended step by step"),
        ({"log.message.format.version": "new"}, "a version of Kafka"),
        ({"log.message.downconversion.enable": "no"}, "true or false"),
        ({"log.cleaner.min.cleanable.ratio": 1.1}, "a number from 0 to 1"),
        ({"log.cleaner.min.cleanable.ratio": float("nan")}, "a number from 0 to 1"),
        ({"log.segment.bytes": 2**31}, "from 14 to 2147483647"),
        ({"log.retention.hours": 2**31}, "a whole number of hours from -1 to 2147483647"),
    ],
)
def test_a_wrong_broker_setting_is_named_with_what_was_expected(
    settings: dict[str, object], expected: str
) -> None:
    ((key, found, want),) = check_settings(settings)
    assert key in settings
    assert found is settings[key]
    assert expected in want
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        BrokerConfig.from_json({**RAW, "settings": settings})


def test_every_fault_is_listed_at_once() -> None:
    wrong = {"num.partitions": 0, "no.such.key": 1, "log.segment.bytes": 20}
    assert [key for key, _, _ in check_settings(wrong)] == ["num.partitions", "no.such.key"]


def test_of_very_many_faults_the_first_are_listed_and_one_gets_a_suggestion() -> None:
    wrong: dict[str, object] = {f"retention.ms.x{number}": 1 for number in range(100)}
    for found in (check_topic_settings(wrong), check_settings(wrong)):
        assert [key for key, _, _ in found] == list(wrong)[:FAULT_COUNT_MAX]
        assert "did you mean" in found[0][2]
        assert not any("did you mean" in want for _, _, want in found[1:])


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_replicas_that_are_throttled_are_named_as_kafka_takes_them(side: str) -> None:
    key = f"{side}.replication.throttled.replicas"
    for right in ("*", "", "0:1", "0:1,12:3", "0:1, 12:3", "0:1,"):
        assert check_topic_settings({key: right}) == []
    for wrong in ("**", "*,0:1", "0", "0:", "a:1", "0:1;1:1", "none"):
        ((_, found, want),) = check_topic_settings({key: wrong})
        assert (found, want) == (wrong, "* or a list of replicas, each as partition:broker")
    assert check_topic_settings({key: 5}) != []


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_list_of_replicas_can_be_longer_than_other_values(side: str) -> None:
    """Trap 15 (KAFKA-4596): a plan of some hundred partitions has a list of more than 1,000
    characters."""
    key = f"{side}.replication.throttled.replicas"
    replicas = ",".join(f"{index}:{index % 3}" for index in range(4_800))
    assert 32_000 < len(replicas) <= LIST_LENGTH_MAX
    assert check_topic_settings({key: replicas}) == []
    ((_, _, want),) = check_topic_settings({key: replicas + ",1:1" * 500})
    assert want == f"at most {LIST_LENGTH_MAX} characters"


def test_keys_that_change_nothing_here_are_taken_from_scripts_that_state_them() -> None:
    assert not check_topic_settings(
        {
            "message.downconversion.enable": "false",
            "message.format.version": "2.8-IV1",
            "preallocate": "false",
        }
    )
    for version in ("2.8", "0.10.2", "3.0-IV1"):
        assert check_topic_settings({"message.format.version": version}) == []
    for wrong in ("", "v3", "3", "3.0-IV", "3.0,2.8"):
        assert check_topic_settings({"message.format.version": wrong}) != []


def test_the_older_bound_of_time_holds_where_the_newer_two_are_not_set() -> None:
    """The level at which the three keys are set does not matter, because Kafka 3.6 compares the
    resulting values."""

    def bounds(broker: dict[str, object], **topic: str) -> tuple[int, int]:
        given = {f"log.message.timestamp.{key}.max.ms": value for key, value in broker.items()}
        own = {f"message.timestamp.{key}.max.ms": value for key, value in topic.items()}
        merged = BrokerConfig.from_json({**RAW, "settings": given}).log_config(own)
        return merged.message_timestamp_before_max_ms, merged.message_timestamp_after_max_ms

    assert bounds({}) == (LONG_MAX, 3_600_000)
    assert bounds({}, difference="5") == (5, 5)
    assert bounds({"difference": 6}) == (6, 6)
    assert bounds({"difference": 6}, difference="5") == (5, 5)
    assert bounds({}, difference="5", before="7") == (7, 5)
    assert bounds({"after": 8}, difference="5") == (5, 8)
    assert bounds({"difference": 6}, after="9") == (6, 9)
    assert bounds({}, difference=str(LONG_MAX)) == (LONG_MAX, LONG_MAX)


def test_topic_settings_are_checked_by_their_own_table() -> None:
    assert check_topic_settings({"retention.ms": 1, "segment.bytes": "2000"}) == []
    ((key, _, want),) = check_topic_settings({"log.retention.ms": 1})
    assert (key, "a topic setting" in want) == ("log.retention.ms", True)


def test_a_record_is_not_safe_from_the_cleaner_for_longer_than_it_may_wait() -> None:
    assert check_topic_settings({"min.compaction.lag.ms": 5, "max.compaction.lag.ms": 5}) == []
    ((key, found, want),) = check_topic_settings(
        {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}
    )
    assert (key, found, want) == (
        "min.compaction.lag.ms",
        6,
        "at most max.compaction.lag.ms, which is 5",
    )


def test_an_incomplete_object_is_a_fault_not_a_crash() -> None:
    for missing in ("node_id", "log_dir", "listeners", "cluster_id"):
        with pytest.raises(ConfigError):
            BrokerConfig.from_json({key: RAW[key] for key in RAW if key != missing})


@pytest.mark.parametrize(
    ("name", "protocol", "tls", "fault"),
    [
        (
            "NET",
            "SASL_PLAINTEXT",
            None,
            "security_protocol: found 'SASL_PLAINTEXT', expected PLAINTEXT, SSL or SASL_SSL",
        ),
        ("NET", "SASL_SSL", None, "tls: found None, expected certificate and key"),
        (
            "NET",
            "SASL_SSL",
            {"certificate": "a", "key": "b"},
            "login_secret: found None, expected a secret",
        ),
        (
            "BROKER",
            "SASL_SSL",
            {"certificate": "a", "key": "b"},
            "expected PLAINTEXT or SSL: brokers show certificates",
        ),
        ("NET", "SSL", None, "tls: found None, expected certificate and key"),
        ("BROKER", "SSL", {"certificate": "a", "key": "b"}, "link_tls: found None, expected"),
    ],
)
def test_a_listener_with_tls_needs_its_files(
    name: str, protocol: str, tls: dict[str, str] | None, fault: str
) -> None:
    listener = {**RAW["listeners"]["HOST"], "security_protocol": protocol}
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_json({**RAW, "listeners": {name: listener}, "tls": tls})
    assert fault in str(caught.value)


@pytest.mark.parametrize(
    ("listener", "protocol", "files", "fault"),
    [
        (
            "BROKER",
            "SSL",
            None,
            "link_tls: found None, expected certificate, key and ca, because "
            "listeners.BROKER.security_protocol is SSL",
        ),
        (
            "BROKER",
            "SSL",
            {"certificate": "a", "key": "b"},
            "link_tls.ca: found None, expected a CA",
        ),
        (
            "BROKER",
            "PLAINTEXT",
            {"certificate": "a", "key": "b", "ca": "c"},
            "listeners.BROKER.security_protocol: found 'PLAINTEXT', expected SSL, because link_tls",
        ),
        (
            "HOST",
            "PLAINTEXT",
            {"certificate": "a", "key": "b", "ca": "c"},
            "link_tls: found 'certificate and key', expected null, because there is no listener "
            "BROKER",
        ),
    ],
)
def test_links_have_tls_on_both_sides_or_not_at_all(
    listener: str, protocol: str, files: dict[str, str] | None, fault: str
) -> None:
    listeners = {listener: {**RAW["listeners"]["HOST"], "security_protocol": protocol}}
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.from_json({**RAW, "listeners": listeners, "link_tls": files})
    assert fault in str(caught.value)


def test_tls_between_brokers_needs_no_files_for_clients() -> None:
    files = {"certificate": "a", "key": "b", "ca": "c"}
    listener = {**RAW["listeners"]["HOST"], "security_protocol": "SSL"}
    config = BrokerConfig.from_json(
        {**RAW, "listeners": {**RAW["listeners"], "BROKER": listener}, "link_tls": files}
    )
    assert (config.tls, config.link_tls) == (None, TlsFiles(**files))


def test_the_metadata_log_keeps_kafkas_spelling() -> None:
    settings = {"retention.ms": 5, "cleanup.policy": ["delete", "compact"], "flush.ms": "07"}
    assert topic_settings_text(settings) == {
        "retention.ms": "5",
        "cleanup.policy": "compact,delete",
        "flush.ms": "7",
    }


def test_every_row_is_whole_and_its_default_passes_its_own_check() -> None:
    for key, (attribute, row) in {**BROKER_ROWS, **TOPIC_ROWS}.items():
        assert row.key == key
        assert row.why
        assert row.unit or row.kind not in (ConfigType.INT, ConfigType.LONG, ConfigType.SHORT)
        if attribute:
            assert parse(row, text(row.default)) == row.default
    for attribute, row in rows(LogConfig):
        assert row.synonyms or "throttled" in attribute, attribute
        assert getattr(LogConfig.of({}), attribute) == row.default


def test_values_are_read_from_the_wire_as_from_the_file() -> None:
    row = BROKER_ROWS["auto.create.topics.enable"][1]
    assert parse(row, "False") is False
    assert parse(TOPIC_ROWS["flush.ms"][1], str(LONG_MAX)) == LONG_MAX
    with pytest.raises(WrongValue):
        parse(TOPIC_ROWS["flush.ms"][1], str(LONG_MAX + 1))
    assert (text(True), text(0.5), text(7)) == ("true", "0.5", "7")


@pytest.mark.parametrize("spelling", ["7", "+7", " 7 ", "007", "\t7\n"])
def test_a_whole_number_is_spelled_as_kafka_takes_it(spelling: str) -> None:
    assert parse(TOPIC_ROWS["flush.ms"][1], spelling) == 7


@pytest.mark.parametrize(
    "spelling", ["", " ", "1_000", "\u0661\u0662", "\u00a07", "0" * 20, "+", "1.0", "1e3", "0x7"]
)
def test_a_whole_number_that_only_python_would_take_is_refused(spelling: str) -> None:
    with pytest.raises(WrongValue, match="a whole number"):
        parse(TOPIC_ROWS["flush.ms"][1], spelling)


def test_a_decimal_number_has_its_spelling_too() -> None:
    row = TOPIC_ROWS["min.cleanable.dirty.ratio"][1]
    spellings = ("0.5", " .5 ", "+5e-1", "1.", "1")
    assert [parse(row, one) for one in spellings] == [0.5, 0.5, 0.5, 1, 1]
    for wrong in ("0_0.5", "\u0661", "nan", "infinity", ".", "", "e1"):
        with pytest.raises(WrongValue, match="a number from 0 to 1"):
            parse(row, wrong)


def test_a_value_that_is_too_long_is_refused_whatever_it_means() -> None:
    padded = " " * VALUE_LENGTH_MAX
    for key, value in (
        ("cleanup.policy", "delete"),
        ("flush.ms", "7"),
        ("min.cleanable.dirty.ratio", "0.5"),
        ("unclean.leader.election.enable", "false"),
    ):
        assert check_topic_settings({key: padded[len(value) :] + value}) == []
        ((_, _, want),) = check_topic_settings({key: padded + value})
        assert want == "at most 1000 characters"


VOTERS = {str(one): {"host": f"n{one}", "port": 29092} for one in (1, 2, 3)}


def test_one_of_several_is_named_among_them_and_can_be_found_by_them() -> None:
    listeners = {**RAW["listeners"], BROKER_LISTENER: next(iter(RAW["listeners"].values()))}
    whole = BrokerConfig.from_json({**RAW, "voters": VOTERS, "listeners": listeners})
    assert whole.configured_ids == (1, 2, 3)
    for wrong, fault in (
        ({"voters": VOTERS}, ("listeners", "HOST", "BROKER as well, for other brokers")),
        (
            {"voters": VOTERS, "listeners": listeners, "node_id": 4},
            ("voters", "1, 2, 3", "this broker, 4, among them"),
        ),
    ):
        with pytest.raises(ConfigError) as refused:
            BrokerConfig.from_json({**RAW, **wrong})
        assert refused.value.faults == [fault]


def test_a_broker_that_joins_names_brokers_to_ask() -> None:
    listeners = {**RAW["listeners"], BROKER_LISTENER: next(iter(RAW["listeners"].values()))}
    assert not BrokerConfig.from_json(RAW).joins
    among = {**RAW, "voters": VOTERS, "listeners": listeners, "joins": True}
    assert BrokerConfig.from_json(among).joins
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_json({**RAW, "joins": True})
    assert refused.value.faults == [("joins", True, "other brokers in voters, which to ask")]


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("compression.gzip.level", ("-1", "1", "9"), ("0", "-2", "10", "fast", "1.5")),
        ("compression.lz4.level", ("1", "9", "17"), ("0", "-1", "18")),
        ("compression.zstd.level", ("-131072", "0", "3", "22"), ("-131073", "23")),
    ],
)
def test_levels_of_compression_have_kafkas_ranges_for_topics_and_brokers(
    key: str, right: tuple[str, ...], wrong: tuple[str, ...]
) -> None:
    for value in right:
        assert check_topic_settings({key: value}) == []
        assert check_settings({key: value}) == []
        assert check_dynamic_settings({key: value}) == []
    for value in wrong:
        for check in (check_topic_settings, check_settings, check_dynamic_settings):
            ((named, found, _),) = check({key: value})
            assert (named, found) == (key, value)
    assert check_topic_settings({"compression.snappy.level": "1"}) != []


def test_a_topics_level_comes_from_topic_then_broker_then_kafkas_default() -> None:
    ours = BrokerConfig.from_json({**RAW, "settings": {"compression.zstd.level": 7}})
    own = {"compression.type": "zstd"}
    assert ours.log_config({**own, "compression.zstd.level": "-3"}).compression_level == -3
    assert ours.log_config(own).compression_level == 7
    assert LogConfig.of(own).compression_level == 3
    assert LogConfig.of({"compression.type": "gzip"}).compression_level == -1
    assert LogConfig.of({"compression.type": "lz4"}).compression_level == 9
    assert BROKER_ROWS["compression.gzip.level"][1].is_dynamic
