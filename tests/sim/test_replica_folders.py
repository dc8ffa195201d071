"""AlterReplicaLogDirs, which a client sends to any broker with a replica, leader or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.world import Address
from protocol.errors import ErrorCode
from protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from protocol.types import TopicPartition
from tests.sim.clients import Client, Script, topic_made
from tests.sim.test_leaving import TOPIC, client_of, in_service, leaders
from tests.sim.whole_brokers import HOST_PORT, WholeBroker, WholeCluster


@pytest.fixture(scope="module")
def cluster() -> WholeCluster:
    """Return a cluster with one partition that has replicas on two of the three brokers."""
    cluster = in_service("folders")
    made = client_of(cluster, "m", topic_made(TOPIC, 1, replication_factor=2))
    cluster.run_until(lambda: made.is_done and all(map(knows, cluster.nodes)), 5_000, "a topic")
    return cluster


def knows(node: WholeBroker) -> bool:
    return TOPIC in node.metadata.image.topics


def moved(cluster: WholeCluster, node: WholeBroker, folder: str | None = None) -> ErrorCode:
    """Ask a broker to move its replica to `folder`, by default the folder in which it is. Return
    the error code."""
    assert node.broker is not None
    own = str(Path(node.broker.config.log_dir).absolute())
    topic = AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])
    wanted = AlterReplicaLogDir(path=folder or own, topics=[topic])
    codes: list[ErrorCode] = []

    def asks() -> Script:
        answer = yield AlterReplicaLogDirsRequest(dirs=[wanted])
        codes.append(ErrorCode(answer.results[0].partitions[0].error_code))

    where = {node.node_id: Address(node.host, HOST_PORT)}
    Client(cluster.network, f"a{node.node_id}-{bool(folder)}", where, asks())
    cluster.run_until(lambda: codes, 1_000, "an answer")
    return codes.pop()


def test_a_replica_may_stay_whether_it_leads_or_follows(cluster: WholeCluster) -> None:
    holders = [node for node in cluster.nodes if holds(node)]
    assert leaders(cluster)[0] in [node.node_id for node in holders]
    assert [moved(cluster, node) for node in holders] == [ErrorCode.NONE, ErrorCode.NONE]


def test_who_has_no_replica_says_so_in_kafkas_word(cluster: WholeCluster) -> None:
    (other,) = (node for node in cluster.nodes if not holds(node))
    assert moved(cluster, other) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert moved(cluster, other, "/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND


def holds(node: WholeBroker) -> bool:
    assert node.broker is not None
    held = {one.topic_partition for one in node.broker.parts.replicas}
    return TopicPartition(TOPIC, 0) in held
