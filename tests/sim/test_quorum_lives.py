"""Many runs of a metadata quorum, each from a seed. All faults happen for a while, and then they
end.

`quorum_checks` checks these invariants after every event. There is one leader per epoch, and one
vote per epoch and directory. Committed records are on a majority's disks and never change. Images
at equal offsets are equal. Every request is answered once, and no message is sent before its
barrier. After the faults a leader is elected, and all replicas make progress within 30 simulated
seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.seed import seeded
from tests.sim.quorum_world import Mix, World, run

MIXES = (
    Mix(),
    Mix(full_disk=1_500),
    Mix(crash=0, all_crash=2_500),
    Mix(wipe=3_000),
    Mix(short_snapshot=True, snapshot=300),
    Mix(slow_disk=800),
    Mix(cut=400, loss=0.05),
    Mix(copy=500, cut=1_000),
    Mix(copy=250, slow_disk=800),
)
VOTERS = (3, 5, 3, 1)

CHANGING = (
    Mix(change=40),
    Mix(change=40, wipe=1_500),
    Mix(change=40, crash=0, all_crash=1_000),
    Mix(change=40, full_disk=1_000),
    Mix(change=40, slow_disk=500),
    Mix(change=40, cut=400, loss=0.05),
    Mix(change=40, resign=400, verdict=800),
)
SIZES = ((1, 2), (3, 0), (2, 2), (3, 2), (5, 0), (1, 4))
"""The numbers of voters and observers at the start of a run in which the voters change."""

SHORT_MS = 3_000
LONG_MS = 12_000


def live(seed: str, number: int, chaos_ms: int) -> World:
    """Perform one run of a seed. If it fails, add the numbers of the run to the error."""
    voters = VOTERS[number % len(VOTERS)]
    mix = MIXES[number % len(MIXES)]
    observers = number % 3
    try:
        return run(f"{seed}:{number}", voters, observers, mix, chaos_ms)
    except Exception as error:
        error.add_note(f"life {number} of {seed}: {voters} voters, {observers} observers, {mix}")
        raise


def live_with_changes(seed: str, number: int, chaos_ms: int) -> World:
    """Perform one run of a seed in which the voters change, too."""
    voters, observers = SIZES[number % len(SIZES)]
    mix = CHANGING[number % len(CHANGING)]
    try:
        return run(f"{seed}:{number}", voters, observers, mix, chaos_ms)
    except Exception as error:
        error.add_note(f"life {number} of {seed}: {voters} voters, {observers} observers, {mix}")
        raise


def live_many_with_changes(seed: str, numbers: range, chaos_ms: int) -> None:
    checks = [live_with_changes(seed, number, chaos_ms).check for number in numbers]
    assert sum(check.end_offset for check in checks) > 30 * len(checks)
    assert sum(check.change_count for check in checks) > 3 * len(checks)
    assert sum(check.reported_count for check in checks) > 2 * len(checks)


def live_many(seed: str, numbers: range, chaos_ms: int) -> None:
    worlds = [live(seed, number, chaos_ms) for number in numbers]
    # Runs in which little happens would find nothing, so check that much has happened.
    assert sum(world.check.end_offset for world in worlds) > 30 * len(worlds)
    assert 2 * sum(len(world.check.leaders) for world in worlds) > 3 * len(worlds)


def test_a_hundred_lives() -> None:
    seed = str(seeded("quorum lives").randrange(2**32))
    live_many(seed, range(100), SHORT_MS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_five_thousand_lives(part: int) -> None:
    seed = str(seeded(f"quorum lives, part {part}").randrange(2**32))
    live_many(seed, range(100), LONG_MS)


def test_a_hundred_lives_with_changing_voters() -> None:
    seed = str(seeded("quorum lives with changing voters").randrange(2**32))
    live_many_with_changes(seed, range(100), SHORT_MS)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_five_thousand_lives_with_changing_voters(part: int) -> None:
    seed = str(seeded(f"quorum lives with changing voters, part {part}").randrange(2**32))
    live_many_with_changes(seed, range(100), LONG_MS)


def test_a_life_is_the_same_under_any_hash_seed() -> None:
    program = (
        "from tests.sim.test_quorum_lives import live\n"
        "print(*[live('hash', number, 2_000).trace_digest for number in (0, 3, 4)])\n"
    )
    root = Path(__file__).parents[2]

    def printed(hash_seed: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    first = printed("1")
    assert first == printed("2")
    assert len(set(first.split())) == 3
