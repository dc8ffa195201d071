"""Two hundred collectors of other hosts write while a broker is killed and connections are cut.

Every line arrives once: none is lost, none is doubled, and those of a file keep their order.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.harness.certificates import new_test_authority
from tests.harness.cluster import ClusterProcesses
from tests.harness.fleet import CLUSTER_SETTINGS, Fleet
from tests.harness.fleet_reader import FleetReader
from tests.harness.tally import tell
from tests.harness.wait import wait_until

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(1_800)]

COUNT = 200
LINES_PER_S = 5
BACK_S = 300.0


def all_commit(fleet: Fleet, reader: FleetReader) -> None:
    """Wait until each collector has committed lines that it has after this moment."""
    since_ms = time.time_ns() // 1_000_000
    wait_until(
        lambda: reader.has_ended or fleet.oldest_commit_ms > since_ms,
        BACK_S,
        "a commit of each collector",
        progress=lambda: reader.judge.total,
    )
    reader.check()
    fleet.check()


def test_lines_of_two_hundred_hosts_arrive_once_while_a_broker_is_killed(tmp_path: Path) -> None:
    authority = new_test_authority(tmp_path / "ca")
    cluster = ClusterProcesses(tmp_path, CLUSTER_SETTINGS, authority=authority, needs_login=True)
    with cluster:
        cluster.wait_for_controller()
        brokers = list(cluster.brokers.values())
        fleet = Fleet(tmp_path, brokers, authority.file, COUNT, lines_per_s=LINES_PER_S)
        with fleet, fleet.reader() as reader:
            fleet.write()
            all_commit(fleet, reader)
            cluster.wait_for_controller().kill9()
            all_commit(fleet, reader)
            fleet.cut()
            all_commit(fleet, reader)
            cluster.start()
            all_commit(fleet, reader)
            written = fleet.pause()
            assert len(written) == COUNT
            reader.wait_for_all(written)
            totals = fleet.totals()
            fleet.end()
    tell(
        f"fleet: {sum(written.values())} lines of {COUNT} collectors, lost 0, doubled 0; aborted "
        f"{totals['aborted']} transactions, started over {totals['started_over']} times"
    )
