"""Faults of three real brokers: their links are cut, they freeze, they die together, or a disk is
full.

Every consumer gets each acknowledged record once and in order, and the brokers recover
automatically.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.harness.chaos import pause
from tests.harness.cluster import ClusterProcesses
from tests.harness.faults import CUTS, SETTINGS, Faults
from tests.harness.mounts import Tmpfs
from tests.harness.seed import seeded

pytestmark = pytest.mark.live

BROKERS = ("leader", "controller", "follower")
"""The brokers that a fault can hit. If one broker has two of these roles, the test picks one role
at random."""

Cut = tuple[str, str, float]
"""The broker whose links are cut, the direction, and the duration in seconds."""
Freeze = tuple[str, float]
End = tuple[str, int, signal.Signals]
"""The broker that ends for certain, the number of brokers that end with it, and the signal."""

CUTS_SHORT: list[Cut] = [("leader", "both ways", 2), ("controller", "what it says", 2)]
FREEZES_SHORT: list[Freeze] = [("leader", 1)]
ENDS_SHORT: list[End] = [("leader", 3, signal.SIGKILL), ("controller", 2, signal.SIGTERM)]

CUTS_LONG: list[Cut] = [
    (who, how, seconds) for how in CUTS for seconds in (1, 3, 5, 7, 12) for who in BROKERS
]
"""105 cuts. Some are longer than the lag that a follower may have (5 s) or than a broker's session
(9 s), and some are shorter."""
FREEZES_LONG: Sequence[Freeze] = [
    (who, seconds) for seconds in (1, 3, 5, 8, 10, 12) for who in BROKERS
] * 3
"""54 freezes, about as long as the cuts."""
ENDS_LONG: Sequence[End] = [
    (who, count, how)
    for who in BROKERS[:2]
    for count in (1, 2, 3)
    for how in (signal.SIGKILL, signal.SIGTERM)
] * 17
"""408 brokers that end, half of them by `kill -9`."""

DISK_MIB = 48
FULL_S = (2, 8, 3, 8) * 5
"""The disk is full twenty times, for shorter and longer than the lag that a follower may have (5
s)."""


def run(
    folder: Path,
    name: str,
    cuts: Sequence[Cut] | None = None,
    freezes: Sequence[Freeze] | None = None,
    ends: Sequence[End] | None = None,
) -> None:
    """Cause one fault after the other. After each one the cluster and its clients must recover."""
    with (
        ClusterProcesses(folder, SETTINGS, with_links=True) as cluster,
        Faults(cluster, seeded(name)) as faults,
    ):
        faults.wait_until_whole("the start")
        for who, how, seconds in cuts or ():
            faults.cut(faults.role(who), how, seconds)
            faults.wait_until_whole(f"{who} cut off, {how}, for {seconds} s")
        for who, seconds in freezes or ():
            faults.freeze(faults.role(who), seconds)
            faults.wait_until_whole(f"{who} frozen for {seconds} s")
        for who, count, signal_number in ends or ():
            faults.end(faults.some(count, faults.role(who)), signal_number)
            faults.wait_until_whole(f"{who} and {count - 1} others ended by {signal_number.name}")
        faults.judge(f"three brokers, {name}")


def test_nothing_is_lost_or_doubled_over_a_fault_of_each_kind(tmp_path: Path) -> None:
    run(tmp_path, "faults of each kind", CUTS_SHORT, FREEZES_SHORT, ENDS_SHORT)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_nothing_is_lost_or_doubled_while_links_are_cut(tmp_path: Path) -> None:
    run(tmp_path, "cuts", cuts=CUTS_LONG)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_nothing_is_lost_or_doubled_while_brokers_freeze(tmp_path: Path) -> None:
    run(tmp_path, "freezes", freezes=FREEZES_LONG)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_nothing_is_lost_or_doubled_while_several_end_at_once(tmp_path: Path) -> None:
    run(tmp_path, "ends", ends=ENDS_LONG)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_nothing_is_lost_or_doubled_while_one_disk_is_full(tmp_path: Path) -> None:
    with (
        Tmpfs(tmp_path / "small", DISK_MIB) as disk,
        ClusterProcesses(tmp_path, SETTINGS, folders={2: disk.folder}) as cluster,
        Faults(cluster, seeded("full")) as faults,
    ):
        faults.wait_until_whole("the start")
        for seconds in FULL_S:
            disk.fill()
            pause(seconds)
            problems = [one.code for one in cluster.brokers[2].status().problems]
            assert "write_refused" in problems, problems
            disk.free()
            faults.counts["full disk"] += 1
            faults.wait_until_whole(f"a disk full for {seconds} s")
        disk.fill()
        faults.end([2], signal.SIGKILL)
        pause(FULL_S[0])
        disk.free()
        faults.wait_until_whole("a death on a full disk")
        faults.judge("three brokers, a full disk")
