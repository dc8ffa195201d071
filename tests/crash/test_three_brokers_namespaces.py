"""Three real brokers in network namespaces. Packets between them are lost, also in one direction
only.

When a proxy holds a connection back (`test_three_brokers_faults`), each end still gets TCP
acknowledgements. Here it gets none, so the kernel's own timeouts end a connection, and new
connections fail. Every consumer gets each acknowledged record once and in order.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.crash.test_three_brokers_faults import BROKERS, Cut
from tests.harness.cluster import ClusterProcesses
from tests.harness.faults import SETTINGS, Faults
from tests.harness.namespaces import Namespaces, can_be_made
from tests.harness.seed import seeded
from tests.harness.tally import tell
from tests.house import tree

pytestmark = pytest.mark.live

WAYS = ("both ways", "what it says", "what it hears", "one other", "one other, one way")
"""The cuts of `CUTS` in which packets are lost."""

CUTS_SHORT: list[Cut] = [("leader", "both ways", 3), ("controller", "what it hears", 3)]
CUTS_LONG: list[Cut] = [
    (who, how, seconds) for how in WAYS for seconds in (1, 3, 5, 7, 12) for who in BROKERS
]
"""75 cuts. Some are longer than a link lasts without acknowledgement (2 s), than the lag that a
follower may have (5 s), or than a broker's session (9 s). Some are shorter."""

PROGRAM = """
import sys
from pathlib import Path
from tests.crash import test_three_brokers_namespaces as these
these.run(Path(sys.argv[1]), sys.argv[2], getattr(these, sys.argv[2]))
"""


def run(folder: Path, name: str, cuts: Sequence[Cut]) -> None:
    """Make each cut in turn, and check that brokers and clients recover after it. The caller must
    be in a new network namespace."""
    with (
        Namespaces((1, 2, 3)) as namespaces,
        ClusterProcesses(folder, SETTINGS, namespaces=namespaces) as cluster,
        Faults(cluster, seeded(name)) as faults,
    ):
        faults.wait_until_whole("the start")
        for who, how, seconds in cuts:
            faults.cut(faults.role(who), how, seconds)
            faults.wait_until_whole(f"{who} cut off, {how}, for {seconds} s")
        faults.judge(f"three brokers in namespaces, {name}")


def run_alone(folder: Path, name: str) -> None:
    """Call `run` in another process, which has a new network namespace."""
    if not can_be_made():
        pytest.skip("network namespaces need root")
    done = subprocess.run(
        ["unshare", "--net", sys.executable, "-c", PROGRAM, str(folder), name],
        cwd=tree.ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout[-4_000:]}\n{done.stderr[-8_000:]}"
    for line in done.stdout.splitlines():
        tell(line)


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_doubled_while_packets_are_lost(tmp_path: Path) -> None:
    run_alone(tmp_path, "CUTS_SHORT")


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_nothing_is_lost_or_doubled_over_many_such_cuts(tmp_path: Path) -> None:
    run_alone(tmp_path, "CUTS_LONG")
