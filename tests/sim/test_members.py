"""Who belongs to the cluster: registration, heartbeats and verdicts over a network with faults."""

from tests.sim.member_nodes import MemberCluster


def settled(seed: str) -> MemberCluster:
    cluster = MemberCluster(seed)
    cluster.settle()
    return cluster


def test_all_register_and_come_into_service() -> None:
    cluster = MemberCluster("members")
    cluster.settle()
    assert cluster.now_ms < 3_000
    cluster.network.timeline.run_for(30_000)
    assert cluster.in_service() == {1, 2, 3}
    assert [what for node in cluster.members for _, what in node.heard] == ["unfenced"] * 3
    assert all(len(epochs) == 1 for epochs in cluster.epochs.values())


def test_a_killed_broker_is_out_of_service_at_once() -> None:
    cluster = settled("killed")
    dead = cluster.follower()
    dead.kill()
    took_ms = cluster.pass_until(
        lambda: dead.node_id not in cluster.in_service(), 1_000, "it is fenced"
    )
    assert took_ms <= 100
    dead.start()
    cluster.settle()
    assert len(cluster.epochs[dead.node_id]) == 2
