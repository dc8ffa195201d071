"""The disk rejects an operation for a while: a truncation, or the mark of a damaged log."""

from __future__ import annotations

import errno

from broker.replicas.damage import MARK_RETRY_MS
from broker.storage.errors import CorruptionError
from tests.sim.test_damage_in_service import assert_alike, leader_of, settle, with_one_to_be_cut
from tests.sim.test_damaged_replicas import ASIDE, LOG, cluster_with, is_settled, problems
from tests.sim.test_whole_brokers import is_in_service


def test_a_log_whose_place_to_be_cut_cannot_be_looked_for_is_cut_later() -> None:
    """The broker cannot find the truncation's position in the file, because it has no free file
    descriptor. It must retry, and not treat the log as damaged."""
    cluster, short = with_one_to_be_cut()
    refused: list[str] = []

    def fails(path: str, operation: str) -> bool:
        is_wanted = path == LOG and operation == "read"
        refused.extend([operation] if is_wanted else [])
        return is_wanted

    short.start()
    short.disk.refuses = fails
    short.disk.refusal = errno.EMFILE
    cluster.run_until(lambda: len(refused) > 1, 15_000, "it was tried again")
    assert not is_settled(cluster)
    short.disk.refuses = None
    settle(cluster)
    assert not short.disk.exists(ASIDE)
    assert_alike(cluster)
    assert [problems(one) for one in cluster.nodes] == [[], [], []]


def test_a_damaged_log_is_marked_as_soon_as_the_disk_lets_us() -> None:
    """The disk rejected the mark when the damage was found. The broker must retry, because after a
    restart only the mark shows the damage."""
    cluster, _ = cluster_with(1)
    hurt = leader_of(cluster)
    assert hurt.broker is not None
    (replica,) = [one for one in hurt.broker.parts.replicas if one.topic == "t"]
    hurt.disk.refuses = lambda path, operation: "found-damaged" in path
    hurt.broker.parts.replicas.read_failed(replica, CorruptionError(LOG, 0, "found"))
    cluster.run_for(3 * MARK_RETRY_MS)
    hurt.disk.refuses = None
    cluster.run_for(2 * MARK_RETRY_MS)
    hurt.kill()
    hurt.start()
    cluster.run_until(lambda: is_in_service(cluster), 15_000, "it serves")
    (problem,) = problems(hurt)
    assert "the only copy" in problem
