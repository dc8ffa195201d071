"""Unmodified librdkafka, through confluent-kafka and kcat, with our broker."""

import importlib
import shutil
import subprocess
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)

from protocol.errors import ErrorCode
from tests.harness.broker import BrokerProcess
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("no_complaints")]

# The module's type stubs do not declare all names that it exports.
ck: Any = importlib.import_module("confluent_kafka.admin")

COUNT = 2_000

IDLE_S = 4

ASKED = 5


SETTINGS = {"num.partitions": 3}


@pytest.fixture(scope="module")
def admin(broker: BrokerProcess) -> Any:
    return ck.AdminClient({"bootstrap.servers": broker.bootstrap})


def produce_all(broker: BrokerProcess, topic: str, values: list[bytes], **settings: Any) -> None:
    failures: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )
    for value in values:
        producer.produce(
            topic,
            value,
            partition=0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(30) == 0
    assert not failures


def consume_all(broker: BrokerProcess, topic: str, count: int, **settings: Any) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "reader"}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while len(values) < count:
            messages = consumer.consume(count, 20)
            assert messages, f"{len(values)} of {count} came"
            for message in messages:
                assert message.error() is None, message.error()
                values.append(message.value() or b"")
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_what_is_produced_is_consumed(broker: BrokerProcess, codec: str, acks: str) -> None:
    topic = f"round-{codec}-{acks}"
    values = [b"%s %d" % (codec.encode() * 10, number) for number in range(COUNT)]
    produce_all(broker, topic, values, compression_type=codec, acks=acks, linger_ms=2)
    assert consume_all(broker, topic, COUNT) == values


def test_pitfall_17_a_topic_made_by_metadata_is_there_for_the_first_produce(
    broker: BrokerProcess, admin: Any
) -> None:
    produce_all(broker, "fresh", [b"first"])
    assert len(admin.list_topics("fresh", 10).topics["fresh"].partitions) == 3


def test_idempotent_and_read_committed(broker: BrokerProcess) -> None:
    values = [b"%d" % number for number in range(COUNT)]
    produce_all(broker, "idempotent", values, enable_idempotence=True, linger_ms=0)
    found = consume_all(broker, "idempotent", COUNT, isolation_level="read_committed")
    assert found == values


def test_large_batches_leave_by_sendfile(broker: BrokerProcess) -> None:
    values = [bytes([number % 251]) * 100_000 for number in range(100)]
    produce_all(broker, "large", values, batch_size=1_000_000, linger_ms=20)
    assert consume_all(broker, "large", 100) == values


def test_an_idle_consumer_fetches_seldom(broker: BrokerProcess) -> None:
    """A Metadata request behind the waiting Fetch must not complete that Fetch early, because the
    consumer would then fetch all the time."""
    produce_all(broker, "idle", [b"x"])
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "idle",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 100}  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe(["idle"])
    try:
        messages = consumer.consume(1, 30)
        assert [message.value() for message in messages] == [b"x"]
        before, early = fetch_count(broker), broker.metric("fetch_completed_early_total")
        assert consumer.poll(IDLE_S) is None
        assert broker.metric("fetch_completed_early_total") == early
        assert fetch_count(broker) - before < 20 * IDLE_S
    finally:
        consumer.close()


def test_a_waiting_consumer_that_asks_for_offsets_gets_them_at_once(broker: BrokerProcess) -> None:
    """A ListOffsets request behind a Fetch that waits for the same partition completes that Fetch.
    Spark's connector sends such requests (decision 0055)."""
    produce_all(broker, "asked", [b"x"])
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "asker",
                "fetch.wait.max.ms": 50_000}  # fmt: skip
    consumer = Consumer(settings)
    partition = TopicPartition("asked", 0, 0)
    consumer.assign([partition])
    try:
        (message,) = consumer.consume(1, 30)
        assert message.value() == b"x"
        before, early = fetch_count(broker), broker.metric("fetch_completed_early_total")
        for _ in range(ASKED):
            wait_until(lambda: fetch_waits(broker), 10, "its fetch waits")
            assert consumer.get_watermark_offsets(partition, timeout=20) == (0, 1)
        assert broker.metric("fetch_completed_early_total") >= early + ASKED
        # Each ListOffsets request costs at most one additional Fetch.
        assert fetch_count(broker) - before <= 2 * ASKED
    finally:
        consumer.close()


def fetch_waits(broker: BrokerProcess) -> bool:
    return broker.status().details["parked_fetches"] == 1


def fetch_count(broker: BrokerProcess) -> int:
    apis: Any = broker.status().details["apis"]
    return int(next(one["count"] for one in apis if one["api"] == "fetch"))


def test_topics_come_grow_and_go(admin: Any) -> None:
    new = ck.NewTopic("admin", 3, 1, config={"retention.ms": "1000000"})
    admin.create_topics([new])["admin"].result(10)
    for name, code in (
        ("admin", ErrorCode.TOPIC_ALREADY_EXISTS),
        ("no good", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ):
        with pytest.raises(KafkaException) as refused:
            admin.create_topics([ck.NewTopic(name, 1, 1)])[name].result(10)
        assert refused.value.args[0].code() == code
    admin.create_partitions([ck.NewPartitions("admin", 5)])["admin"].result(10)
    topic = admin.list_topics("admin", 10).topics["admin"]
    assert sorted(topic.partitions) == [0, 1, 2, 3, 4]
    assert {one.leader for one in topic.partitions.values()} == {1}
    admin.delete_topics(["admin"])["admin"].result(10)
    assert "admin" not in admin.list_topics(timeout=10).topics


def test_settings_are_described_and_altered(admin: Any) -> None:
    admin.create_topics([ck.NewTopic("configs", 1, 1)])["configs"].result(10)
    resource = ck.ConfigResource(ck.ResourceType.TOPIC, "configs")

    def described() -> Any:
        return admin.describe_configs([resource])[resource].result(10)

    assert described()["cleanup.policy"].value == "delete"
    assert described()["cleanup.policy"].source == 5
    change = ck.ConfigResource(
        ck.ResourceType.TOPIC,
        "configs",
        incremental_configs=[
            ck.ConfigEntry(
                "cleanup.policy", "compact", incremental_operation=ck.AlterConfigOpType.APPEND
            ),
            ck.ConfigEntry("retention.ms", "5000", incremental_operation=ck.AlterConfigOpType.SET),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(10)
    found = described()
    assert (found["cleanup.policy"].value, found["cleanup.policy"].source) == ("delete,compact", 1)
    assert found["retention.ms"].value == "5000"


def test_offsets_are_committed_fetched_and_shown(broker: BrokerProcess, admin: Any) -> None:
    admin.create_topics([ck.NewTopic("commits", 2, 1)])["commits"].result(10)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "committer"})
    wanted = TopicPartition("commits", 1, 42, metadata="a note", leader_epoch=0)
    consumer.commit(offsets=[wanted], asynchronous=False)
    found = consumer.committed([TopicPartition("commits", 1), TopicPartition("commits", 0)], 10)
    assert (found[0].offset, found[0].metadata, found[0].leader_epoch) == (42, "a note", 0)
    assert found[1].offset < 0
    consumer.close()
    groups = [one.group_id for one in admin.list_consumer_groups().result(10).valid]
    assert "committer" in groups
    states = {
        name: one.result(10).state.name
        for name, one in admin.describe_consumer_groups(["committer", "absent"]).items()
    }
    assert states == {"committer": "EMPTY", "absent": "DEAD"}
    asked = [ConsumerGroupTopicPartitions("committer")]
    offsets = admin.list_consumer_group_offsets(asked)["committer"].result(10).topic_partitions
    assert [(one.topic, one.partition, one.offset) for one in offsets] == [("commits", 1, 42)]


def test_pitfall_16_the_offsets_topic_is_shown(admin: Any) -> None:
    assert "__consumer_offsets" in admin.list_topics(timeout=10).topics


def test_offsets_by_time_and_cluster_description(broker: BrokerProcess, admin: Any) -> None:
    produce_all(broker, "listed", [b"x"] * 10)
    partition = TopicPartition("listed", 0)
    for spec, offset in (
        (ck.OffsetSpec.earliest(), 0),
        (ck.OffsetSpec.latest(), 10),
        (ck.OffsetSpec.for_timestamp(1), 0),
    ):
        found = admin.list_offsets({partition: spec})[partition].result(10)
        assert found.offset == offset
    cluster = admin.describe_cluster().result(10)
    assert [(one.id, one.port) for one in cluster.nodes] == [(1, broker.host_port)]


def kcat(broker: BrokerProcess, *arguments: str, given: bytes = b"") -> bytes:
    program = shutil.which("kcat") or shutil.which("kafkacat")
    if program is None:
        pytest.skip("kcat is not installed")
    done = subprocess.run(
        [program, "-b", broker.bootstrap, *arguments],
        input=given,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_pitfall_01_kcat_produces_and_consumes_with_every_codec(
    broker: BrokerProcess, codec: str
) -> None:
    topic = f"kcat-{codec}"
    lines = b"".join(b"line %d of many that compress well well well\n" % n for n in range(COUNT))
    kcat(broker, "-P", "-t", topic, "-p", "0", "-z", codec, "-X", "linger.ms=50", given=lines)
    found = kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q")
    assert found == lines
    size_bytes = broker.partition(topic, 0)["size_bytes"]
    # If the broker does not offer suitable versions, an old librdkafka silently sends batches
    # uncompressed, except with zstd.
    assert (size_bytes < len(lines) * 0.7) == (codec != "none")


def test_kcat_lists_and_queries(broker: BrokerProcess) -> None:
    produce_all(broker, "queried", [b"x"] * 7)
    assert b'topic "queried" with 3 partitions' in kcat(broker, "-L", "-t", "queried")
    assert kcat(broker, "-Q", "-t", "queried:0:-1").split()[-1] == b"7"
    assert kcat(broker, "-Q", "-t", "queried:0:-2").split()[-1] == b"0"
