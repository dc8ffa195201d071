"""Three real brokers, of which one finds on its disk what it did not write."""

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


def test_a_replica_with_a_flipped_bit_is_put_aside_and_fetched_again(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("kept", 1, 3)])["kept"].result(30)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})

        def write(first: int) -> None:
            for number in range(first, first + RECORDS):
                producer.produce("kept", b"%d" % number, partition=0)
            assert producer.flush(30) == 0

        def in_sync() -> int:
            return len(admin.list_topics("kept", timeout=5).topics["kept"].partitions[0].isrs)

        write(0)
        leader = admin.list_topics("kept", timeout=5).topics["kept"].partitions[0].leader
        hurt = cluster.brokers[leader]
        wait_until(lambda: vouched_for(hurt) == RECORDS, 20, "all is vouched for")
        hurt.kill9()
        file = hurt.log_dir / LOG
        broken = bytearray(file.read_bytes())
        broken[70] ^= 1
        file.write_bytes(broken)
        write(RECORDS)
        hurt.start()
        wait_until(lambda: in_sync() == 3, 30, "all are in sync")
        write(2 * RECORDS)
        assert [one.status().problems for one in cluster.running] == [()] * 3
        (aside,) = hurt.log_dir.glob("kept-0.*-damaged")
        assert (aside / Path(LOG).name).read_bytes() == bytes(broken)
        # It leads again what it has fetched.
        for one in cluster.running:
            if one is not hurt:
                one.kill9()
                one.start()
        wait_until(lambda: in_sync() == 3, 30, "all are in sync")
        values = [value for _, value in read_everything(cluster.bootstrap, [PLACE]).records(PLACE)]
        assert values == [b"%d" % number for number in range(3 * RECORDS)]
        files = {(one.log_dir / LOG).read_bytes().rstrip(b"\0") for one in cluster.running}
        assert len(files) == 1


def vouched_for(broker: BrokerProcess) -> int:
    """Up to where its checkpoint says that the partition is on the disk."""
    points = decode_offsets((broker.log_dir / RECOVERY_POINTS).read_bytes())
    return points.get(TopicPartition(*PLACE), 0)
