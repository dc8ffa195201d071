"""Nodes that replicate over links and disks with all faults."""

import pytest

from tests.harness.seed import seeded
from tests.sim.replicated_nodes import FAULTS, MOVES, ReplicatedCluster
from tests.sim.replicated_scripts import end_of, log_of, settled, until

CHAOS_MS = 5_000
LIVES = 4
MANY_LIVES = 400


def test_three_nodes_copy_and_acknowledge() -> None:
    cluster = ReplicatedCluster("three")
    cluster.pass_time(1_500)
    cluster.run_for(1_000)
    cluster.heal()
    assert len(cluster.acked) > 40


def live(
    seed: str, size: int = 3, chaos_ms: int = CHAOS_MS, faults: tuple[str, ...] = FAULTS
) -> ReplicatedCluster:
    """Perform one run of a cluster. All faults happen at random, and then they end."""
    cluster = ReplicatedCluster(seed, size, faults=faults)
    try:
        cluster.pass_time(1_000)
        end_ms = cluster.now_ms + chaos_ms
        while cluster.now_ms < end_ms:
            cluster.run_for(cluster.chance.choice((5, 60, 400)))
            cluster.misbehave()
        cluster.heal()
    except BaseException as error:
        which = "MOVES" if faults is MOVES else "FAULTS"
        again = f"live({seed!r}, {size}, {chaos_ms}, {which})"
        error.add_note(f"at {cluster.now_ms} ms; replay: {again}")
        raise
    return cluster


def lives(
    count: int,
    name: str,
    sizes: tuple[int, ...] = (2, 3, 3),
    faults: tuple[str, ...] = FAULTS,
) -> None:
    chance = seeded(name)
    clusters = [
        live(f"{name} {chance.getrandbits(32)}", chance.choice(sizes), faults=faults)
        for _ in range(count)
    ]
    # The average run has 120 records, and about one in a hundred has fewer than 4. Far fewer in
    # all runs together would prove nothing.
    assert sum(len(one.acked) for one in clusters) > 5 * count


def test_whatever_fails_what_was_acknowledged_stays_and_all_logs_are_one() -> None:
    lives(LIVES, "replicated lives")


def test_replicas_that_are_taken_away_and_come_back_lose_nothing() -> None:
    lives(LIVES, "moved lives", (3, 4), MOVES)


def test_a_log_that_cannot_be_truncated_yet_still_has_what_is_committed() -> None:
    """A full disk prevents a deposed leader from truncating its log, but the recovery point is
    already lowered. The committed records must still count as durable."""
    cluster, deposed, (second, third) = settled("full")
    committed = end_of(deposed)
    for other in (second, third):
        cluster.network.cut(deposed.host, other.host)
    for _ in range(3):
        assert deposed.write(0, b"alone") is not None
        cluster.pass_time(20)
    cluster.controller.prefer(0, second.node_id)
    until(cluster, lambda: second.find(0) is not None)
    deposed.disk.refuses = lambda path, operation: operation == "write"
    cluster.network.heal()
    until(cluster, lambda: log_of(deposed).recovery_point < committed)
    cluster.advanced(0, committed)
    cluster.heal()


def test_a_node_with_older_metadata_keeps_folders_of_topics_it_has_not_heard_of() -> None:
    live("replicated lives 761325344", 2)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_same_many_times() -> None:
    lives(MANY_LIVES, "many replicated lives")
    lives(MANY_LIVES, "many moved lives", (3, 4), MOVES)


def test_a_seed_gives_the_same_course_to_the_byte() -> None:
    first, second = (live("the same", 3, 1_500) for _ in range(2))
    assert first.network.trace_digest == second.network.trace_digest
    assert first.committed == second.committed
