"""The test cluster leaves no process behind, even if it never became ready."""

from pathlib import Path

import pytest

from tests.harness.cluster import ClusterProcesses

pytestmark = pytest.mark.live


def test_a_cluster_that_does_not_come_up_leaves_no_broker(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    cluster.brokers[1].settings["log.flush.interval.messages"] = "many"
    with pytest.raises(SystemExit), cluster:
        pass
    assert cluster.running == []


def test_one_broker_ends_and_comes_back(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster:
        before = cluster.pids()
        cluster.stop(2)
        cluster.kill9(3)
        assert cluster.pids() == before[:1]
        cluster.start()
        assert len(cluster.pids()) == 3
        assert not set(cluster.pids()[1:]) & set(before)
        cluster.wait_for_controller()
