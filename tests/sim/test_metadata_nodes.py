"""Three nodes make decisions together over links, disks and elections, with all faults."""

from collections.abc import Mapping

import pytest

from broker.sessions.versions import Versions
from tests.harness.seed import seeded
from tests.sim.metadata_nodes import MetadataCluster

CHAOS_MS = 6_000
SETTLED_MS = 4_000
LIVES = 12
MANY_LIVES = 500


def test_three_nodes_elect_one_and_all_learn_what_it_decides() -> None:
    cluster = MetadataCluster("three")
    cluster.run_until_active(3_000)
    cluster.run_for(1_000)
    cluster.network.timeline.run_for(1_000)
    cluster.judge()
    assert len(cluster.given) > 20
    assert len(cluster.leaders) == 1


def test_two_of_three_go_on_and_one_alone_does_not() -> None:
    cluster = MetadataCluster("two")
    first = cluster.run_until_active(3_000)
    first.kill()
    second = cluster.run_until_active(4_000)
    cluster.run_for(500)
    before = len(cluster.given)
    assert before > 5
    second.kill()
    cluster.run_for(8_000)
    assert len(cluster.given) == before
    assert cluster.active() is None
    first.start()
    cluster.run_until_active(8_000)
    second.start()
    cluster.run_for(500)
    cluster.network.timeline.run_for(SETTLED_MS)
    cluster.judge()
    assert len(cluster.given) > before


def live(seed: str, versions: Mapping[int, Versions | None] | None = None) -> MetadataCluster:
    """Perform one run of a cluster. All faults happen at random, and then they end."""
    cluster = MetadataCluster(seed, versions=versions)
    cluster.run_until_active(3_000)
    end_ms = cluster.network.timeline.clock.monotonic_ms() + CHAOS_MS
    while cluster.network.timeline.clock.monotonic_ms() < end_ms:
        cluster.run_for(cluster.chance.randint(40, 600))
        cluster.misbehave()
    cluster.mend()
    cluster.run_until_active(20_000)
    cluster.run_for(500)
    cluster.network.timeline.run_for(SETTLED_MS)
    cluster.judge()
    return cluster


def lives(count: int, name: str) -> None:
    chance = seeded(name)
    given = leaders = 0
    for _ in range(count):
        cluster = live(f"{name} {chance.getrandbits(32)}")
        given += len(cluster.given)
        leaders += len(cluster.leaders)
    # The average run has 80 blocks and 2.2 leaders. Far fewer would prove nothing.
    assert given > 10 * count
    assert leaders > count


def test_whatever_fails_what_was_answered_stays_and_all_agree() -> None:
    lives(LIVES, "metadata lives")


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_the_same_many_times() -> None:
    lives(MANY_LIVES, "many metadata lives")


def test_a_seed_gives_the_same_course_to_the_byte() -> None:
    first, second = (live("the same") for _ in range(2))
    assert first.network.trace_digest == second.network.trace_digest
    assert first.committed == second.committed
