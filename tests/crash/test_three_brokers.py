"""Three real brokers: one cluster, whichever of them dies."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness.cluster import ClusterProcesses
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = pytest.mark.live

KILLS = 5


def test_a_controller_that_is_killed_is_replaced(tmp_path: Path) -> None:
    took_ms = []
    with ClusterProcesses(tmp_path) as cluster:
        for _ in range(KILLS):
            killed = cluster.wait_for_controller()
            assert [one["voters"] for one in cluster.details()] == [[1, 2, 3]] * 3
            begin = time.monotonic()
            killed.kill9()
            cluster.wait_for_controller()
            took_ms.append(round((time.monotonic() - begin) * 1_000))
            killed.spawn()
        cluster.wait_for_controller()

        def ends() -> set[int]:
            return {one["metadata_offset"] for one in cluster.details()}

        wait_until(lambda: len(ends()) == 1, 10, "all know the same")
    tell(f"three brokers: {KILLS} controllers killed, another one known after {took_ms} ms")


def test_a_cluster_begins_only_when_all_are_up_and_says_for_whom_it_waits(tmp_path: Path) -> None:
    cluster = ClusterProcesses(tmp_path)
    one, two, three = cluster.brokers.values()
    try:
        for late in (two, one):
            late.spawn()
        wait_until(lambda: one.status().details["cluster_waits_for"] == [3], 10, "it waits for 3")
        wait_until(lambda: two.status().details["cluster_waits_for"] == [1], 10, "it waits for 1")
        assert one.stop() == 0, "a broker that waits can be stopped"
        one.spawn()
        three.spawn()
        cluster.wait_for_controller()
    finally:
        for broker in cluster.running:
            broker.kill9()
