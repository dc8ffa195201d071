"""Brokers on three hosts and collectors on five more, each in its own network namespace, while each
process, host and link fails.

The main host and the five others write logs that are rotated. MySQL and Redis have the exact count
of each of them at the end, and the page names what is away. The main host has a broker and all
other parts of the mill: a main host without a broker is not offered (docs/howto/three-hosts.md).

MILLRACE_NETWORK_LINES is the number of lines. For the long form set it to 5000000.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.e2e.network_scene import network_scene
from tests.harness.seed import seeded
from tests.harness.tally import tell

LINES = int(os.environ.get("MILLRACE_NETWORK_LINES", "400000"))
LINES_OF_A_ROUND = 1_000_000
"""Each fault happens once in a round, in random order."""

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.timeout(5_400 + LINES // 200)]


def test_counts_of_all_hosts_are_exact_while_everything_fails(tmp_path: Path) -> None:
    chance = seeded("whole network")
    rounds = max(1, LINES // LINES_OF_A_ROUND)
    with network_scene(tmp_path, chance) as scene:
        kinds = scene.faults()
        faults = [one for _ in range(rounds) for one in chance.sample(kinds, len(kinds))]
        share = -(-LINES // len(scene.writers))  # rounded up
        begin_s = time.monotonic()
        for writer in scene.writers.values():
            writer.start()
        for number, fault in enumerate(faults, 1):
            scene.allow(share * number // len(faults))
            print(f"{time.strftime('%H:%M:%S')} {fault.name}", flush=True)
            scene.inject(fault)
            scene.wait_until_whole()
            scene.wait_until_written()
        written_s = time.monotonic() - begin_s
        scene.wait_until_counted()
        took_s = time.monotonic() - begin_s
        total = sum(one.count for one in scene.writers.values())
        rotated = sum(one.rotations for one in scene.writers.values())
        tell(
            f"whole network: {total} lines of {len(scene.writers)} writing hosts, lost 0, "
            f"doubled 0; {len(faults)} faults, {rotated} rotations; written in {written_s:.0f} s, "
            f"counted after {took_s:.0f} s, {total / took_s:.0f} lines/s"
        )
        named = ", ".join(f"{name} {one:.1f} s" for name, one in sorted(scene.named_s.items()))
        tell(f"  named after at most: {named}")
