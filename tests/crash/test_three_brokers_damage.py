"""Three real brokers, one of which finds damaged bytes in a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.storage.checkpoint import RECOVERY_POINTS, decode_offsets
from protocol.types import TopicPartition
from tests.harness.broker import BrokerProcess
from tests.harness.cluster import ClusterProcesses
from tests.harness.history import Place
from tests.harness.recorded import read_everything
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

SETTINGS = {"log.flush.offset.checkpoint.interval.ms": 300, "min.insync.replicas": 2}
RECORDS = 200
PLACE: Place = ("kept", 0)
LOG = f"kept-0/{0:020d}.log"


class Scene:
    """A cluster with one topic that contains numbered records."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self.cluster = cluster
        self._written = 0
        servers = {"bootstrap.servers": cluster.bootstrap}
        self._admin = AdminClient(servers | {"log_level": 0})
        self._producer = Producer(servers | {"enable.idempotence": True})
        self._admin.create_topics([NewTopic("kept", 1, 3)])["kept"].result(30)

    def write(self) -> None:
        """Write some more records, and wait until all are acknowledged."""
        for number in range(self._written, self._written + RECORDS):
            self._producer.produce("kept", b"%d" % number, partition=0)
        assert self._producer.flush(30) == 0
        self._written += RECORDS

    def leader(self) -> BrokerProcess:
        found = self._admin.list_topics("kept", timeout=5).topics["kept"].partitions[0].leader
        return self.cluster.brokers[found]

    def wait_until_in_sync(self) -> None:
        def is_in_sync() -> bool:
            topic = self._admin.list_topics("kept", timeout=5).topics["kept"]
            return len(topic.partitions[0].isrs) == 3

        wait_until(is_in_sync, 30, "all are in sync")

    def judge(self, hurt: BrokerProcess, broken: bytes) -> None:
        """Check that no record is lost, and that `hurt` kept the damaged folder. Restart the other
        brokers, so that the new copy of `hurt` must be complete."""
        assert [one.status().problems for one in self.cluster.running] == [()] * 3
        (aside,) = hurt.log_dir.glob("kept-0.*-damaged")
        assert (aside / Path(LOG).name).read_bytes().rstrip(b"\0") == broken.rstrip(b"\0")
        for one in self.cluster.running:
            if one is not hurt:
                one.kill9()
                one.start()
        self.wait_until_in_sync()
        read = read_everything(self.cluster.bootstrap, [PLACE]).records(PLACE)
        assert [value for _, value in read] == [b"%d" % number for number in range(self._written)]
        files = {(one.log_dir / LOG).read_bytes().rstrip(b"\0") for one in self.cluster.running}
        assert len(files) == 1


def test_a_replica_with_a_flipped_bit_is_put_aside_and_fetched_again(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, SETTINGS) as cluster:
        scene = Scene(cluster)
        scene.write()
        hurt = scene.leader()
        wait_until(lambda: vouched_for(hurt) == RECORDS, 20, "all is vouched for")
        hurt.kill9()
        broken = flip(hurt, 70)
        scene.write()
        hurt.start()
        scene.wait_until_in_sync()
        scene.write()
        scene.judge(hurt, broken)


def test_a_leader_that_is_damaged_while_it_serves_hands_over(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, SETTINGS) as cluster:
        scene = Scene(cluster)
        scene.write()
        hurt = scene.leader()
        behind = next(one for one in cluster.running if one is not hurt)
        behind.kill9()
        scene.write()
        broken = flip(hurt, len((hurt.log_dir / LOG).read_bytes().rstrip(b"\0")) - 1)
        behind.start()
        wait_until(lambda: scene.leader() is not hurt, 20, "another leads")
        assert scene.leader() is not behind
        scene.wait_until_in_sync()
        scene.write()
        scene.judge(hurt, broken)


def flip(broker: BrokerProcess, position: int) -> bytes:
    """Flip one bit of the log file. Return the file's content afterwards."""
    with (broker.log_dir / LOG).open("r+b") as file:
        content = bytearray(file.read())
        content[position] ^= 1
        file.seek(position)
        file.write(content[position : position + 1])
    return bytes(content)


def vouched_for(broker: BrokerProcess) -> int:
    """Return the partition's recovery point from the checkpoint file."""
    points = decode_offsets((broker.log_dir / RECOVERY_POINTS).read_bytes())
    return points.get(TopicPartition(*PLACE), 0)
