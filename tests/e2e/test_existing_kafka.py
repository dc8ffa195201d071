"""The mill uses an existing cluster instead of its own brokers, as described in docs/kafka.md."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.e2e.mill import temp_mill
from tests.harness.broker import BrokerProcess
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

CONFIG = """
cluster: {{brokers: 3, bootstrap_servers: "{servers}", settings: {{num.partitions: 9}}}}
topics: [{{name: logs.access, partitions: 2}}]
collector: {{inputs: [{{paths: ["watched/access/**"], topic: logs.access}}]}}
stream: {{metrics: []}}
sinks: {{mysql: null}}
monitor: {{listen: 127.0.0.1:8090}}
"""
LINES = 1_000


def test_lines_go_to_the_cluster_that_exists(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "theirs", {"min.insync.replicas": 1}) as theirs,
        temp_mill(tmp_path / "mill") as mill,
    ):
        mill.write_config(CONFIG.format(servers=theirs.bootstrap))
        said = mill.up().err
        assert "cluster.settings (num.partitions) have no effect" in said
        assert set(mill.status()) == {"redis", "collector", "monitor"}
        written = b"".join(b"line %d\n" % number for number in range(LINES))
        (mill.home.folder / "watched" / "access" / "a.log").write_bytes(written)
        asked = {
            "bootstrap.servers": theirs.bootstrap,
            "group.id": "own",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
        found: list[bytes] = []
        consumer = Consumer(asked)
        consumer.subscribe(["logs.access"])
        try:
            wait_until(lambda: _read(consumer, found) >= LINES, 60, "all lines are there")
            assert b"".join(line + b"\n" for line in found) == written
            topics = consumer.list_topics(timeout=10).topics
            assert len(topics["logs.access"].partitions) == 2
        finally:
            consumer.close()
        refused = mill.run("backup", str(tmp_path / "backup"))
        assert refused.code != 0
        assert "cluster.bootstrap_servers names a cluster" in refused.err
        # The lag is known only after the monitor has asked the cluster for the group's offsets.
        wait_until(lambda: mill.run("lag", "own").code == 0, 30, "the group's lag is known")


def _read(consumer: Consumer, found: list[bytes]) -> int:
    for message in consumer.consume(LINES, 0.5):
        value = message.value()
        if message.error() is None and value is not None:
            found.append(value)
    return len(found)
