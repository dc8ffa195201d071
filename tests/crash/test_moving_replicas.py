"""Three real brokers: a topic is reassigned to other brokers and back while a producer writes."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaError, Message, NewTopic

from protocol.errors import ErrorCode
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.harness.cluster import ClusterProcesses
from tests.harness.tally import tell
from tests.harness.wait import wait_until
from tests.harness.wire import WireClient

pytestmark = pytest.mark.live

TOPIC = "moved"
RECORDS = 10_000
MORE_AFTER_MOVE = 500
"""Records that must be acknowledged after each move before the test goes on."""

DEADLINE_S = 60.0


class Writer:
    """An idempotent producer with acks=all that writes numbers until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        self._is_stopped = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.sent = 0
        self.acknowledged = 0
        self.errors: list[KafkaError] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop writing, and wait until everything is acknowledged."""
        self._is_stopped.set()
        self._thread.join(DEADLINE_S)
        assert self._producer.flush(DEADLINE_S) == 0

    def wait_for(self, count: int) -> None:
        """Wait until this number of records has been acknowledged."""
        wait_until(lambda: self.acknowledged >= count, DEADLINE_S, f"{count} records are written")

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            self._producer.produce(TOPIC, b"%d" % self.sent, partition=0, callback=self._delivered)
            self.sent += 1
            # After the first RECORDS write more slowly, to leave CPU time for the brokers.
            self._producer.poll(0.001 if self.sent > RECORDS else 0)
            while len(self._producer) > 5_000:
                self._producer.poll(0.01)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        self.acknowledged += 1


def bootstrap_of(cluster: ClusterProcesses, node_id: int) -> str:
    return cluster.brokers[node_id].bootstrap


def moved(cluster: ClusterProcesses, replicas: list[int]) -> None:
    """Reassign the partition, and wait until no broker lists the reassignment."""
    partition = ReassignablePartition(partition_index=0, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=TOPIC, partitions=[partition])]
    )
    # Any broker forwards the request to the controller.
    with WireClient(bootstrap_of(cluster, replicas[-1])) as client:
        (answer,) = client.ask(request, 1).responses[0].partitions
    assert answer.error_code == ErrorCode.NONE, answer.error_message

    def is_done() -> bool:
        for node_id in cluster.node_ids:
            with WireClient(bootstrap_of(cluster, node_id)) as client:
                if client.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics:
                    return False
        return all(seen(cluster, node_id)[0] == replicas for node_id in cluster.node_ids)

    wait_until(is_done, DEADLINE_S, f"the partition is on {replicas}")


def seen(cluster: ClusterProcesses, node_id: int) -> tuple[list[int], int, int]:
    """Return a broker's metadata of the partition: its replicas, its leader and its leader
    epoch."""
    with WireClient(bootstrap_of(cluster, node_id)) as client:
        (topic,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 9).topics
    (one,) = topic.partitions
    return list(one.replica_nodes), one.leader_id, one.leader_epoch


def answer_of(cluster: ClusterProcesses, node_id: int) -> ErrorCode:
    """Return the error code of a broker's ListOffsets response for the partition."""
    partition = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[partition])])
    with WireClient(bootstrap_of(cluster, node_id)) as client:
        (answer,) = client.ask(request, 5).topics[0].partitions
    return ErrorCode(answer.error_code)


def read(cluster: ClusterProcesses, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    values: list[bytes] = []

    def is_read() -> bool:
        found = [one for one in consumer.consume(2_000, 0.2) if one.error() is None]
        values.extend(one.value() or b"" for one in found)
        return len(values) >= count

    wait_until(is_read, DEADLINE_S, f"{count} records are read")
    # There must be no further record.
    values.extend(one.value() or b"" for one in consumer.consume(1, 1.0) if one.error() is None)
    consumer.close()
    return values


def test_a_topic_moves_there_and_back_while_records_are_written(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topic = NewTopic(TOPIC, 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(30)
        writer = Writer(cluster.bootstrap)
        writer.start()
        writer.wait_for(RECORDS)
        epochs = [seen(cluster, 1)[2]]
        for replicas, former in (([3, 1], 2), ([1, 2], 3)):
            moved(cluster, replicas)
            # Trap 9: a former replica must not send UNKNOWN_TOPIC_OR_PARTITION, because clients
            # would give up.
            assert answer_of(cluster, former) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            # Trap 8: all brokers name the same leader and leader epoch.
            found = {seen(cluster, node_id)[1:] for node_id in cluster.node_ids}
            ((leader, epoch),) = found
            assert leader in replicas
            epochs.append(epoch)
            writer.wait_for(writer.acknowledged + MORE_AFTER_MOVE)
        writer.stop()
        assert epochs == sorted(set(epochs)), "the epoch rises with each move"
        assert writer.errors == []
        assert read(cluster, writer.sent) == [b"%d" % number for number in range(writer.sent)]
    tell(f"moving replicas: {writer.sent} records written over two moves, each read once, in order")
