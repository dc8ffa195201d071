"""Three real brokers lose power at the same time, and no acknowledged record is lost.

`flush=ack` is the default, so every acknowledged record must be on the device of every in-sync
replica. The three folders are on one ext4 image, whose shutdown is the power cut
(`test_broker_power` explains why the brokers are frozen before it). `flush=interval` promises
nothing if all three brokers lose power together, so it is not tested.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.chaos import pause
from tests.harness.cluster import ClusterProcesses
from tests.harness.faults import SETTINGS, Faults
from tests.harness.mounts import Ext4Image
from tests.harness.seed import seeded

pytestmark = pytest.mark.live

CUTS_SHORT = 2
CUTS_LONG = 50
IMAGE_MIB = 512
LIVED_S_MAX = 2.0
"""The longest time from the recovery of the cluster to the next power cut, which comes at a random
time."""


def run(folder: Path, cuts: int) -> None:
    chance = seeded(f"three brokers, {cuts} power cuts")
    with Ext4Image(folder, IMAGE_MIB) as disk:
        cluster = ClusterProcesses(folder, SETTINGS, folders=dict.fromkeys((1, 2, 3), disk.folder))
        for one in cluster.brokers.values():
            # The power cut must not lose the process's log, so it is on the machine's own disk.
            one.log_file = folder / f"broker-{one.node_id}.log"
        with cluster, Faults(cluster, chance) as faults:
            faults.wait_until_whole("the start")
            for number in range(cuts):
                pause(chance.uniform(0, LIVED_S_MAX))
                faults.cut_power(disk)
                faults.wait_until_whole(f"power cut {number}")
                assert [one.status().problems for one in cluster.running] == [()] * 3
            faults.judge("three brokers, power cuts, flush=ack")
            cluster.stop()
        assert not disk.check()


def test_power_cuts_of_all_lose_nothing(tmp_path: Path) -> None:
    run(tmp_path, CUTS_SHORT)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_fifty_power_cuts_of_all_lose_nothing(tmp_path: Path) -> None:
    run(tmp_path, CUTS_LONG)
