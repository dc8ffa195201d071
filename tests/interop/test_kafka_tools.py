"""Kafka's own unmodified command line tools with our broker: each works without a warning."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from confluent_kafka import Producer

from protocol.wire.records import Codec, iterate_batches
from tests.harness import tools as kafka
from tests.harness.broker import BrokerProcess
from tests.harness.tools import KafkaTools, complaints, warnings_of
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient, fetch_request

pytestmark = [pytest.mark.live, pytest.mark.slow]

_numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("tools-broker")
    with BrokerProcess(folder, {"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker
        assert warnings_of(broker.log_text()) == []


@pytest.fixture
def tools(broker: BrokerProcess, tmp_path: Path) -> KafkaTools:
    return KafkaTools(tmp_path / "tools", broker.bootstrap)


@pytest.fixture
def topic(tools: KafkaTools) -> str:
    """Create a topic of two partitions with Kafka's own tool. Return its name."""
    name = f"topic-{next(_numbers)}"
    said = tools.run(
        kafka.TOPICS,
        *("--create", "--topic", name, "--partitions", "2", "--replication-factor", "1"),
    )
    assert f"Created topic {name}." in said
    return name


def produce(tools: KafkaTools, topic: str, lines: int) -> None:
    """Produce lines `k1:v1`, `k2:v2`, … that are split at the colon."""
    tools.run(
        kafka.CONSOLE_PRODUCER,
        *("--topic", topic, "--command-property", "acks=all"),
        *("--reader-property", "parse.key=true", "--reader-property", "key.separator=:"),
        stdin="".join(f"k{number}:v{number}\n" for number in range(1, lines + 1)),
    )


def consume(tools: KafkaTools, topic: str, wanted: int, *options: str) -> list[str]:
    said = tools.run(
        kafka.CONSOLE_CONSUMER,
        *("--topic", topic, "--from-beginning", "--max-messages", str(wanted)),
        *("--timeout-ms", "30000", "--formatter-property", "print.key=true", *options),
    )
    return sorted(line for line in said.splitlines() if "\t" in line)


def offsets(tools: KafkaTools, topic: str, time: str) -> dict[int, int]:
    said = tools.run(kafka.GET_OFFSETS, "--topic", topic, "--time", time)
    found = (line.split(":") for line in said.splitlines() if line.startswith(f"{topic}:"))
    return {int(partition): int(offset) for _, partition, offset in found}


def test_topics(tools: KafkaTools, topic: str) -> None:
    described = tools.run(kafka.TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 2\tReplicationFactor: 1" in described
    assert re.search(r"Partition: 1\tLeader: 1\tReplicas: 1\tIsr: 1", described)
    tools.run(kafka.TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tools.run(kafka.TOPICS, "--describe", "--topic", topic)
    assert topic in tools.run(kafka.TOPICS, "--list").splitlines()
    tools.run(kafka.TOPICS, "--delete", "--topic", topic)
    assert topic not in tools.run(kafka.TOPICS, "--list").splitlines()


def test_console_producer_and_consumer(tools: KafkaTools, topic: str) -> None:
    produce(tools, topic, 20)
    wanted = sorted(f"k{number}\tv{number}" for number in range(1, 21))
    assert consume(tools, topic, 20) == wanted
    assert consume(tools, topic, 20, "--isolation-level", "read_committed") == wanted


def test_get_offsets_and_delete_records(tools: KafkaTools, topic: str) -> None:
    produce(tools, topic, 20)
    ends = offsets(tools, topic, "-1")
    assert sum(ends.values()) == 20
    assert offsets(tools, topic, "-2") == {0: 0, 1: 0}
    assert offsets(tools, topic, "0") == {0: 0, 1: 0}
    assert offsets(tools, topic, "-3").keys() == {0, 1}
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 1}]}
    said = tools.run(
        kafka.DELETE_RECORDS, "--offset-json-file", tools.file("d.json", json.dumps(plan))
    )
    assert f"{topic}-0\tlow_watermark: 1" in said
    assert offsets(tools, topic, "-2") == {0: 1, 1: 0}
    assert len(consume(tools, topic, 19)) == 19


def test_groups(tools: KafkaTools, topic: str) -> None:
    produce(tools, topic, 20)
    group = f"group-of-{topic}"
    consume(tools, topic, 20, "--group", group)
    named = ("--group", group)
    assert f"{group} " in tools.run(kafka.GROUPS, "--list", "--state", "empty")
    lags = re.findall(
        rf"{group} +{topic} +\d +(\d+) +(\d+) +0 ", tools.run(kafka.GROUPS, "--describe", *named)
    )
    assert sum(int(committed) for committed, _ in lags) == 20
    state = tools.run(kafka.GROUPS, "--describe", *named, "--state")
    assert re.search(rf"{group} .*Empty +0", state)
    reset = tools.run(
        kafka.GROUPS, "--reset-offsets", "--to-earliest", *named, "--topic", topic, "--execute"
    )
    assert len(re.findall(rf"{group} +{topic} +\d +0\b", reset)) == 2
    assert len(consume(tools, topic, 20, *named)) == 20
    dropped = tools.run(kafka.GROUPS, "--delete-offsets", *named, "--topic", topic)
    assert dropped.count("Successful") == 2
    assert "was successful" in tools.run(kafka.GROUPS, "--delete", *named)
    assert group not in tools.run(kafka.GROUPS, "--list")


def test_groups_with_members(tools: KafkaTools, topic: str) -> None:
    produce(tools, topic, 4)
    group = f"members-of-{topic}"
    member = subprocess.Popen(
        tools.command(kafka.VERIFIABLE_CONSUMER, "--topic", topic, "--group-id", group),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:

        def described(*options: str) -> str:
            return tools.run(kafka.GROUPS, "--describe", "--group", group, *options)

        wait_until(lambda: "Stable" in described("--state"), 60, "the member has joined")
        members = described("--members", "--verbose")
        assert re.search(rf"{group} .*/127\.0\.0\.1 .* 2 .*{topic}:0,1", members), members
        stable = re.findall(rf"{group} +{topic} +\d .*/127\.0\.0\.1", described())
        assert len(stable) == 2
        refused = subprocess.run(
            tools.command(kafka.GROUPS, "--delete", "--group", group),
            capture_output=True,
            text=True,
            check=False,
        )
        assert "GroupNotEmptyException" in refused.stdout + refused.stderr
    finally:
        member.terminate()
        said, _ = member.communicate(timeout=60)
    assert not complaints(said), said


def test_configs_of_topics(tools: KafkaTools, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tools.run(
        kafka.CONFIGS,
        *(
            "--alter",
            *entity,
            "--add-config",
            "retention.ms=3600000,cleanup.policy=[compact,delete]",
        ),
    )
    described = tools.run(kafka.CONFIGS, "--describe", *entity)
    assert "retention.ms=3600000" in described
    assert "DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete" in described
    tools.run(kafka.CONFIGS, "--alter", *entity, "--delete-config", "cleanup.policy")
    whole = tools.run(kafka.CONFIGS, "--describe", "--all", *entity)
    assert "  cleanup.policy=delete sensitive=false" in whole
    assert "Configs: retention.ms=3600000" in tools.run(
        kafka.TOPICS, "--describe", "--topic", topic
    )


def test_configs_of_brokers(tools: KafkaTools, topic: str) -> None:
    one = ("--entity-type", "brokers", "--entity-name", "1")
    every = ("--entity-type", "brokers", "--entity-default")
    tools.run(kafka.CONFIGS, "--alter", *one, "--add-config", "log.retention.ms=5000000")
    tools.run(kafka.CONFIGS, "--alter", *every, "--add-config", "num.partitions=4")
    described = tools.run(kafka.CONFIGS, "--describe", *one)
    assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=5000000" in described
    described = tools.run(kafka.CONFIGS, "--describe", *every)
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG:num.partitions=4" in described
    tools.run(kafka.TOPICS, "--create", "--topic", f"four-{topic}")
    four = tools.run(kafka.TOPICS, "--describe", "--topic", f"four-{topic}")
    assert "PartitionCount: 4" in four
    refused = subprocess.run(
        tools.command(kafka.CONFIGS, "--alter", *one, "--add-config", "log.retention.hours=1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cannot be changed while the broker runs" in refused.stdout + refused.stderr
    tools.run(kafka.CONFIGS, "--alter", *one, "--delete-config", "log.retention.ms")
    tools.run(kafka.CONFIGS, "--alter", *every, "--delete-config", "num.partitions")
    assert "num.partitions" not in tools.run(kafka.CONFIGS, "--describe", *every)


def test_configs_of_a_topic_as_scripts_for_kafka_set_them(tools: KafkaTools) -> None:
    """The broker stores and returns records in the topic's codec, which differs from the
    producer's."""
    topic = f"scripted-{next(_numbers)}"
    settings = {
        "compression.type": "zstd",
        "preallocate": "false",
        "segment.jitter.ms": "1000",
    }
    wanted = [part for pair in settings.items() for part in ("--config", "=".join(pair))]
    tools.run(kafka.TOPICS, "--create", "--topic", topic, "--partitions", "1", *wanted)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    throttle = "leader.replication.throttled.replicas=[0:1]"
    tools.run(kafka.CONFIGS, "--alter", *entity, "--add-config", throttle)
    described = tools.run(kafka.CONFIGS, "--describe", *entity)
    for key, value in {**settings, "leader.replication.throttled.replicas": "0:1"}.items():
        assert f"{key}={value}" in described
    tools.run(
        kafka.PRODUCER_PERF,
        *("--topic", topic, "--num-records", "500", "--record-size", "100", "--throughput", "-1"),
        *("--command-property", "acks=all", "compression.type=gzip"),
    )
    produce(tools, topic, 20)
    assert len(consume(tools, topic, 520)) == 520
    with WireClient(tools.bootstrap) as client:
        records = client.ask(fetch_request(topic, 0), 12).responses[0].partitions[0].records
    assert {header.codec for header, _ in iterate_batches(records)} == {Codec.ZSTD}


def test_configs_of_loggers(tools: KafkaTools) -> None:
    entity = ("--entity-type", "broker-loggers", "--entity-name", "1")
    name = "broker.replicas.housekeeping"
    described = tools.run(kafka.CONFIGS, "--describe", *entity)
    assert f"{name}=INFO sensitive=false" in described
    assert "root=INFO sensitive=false" in described
    tools.run(kafka.CONFIGS, "--alter", *entity, "--add-config", f"{name}=DEBUG")
    assert f"{name}=DEBUG" in tools.run(kafka.CONFIGS, "--describe", *entity)
    tools.run(kafka.CONFIGS, "--alter", *entity, "--delete-config", name)
    assert f"{name}=INFO" in tools.run(kafka.CONFIGS, "--describe", *entity)
    refused = subprocess.run(
        tools.command(kafka.CONFIGS, "--alter", *entity, "--add-config", f"{name}=LOUD"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "expected one of: FATAL, ERROR, WARN" in refused.stdout + refused.stderr


def test_log_dirs(tools: KafkaTools, topic: str, broker: BrokerProcess) -> None:
    produce(tools, topic, 3)
    said = tools.run(kafka.LOG_DIRS, "--describe", "--topic-list", topic)
    (folder,) = json.loads(said.splitlines()[-1])["brokers"][0]["logDirs"]
    assert folder["logDir"] == str(broker.log_dir)
    assert {one["partition"] for one in folder["partitions"]} == {f"{topic}-0", f"{topic}-1"}
    assert sum(one["size"] for one in folder["partitions"]) > 0


def test_leader_election(tools: KafkaTools, topic: str) -> None:
    preferred = ("--election-type", "preferred")
    said = tools.run(kafka.LEADER_ELECTION, *preferred, "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in said
    tools.run(kafka.LEADER_ELECTION, *preferred, "--all-topic-partitions")


def test_reassign_partitions(tools: KafkaTools, topic: str) -> None:
    plan = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [1]}]}
    file = ("--reassignment-json-file", tools.file("r.json", json.dumps(plan)))
    said = tools.run(kafka.REASSIGN, *file, "--execute")
    assert f"Successfully started partition reassignment for {topic}-0" in said
    said = tools.run(kafka.REASSIGN, *file, "--verify")
    assert f"Reassignment of partition {topic}-0 is completed." in said
    assert "No partition reassignments found." in tools.run(kafka.REASSIGN, "--list")
    wanted = {"topics": [{"topic": topic}], "version": 1}
    said = tools.run(
        kafka.REASSIGN,
        *("--generate", "--broker-list", "1"),
        *("--topics-to-move-json-file", tools.file("g.json", json.dumps(wanted))),
    )
    assert said.count(f'"topic":"{topic}"') == 4


def test_broker_api_versions(tools: KafkaTools) -> None:
    said = tools.run(kafka.API_VERSIONS)
    assert "Produce(0): 0 to 9 [usable: 9]" in said
    assert "Fetch(1): 4 to 12 [usable: 12]" in said
    assert "EndTxn(26): 0 to 3 [usable: 3]" in said


def test_producer_and_consumer_performance(tools: KafkaTools, topic: str) -> None:
    size = ("--topic", topic, "--num-records", "20000")
    sent = tools.run(
        kafka.PRODUCER_PERF,
        *(*size, "--record-size", "100", "--throughput", "-1"),
        *("--command-property", "acks=all", "compression.type=lz4"),
    )
    assert "20000 records sent" in sent
    assert re.search(r", 20000, ", tools.run(kafka.CONSUMER_PERF, *size))


def test_transactions(tools: KafkaTools, topic: str) -> None:
    name = f"tx-{topic}"
    tools.run(
        kafka.PRODUCER_PERF,
        *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
        *("--transactional-id", name, "--transaction-duration-ms", "50"),
    )
    assert re.search(rf"{name}\s.*CompleteCommit", tools.run(kafka.TRANSACTIONS, "list"))
    said = tools.run(kafka.TRANSACTIONS, "describe", "--transactional-id", name)
    assert re.search(rf"{name}\s.*CompleteCommit", said)
    said = tools.run(kafka.TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", "0")
    assert re.search(r"^\d+\s+\d+\s+\d+\s+\d+\s+\d+\s+None", said, re.MULTILINE)
    hanging = tools.run(kafka.TRANSACTIONS, "find-hanging", "--topic", topic)
    assert len(hanging.splitlines()) == 1, "only the head of an empty table"
    committed = consume(tools, topic, 2000, "--isolation-level", "read_committed")
    assert len(committed) == 2000


def test_a_hanging_transaction_is_aborted_by_hand(
    tools: KafkaTools, topic: str, broker: BrokerProcess
) -> None:
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"hangs-{topic}"}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value=b"never", partition=0)
    assert producer.flush(30) == 0
    place = ("--topic", topic, "--partition", "0")
    said = tools.run(kafka.TRANSACTIONS, "describe-producers", *place)
    assert re.search(r"\s0\s*$", said, re.MULTILINE), said
    tools.run(kafka.TRANSACTIONS, "abort", *place, "--start-offset", "0")
    said = tools.run(kafka.TRANSACTIONS, "describe-producers", *place)
    assert re.search(r"\sNone\s*$", said, re.MULTILINE), said
    assert offsets(tools, topic, "-1")[0] == 2, "the record and its marker"


def test_verifiable_producer_and_consumer(tools: KafkaTools, topic: str) -> None:
    said = tools.run(
        kafka.VERIFIABLE_PRODUCER, "--topic", topic, "--max-messages", "500", "--acks", "-1"
    )
    events = [json.loads(line) for line in said.splitlines()]
    assert (events[-1]["sent"], events[-1]["acked"]) == (500, 500)
    said = tools.run(
        kafka.VERIFIABLE_CONSUMER,
        *("--topic", topic, "--group-id", f"verifiable-{topic}", "--max-messages", "500"),
        *("--reset-policy", "earliest"),
    )
    events = [json.loads(line) for line in said.splitlines()]
    committed = [one for one in events if one["name"] == "offsets_committed"]
    assert committed
    assert all(one["success"] for one in committed)


def test_the_complaints_of_a_tool_are_found_and_its_own_affairs_are_not() -> None:
    assert complaints("WARN [Producer] Got error produce response (x)") != []
    assert complaints("org.apache.kafka.common.errors.TimeoutException: late") != []
    assert complaints("WARN These configurations 'a' were supplied but are not used yet.") == []
    assert complaints('{"name":"shutdown_complete"}') == []
