"""Groups of unmodified clients: librdkafka, aiokafka, kafka-python and kcat, alone and mixed."""

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from protocol.errors import ErrorCode
from protocol.messages.group import HeartbeatRequest
from tests.harness.broker import BrokerProcess
from tests.harness.group_log import check_given, check_group_log, group_log
from tests.harness.group_processes import Members
from tests.harness.wait import wait_until
from tests.interop.group_plays import Stage, beat, prepare, settle

REBALANCES = "because it is rebalancing"
"""aiokafka warns of each rebalance, and these tests cause rebalances."""

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("no_complaints")]

PARTITIONS = 6
DEADLINE_S = 60.0
SETTINGS = {"group.initial.rebalance.delay.ms": 200}


def create(broker: BrokerProcess, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)


def produce(broker: BrokerProcess, topic: str, count: int, partitions: int = PARTITIONS) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(30) == 0


def consumer(broker: BrokerProcess, group: str, **settings: object) -> Consumer:
    known: dict[str, object] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 300,
    }
    return Consumer(known | {key.replace("_", "."): value for key, value in settings.items()})


class Reading:
    """librdkafka consumers of one process that are polled in turn."""

    def __init__(self, *consumers: Consumer) -> None:
        self.consumers = list(consumers)
        self.read: list[tuple[str | None, int | None, int | None]] = []

    def poll(self) -> None:
        for one in self.consumers:
            for message in one.consume(500, 0.02):
                assert message.error() is None, message.error()
                self.read.append((message.topic(), message.partition(), message.offset()))

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Poll all consumers in turn until the condition holds."""

        def polled() -> object:
            self.poll()
            return condition()

        wait_until(polled, DEADLINE_S, what)

    def shares(self) -> list[int]:
        return sorted(len(one.assignment()) for one in self.consumers)

    def positions(self) -> list[int]:
        """Return the position of each partition's owner, by partition. There must be only one
        topic."""
        found = [position for one in self.consumers for position in one.position(one.assignment())]
        return [one.offset for one in sorted(found, key=lambda one: one.partition)]

    def close(self) -> None:
        for one in self.consumers:
            one.close()


@pytest.mark.parametrize("assignor", ["range,roundrobin", "cooperative-sticky"])
def test_librdkafka_shares_out_and_takes_over(broker: BrokerProcess, assignor: str) -> None:
    """With eager and with cooperative rebalances: two members share the topic, one leaves, and the
    other continues at the committed offsets."""
    topic = f"shared-{assignor.split(',')[0]}"
    create(broker, topic)
    produce(broker, topic, 600)
    readers = Reading(
        *(consumer(broker, topic, partition_assignment_strategy=assignor) for _ in range(2))
    )
    readers.consumers[0].subscribe([topic])
    readers.until(lambda: readers.shares() == [0, 6], "the first one has all")
    readers.consumers[1].subscribe([topic])
    readers.until(lambda: readers.shares() == [3, 3], "both have their share")
    readers.until(lambda: readers.positions() == [100] * 6, "all is read by who owns it")
    for one in readers.consumers:
        one.commit(asynchronous=False)
    readers.consumers.pop(0).close()
    readers.until(lambda: readers.shares() == [6], "one has taken over")
    before = len(readers.read)
    produce(broker, topic, 60)
    readers.until(lambda: len(readers.read) >= before + 60, "the rest is read")
    assert len(readers.read) == before + 60, "nothing is read again that was committed"
    readers.close()
    checked = check_group_log(group_log(broker.bootstrap, topic))
    assert checked.generations >= 3 and checked.commits >= 6


@pytest.mark.provokes("Static consumer fenced by other consumer")
def test_a_static_member_comes_back_without_a_rebalance(broker: BrokerProcess) -> None:
    create(broker, "static")
    names = ("i1", "i2")
    readers = Reading(*(consumer(broker, "static", group_instance_id=one) for one in names))
    for one in readers.consumers:
        one.subscribe(["static"])
    readers.until(lambda: readers.shares() == [3, 3], "both have their share")
    log = group_log(broker.bootstrap, "static")
    owned = readers.consumers[0].assignment()
    # A static member sends no LeaveGroup when it is closed, so the group keeps its partitions.
    readers.consumers[0].close()
    again = consumer(broker, "static", group_instance_id="i1")
    again.subscribe(["static"])
    readers.consumers[0] = again
    readers.until(lambda: readers.shares() == [3, 3], "it is back")
    assert again.assignment() == owned
    added = group_log(broker.bootstrap, "static")[len(log) :]
    generations = {one.generation for one in added if not isinstance(one, tuple)}
    assert generations == {log[-1].generation}, "its new id alone is noted"  # type: ignore[union-attr]  # a generation
    # A second consumer with the same group.instance.id fences the first one.
    twin = consumer(broker, "static", group_instance_id="i1")
    twin.subscribe(["static"])

    def is_fenced() -> bool:
        for one in (twin, readers.consumers[1]):
            one.consume(1, 0.02)
        errors = [message.error() for message in again.consume(10, 0.02)]
        return any(error is not None and "fenced" in error.str() for error in errors)

    wait_until(is_fenced, DEADLINE_S, "the older one is fenced")
    for one in (again, twin, readers.consumers[1]):
        one.close()


def test_a_pattern_takes_in_topics_that_come_later(broker: BrokerProcess) -> None:
    create(broker, "regex-one", 2)
    readers = Reading(consumer(broker, "regex", topic_metadata_refresh_interval_ms=500))
    readers.consumers[0].subscribe(["^regex-.*"])
    readers.until(lambda: readers.shares() == [2], "the first topic")
    create(broker, "regex-two", 3)
    readers.until(lambda: readers.shares() == [5], "the second as well")
    readers.close()


@pytest.mark.provokes(r"\|FAIL\|", r"\|ERROR\|.* brokers are down")
def test_pitfall_36_and_the_broker_may_die_in_the_middle(tmp_path: Path) -> None:
    """After kill -9 of the broker the members stay in their generation, without a rebalance."""
    with BrokerProcess(tmp_path, SETTINGS) as broker:
        create(broker, "killed")
        produce(broker, "killed", 300)
        readers = Reading(*(consumer(broker, "killed") for _ in range(2)))
        for one in readers.consumers:
            one.subscribe(["killed"])
        readers.until(lambda: readers.shares() == [3, 3], "both have their share")
        readers.until(lambda: readers.positions() == [50] * 6, "all is read by who owns it")
        for one in readers.consumers:
            one.commit(asynchronous=False)
        before = group_log(broker.bootstrap, "killed")
        owned = [one.assignment() for one in readers.consumers]
        broker.kill9()
        broker.start()
        produce(broker, "killed", 60)
        readers.until(lambda: len(set(readers.read)) == 360, "what came since is read")
        for one in readers.consumers:
            one.commit(asynchronous=False)
        assert [one.assignment() for one in readers.consumers] == owned
        added = group_log(broker.bootstrap, "killed")[len(before) :]
        assert len(added) == 6, "commits alone"
        assert all(isinstance(one, tuple) for one in added)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        asked = ConsumerGroupTopicPartitions("killed")
        stored = admin.list_consumer_group_offsets([asked])["killed"].result(10)
        assert sum(one.offset for one in stored.topic_partitions) == 360
        readers.close()
        assert "Traceback" not in broker.log_text()


def member_ids(admin: AdminClient, group: str) -> set[str]:
    described = admin.describe_consumer_groups([group])[group].result(10)
    return {one.member_id for one in described.members}


def test_groups_are_seen_emptied_and_deleted(broker: BrokerProcess) -> None:
    create(broker, "seen")
    produce(broker, "seen", 60)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    readers = Reading(consumer(broker, "seen", client_id="looker"))
    readers.consumers[0].subscribe(["seen"])
    readers.until(lambda: len(readers.read) == 60, "all is read")
    readers.consumers[0].commit(asynchronous=False)
    described = admin.describe_consumer_groups(["seen"])["seen"].result(10)
    assert described.state.name == "STABLE" and described.partition_assignor == "range"
    (member,) = described.members
    assert (member.client_id, member.host) == ("looker", "/127.0.0.1")
    assert len(member.assignment.topic_partitions) == PARTITIONS
    listed = admin.list_consumer_groups().result(10).valid
    assert "STABLE" in {one.state.name for one in listed if one.group_id == "seen"}
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups(["seen"])["seen"].result(10)
    readers.close()
    described = admin.describe_consumer_groups(["seen"])["seen"].result(10)
    assert described.state.name == "EMPTY" and not described.members
    new = ConsumerGroupTopicPartitions("seen", [TopicPartition("seen", 0, 4)])
    admin.alter_consumer_group_offsets([new])["seen"].result(10)
    admin.delete_consumer_groups(["seen"])["seen"].result(10)
    assert "seen" not in {one.group_id for one in admin.list_consumer_groups().result(10).valid}
    with pytest.raises(Exception, match="GROUP_ID_NOT_FOUND"):
        admin.delete_consumer_groups(["seen"])["seen"].result(10)


@pytest.mark.parametrize(
    ("families", "assignor", "ending"),
    [
        (("aiokafka", "aiokafka"), "range", signal.SIGTERM),
        (("kafka-python", "kafka-python"), "cooperative-sticky", signal.SIGTERM),
        (("confluent", "aiokafka", "kafka-python"), "range", signal.SIGKILL),
    ],
)
def test_members_of_a_family_or_of_several_share_a_topic(
    broker: BrokerProcess,
    tmp_path: Path,
    families: tuple[str, ...],
    assignor: str,
    ending: signal.Signals,
) -> None:
    """One member leaves, or dies and expires. The other members take over its partitions."""
    name = "-".join(families)
    create(broker, name)
    produce(broker, name, 600)
    members = Members(broker, tmp_path, name, name)
    for family in families:
        members.add(family, assignor=assignor)
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})

        def is_shared() -> bool:
            group = admin.describe_consumer_groups([name])[name].result(10)
            shares = [len(one.assignment.topic_partitions) for one in group.members]
            return group.state.name == "STABLE" and len(shares) == len(families) and all(shares)

        wait_until(is_shared, DEADLINE_S, "every member has a share")
        # The broker knows an assignment before the member has written it down. If the member died
        # in between, the count at the end of this test would be too small.
        wait_until(
            lambda: {one.member_id for one in members.given()} >= member_ids(admin, name),
            DEADLINE_S,
            "every member has noted its share",
        )
        members.end(0, ending)
        produce(broker, name, 600)
        wait_until(lambda: len(members.read()) == 1_200, DEADLINE_S, "all is read")
        wait_until(
            lambda: (
                len(admin.describe_consumer_groups([name])[name].result(10).members)
                == len(families) - 1
            ),
            DEADLINE_S,
            "one is gone",
        )
    finally:
        members.close()
    assert not members.errors()
    assert [line for line in members.said() if REBALANCES not in line] == []
    log = group_log(broker.bootstrap, name)
    checked = check_group_log(log)
    assert checked.generations >= 2 and checked.commits
    if assignor == "range":
        assert check_given(members.given(), log) >= 2 * len(families) - 1


def test_a_join_that_waits_holds_back_what_comes_behind_it(broker: BrokerProcess) -> None:
    """As in Kafka, the broker handles the requests of a connection in order. So a Heartbeat behind
    a parked JoinGroup is handled in the next generation."""
    prepare(broker.bootstrap, "in-order")
    stage = Stage(broker.bootstrap, "in-order")
    first, second = stage.player("first"), stage.player("second")
    settle(stage, first)
    second.join()
    second.hear()
    second.join()
    behind = HeartbeatRequest(
        group_id="in-order", generation_id=first.generation + 1, member_id=second.member_id
    )
    second.client.send(behind, 4)
    # The first member's heartbeat is answered in the meantime, because it uses another connection.
    wait_until(lambda: beat(first) == ErrorCode.REBALANCE_IN_PROGRESS, DEADLINE_S, "a rebalance")
    first.join()
    second.hear()
    assert second.generation == first.generation + 1
    assert second.client.receive().error_code == ErrorCode.NONE
    stage.close()


def test_kcat_reads_as_a_group(broker: BrokerProcess) -> None:
    program = shutil.which("kcat")
    if program is None:
        pytest.skip("kcat is not installed")
    create(broker, "kcat-group")
    produce(broker, "kcat-group", 300)
    for expected in (300, 0):
        done = subprocess.run(
            [program, "-b", broker.bootstrap, "-G", "kcat-group", "-e", "-q",
             "-X", "auto.offset.reset=earliest", "kcat-group"],
            capture_output=True,
            timeout=60,
            check=False,
            env=os.environ,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        assert len(done.stdout.split()) == expected, "the second one has nothing left to read"


@pytest.mark.provokes(r"^aiokafka\.consumer\.group_coordinator ")
def test_aiokafka_static_members_are_fenced_by_their_twins(broker: BrokerProcess) -> None:
    from aiokafka import AIOKafkaConsumer

    create(broker, "aio-static")

    async def run() -> int:
        def new() -> AIOKafkaConsumer:
            return AIOKafkaConsumer(
                "aio-static",
                bootstrap_servers=broker.bootstrap,
                group_id="aio-static",
                group_instance_id="i1",
                heartbeat_interval_ms=300,
            )

        async with asyncio.timeout(DEADLINE_S), new() as first:
            owned = first.assignment()
            async with new() as twin:
                assert twin.assignment() == owned
                return len(owned)

    assert asyncio.run(run()) == PARTITIONS
