"""Groups with members of several client libraries: ours, librdkafka, kafka-python and aiokafka.

The group's leader assigns for all members, so each library must read what the others write.
"""

import asyncio
import json
import subprocess
import threading
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import MappingProxyType
from typing import Any

import confluent_kafka
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AiokafkaRobin

from protocol.client.admin import Admin
from protocol.client.admin_types import TopicSpec
from protocol.client.cluster import Cluster
from protocol.types import TopicPartition
from tests.harness import kafka_python
from tests.harness.kafka import kafka_jars
from tests.interop.consumer_scenarios import Reader, partitions_of, produce, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

PARTITIONS = 8
RECORDS_EACH = 10
SESSION_MS = 6_000
HEARTBEAT_MS = 300

KAFKA_PYTHON = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
AIOKAFKA = {"range": AiokafkaRange, "roundrobin": AiokafkaRobin}


class Member:
    """A member of the group, and what it was assigned and has read. Each library has a subclass."""

    def __init__(self) -> None:
        self.seen: set[tuple[int, int]] = set()
        self.assigned: frozenset[TopicPartition] = frozenset()

    async def stop(self) -> None:
        """Leave the group with LeaveGroup, and end."""


class Ours(Member):
    """Our own consumer."""

    def __init__(self, cluster: Cluster, topic: str, assignor: str) -> None:
        super().__init__()
        self._reader = Reader(cluster, topic, assignors=(assignor,), session_timeout_ms=SESSION_MS)
        self._topic = topic

    async def start(self) -> None:
        await self._reader.start(self._topic)

    def look(self) -> None:
        self.assigned = self._reader.assignment
        self.seen = {(r.partition, r.offset) for r in self._reader.records}

    async def stop(self) -> None:
        await self._reader.stop()
        self.look()


class PollingMember(Member):
    """A member whose client has a blocking poll, which runs in a separate thread."""

    def __init__(self, cluster: Cluster, topic: str, assignor: str) -> None:
        super().__init__()
        addresses = cluster.bootstrap_servers
        self.bootstrap = ",".join(f"{host}:{port}" for host, port in addresses)
        self.topic = topic
        self.assignor = assignor
        self.is_over = threading.Event()
        self._thread = threading.Thread(target=self.run, daemon=True)

    async def start(self) -> None:
        self._thread.start()

    def look(self) -> None:
        """Do nothing, because the thread updates `seen` and `assigned` itself."""

    def run(self) -> None:
        raise NotImplementedError

    async def stop(self) -> None:
        self.is_over.set()
        await asyncio.to_thread(self._thread.join, 30)


class Librdkafka(PollingMember):
    """librdkafka, through confluent-kafka."""

    def run(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.topic,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": self.assignor,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        )
        consumer.subscribe([self.topic])
        while not self.is_over.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.seen.add((message.partition() or 0, message.offset() or 0))
            self.assigned = frozenset(
                TopicPartition(tp.topic, tp.partition) for tp in consumer.assignment()
            )
        consumer.close()


class KafkaPython(PollingMember):
    """kafka-python 3."""

    def run(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            consumer: Any = KafkaConsumer(
                self.topic,
                bootstrap_servers=self.bootstrap,
                group_id=self.topic,
                auto_offset_reset="earliest",
                partition_assignment_strategy=[KAFKA_PYTHON[self.assignor]],
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
            )
        while not self.is_over.is_set():
            for records in consumer.poll(timeout_ms=int(kafka_python.POLL_S * 1000)).values():
                self.seen.update((record.partition, record.offset) for record in records)
            self.assigned = frozenset(
                TopicPartition(tp.topic, tp.partition) for tp in consumer.assignment()
            )
        consumer.close()


class Java(PollingMember):
    """Java's own client in Kafka's verifiable consumer, which prints one JSON object per line."""

    ASSIGNORS = MappingProxyType(
        {
            "range": "RangeAssignor",
            "roundrobin": "RoundRobinAssignor",
            "sticky": "StickyAssignor",
            "cooperative-sticky": "CooperativeStickyAssignor",
        }
    )

    def __init__(self, cluster: Cluster, topic: str, assignor: str) -> None:
        super().__init__(cluster, topic, assignor)
        self._jars = kafka_jars()

    def run(self) -> None:
        strategy = f"org.apache.kafka.clients.consumer.{self.ASSIGNORS[self.assignor]}"
        command = ["java", "-Xmx128M", "-XX:TieredStopAtLevel=1", "-cp", f"{self._jars}/*"]
        command += ["org.apache.kafka.tools.VerifiableConsumer", "--verbose"]
        command += ["--bootstrap-server", self.bootstrap, "--topic", self.topic]
        command += ["--group-id", self.topic, "--assignment-strategy", strategy]
        command += ["--session-timeout", str(SESSION_MS)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        stopper = threading.Thread(target=self._stop, args=(process,), daemon=True)
        stopper.start()
        assert process.stdout is not None
        for line in process.stdout:
            self._heard(json.loads(line))
        process.wait()

    def _stop(self, process: "subprocess.Popen[bytes]") -> None:
        self.is_over.wait()
        process.terminate()

    def _heard(self, event: dict[str, Any]) -> None:
        tps = frozenset(
            TopicPartition(part["topic"], part["partition"])
            for part in event.get("partitions", ())
            if "topic" in part
        )
        match event["name"]:
            case "partitions_assigned":
                self.assigned |= tps
            case "partitions_revoked":
                self.assigned -= tps
            case "record_data":
                self.seen.add((event["partition"], event["offset"]))


class Aiokafka(Member):
    """aiokafka."""

    def __init__(self, cluster: Cluster, topic: str, assignor: str) -> None:
        super().__init__()
        host, port = cluster.bootstrap_servers[0]
        self._consumer: Any = AIOKafkaConsumer(
            topic,
            bootstrap_servers=f"{host}:{port}",
            group_id=topic,
            auto_offset_reset="earliest",
            partition_assignment_strategy=(AIOKAFKA[assignor],),
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        await self._consumer.start()
        async for record in self._consumer:
            self.seen.add((record.partition, record.offset))

    def look(self) -> None:
        self.assigned = frozenset(
            TopicPartition(tp.topic, tp.partition) for tp in self._consumer.assignment()
        )

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._consumer.stop()


Family = Callable[[Cluster, str, str], Any]


def mixed(assignor: str, *families: Family) -> Callable[[Cluster], Awaitable[None]]:
    """Return a scenario in which members of these libraries join in this order. The first member
    becomes the group's leader."""
    names = "_".join(getattr(family, "__name__", "").lower() for family in families)

    async def scenario(cluster: Cluster) -> None:
        topic = f"mixed-{assignor}-{names}"
        everything = partitions_of(topic, PARTITIONS)
        await Admin(cluster).ensure_topics([TopicSpec(topic, partitions=PARTITIONS)])
        members = [family(cluster, topic, assignor) for family in families]

        def is_shared() -> bool:
            for member in members:
                member.look()
            owned = [tp for member in members for tp in member.assigned]
            share = PARTITIONS // len(members)
            is_fair = all(len(member.assigned) >= share for member in members)
            return is_fair and len(owned) == PARTITIONS and frozenset(owned) == everything

        async with AsyncExitStack() as running:
            first, *others = members
            await first.start()
            running.push_async_callback(first.stop)
            await until(lambda: _look(first) == everything, "the first has all")
            for member in others:
                await member.start()
                running.push_async_callback(member.stop)
            await until(is_shared, "all share")
            everybody = list(members)
            await produce(cluster, topic, PARTITIONS, range(RECORDS_EACH))

            def seen() -> set[tuple[int, int]]:
                for member in members:
                    member.look()
                return {record for member in everybody for record in member.seen}

            await until(lambda: len(seen()) == PARTITIONS * RECORDS_EACH, "every record was read")
            running.pop_all()
            # Stop the leader first. The next leader must then assign partitions by what the members
            # of the other libraries report as owned.
            while members:
                gone = members.pop(0)
                await gone.stop()
                if members:
                    await until(is_shared, "the others share")

    scenario.__name__ = f"{assignor.replace('-', '_')}_{names}"
    return scenario


def _look(member: Any) -> frozenset[TopicPartition]:
    member.look()
    found: frozenset[TopicPartition] = member.assigned
    return found


QUICK = (
    mixed("range", Ours, Librdkafka, KafkaPython, Aiokafka),
    mixed("cooperative-sticky", Librdkafka, Ours, Ours),
)

ALL = (
    *QUICK,
    mixed("roundrobin", Librdkafka, Ours, Aiokafka, KafkaPython),
    mixed("cooperative-sticky", Ours, Librdkafka, KafkaPython),
    mixed("cooperative-sticky", KafkaPython, Ours, Librdkafka),
    *(mixed(assignor, Ours, Java) for assignor in Java.ASSIGNORS),
    *(mixed(assignor, Java, Ours, Librdkafka) for assignor in ("range", "cooperative-sticky")),
    mixed("sticky", Java, Ours),
)
