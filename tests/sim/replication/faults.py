"""Random faults at random times, drawn from the run's own source of random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.sim.replication.cluster import Cluster
from tests.sim.replication.events import CONTROLLER


def kill(cluster: Cluster) -> None:
    broker = cluster.brokers[cluster.chance.choice(cluster.nodes)]
    broker.kill()
    cluster.events.after(cluster.chance.randrange(1, 2_500), broker.start)


def lose_power(cluster: Cluster) -> None:
    broker = cluster.brokers[cluster.chance.choice(cluster.nodes)]
    broker.lose_power()
    cluster.events.after(cluster.chance.randrange(1, 2_500), broker.start)


def lose_all_power(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        broker.lose_power()
        cluster.events.after(cluster.chance.randrange(1, 2_500), broker.start)


def cut_one_way(cluster: Cluster) -> None:
    source, target = cluster.chance.sample((CONTROLLER, *cluster.nodes), 2)
    until_ms = cluster.events.now_ms + cluster.chance.choice((200, 1_000, 3_000))
    cluster.network.cut(source, target, until_ms)


def isolate(cluster: Cluster) -> None:
    """Cut one node off from all others, sometimes except from the controller."""
    node_id = cluster.chance.choice(cluster.nodes)
    until_ms = cluster.events.now_ms + cluster.chance.choice((1_000, 2_500, 7_000))
    others = [other for other in (CONTROLLER, *cluster.nodes) if other != node_id]
    for other in others[cluster.chance.randrange(2) :]:
        cluster.network.cut(node_id, other, until_ms)
        cluster.network.cut(other, node_id, until_ms)


def reset(cluster: Cluster) -> None:
    one, other = cluster.chance.sample((CONTROLLER, *cluster.nodes), 2)
    cluster.network.reset(one, other)


def stall(cluster: Cluster) -> None:
    broker = cluster.brokers[cluster.chance.choice(cluster.nodes)]
    broker.pause(cluster.chance.choice((100, 700, 2_500)))


def slow_disk(cluster: Cluster) -> None:
    broker = cluster.brokers[cluster.chance.choice(cluster.nodes)]
    broker.sync_ms = cluster.chance.choice(((1, 6), (20, 200), (300, 900)))


def slow_links(cluster: Cluster) -> None:
    cluster.network.slow_rate = cluster.chance.choice((0.0, 0.02, 0.2))
    cluster.network.slow_ms = cluster.chance.choice((50, 400, 2_000))


def move_leader(cluster: Cluster) -> None:
    partition = cluster.chance.choice(cluster.partitions)
    cluster.controller.prefer(partition, cluster.chance.choice(cluster.nodes))


def fence(cluster: Cluster) -> None:
    """Let the controller fence a living broker."""
    node_id = cluster.chance.choice(cluster.nodes)
    if node_id in cluster.controller.brokers:
        cluster.controller.fence(node_id)


def change_min_isr(cluster: Cluster) -> None:
    partition = cluster.chance.choice(cluster.partitions)
    cluster.controller.set_min_isr(partition, cluster.chance.choice((1, 2, 2)))


def move(cluster: Cluster) -> None:
    """Reassign a partition to other brokers. A reassignment can already be in progress."""
    target = cluster.chance.sample(cluster.nodes, cluster.chance.choice((1, 2, 2, 3, 3)))
    cluster.controller.move(cluster.chance.choice(cluster.partitions), target)


def cancel(cluster: Cluster) -> None:
    cluster.controller.move(cluster.chance.choice(cluster.partitions), None)


Fault = Callable[[Cluster], None]

ALL: tuple[tuple[Fault, int], ...] = (
    (kill, 3),
    (lose_power, 4),
    (lose_all_power, 1),
    (cut_one_way, 4),
    (isolate, 3),
    (reset, 2),
    (stall, 2),
    (slow_disk, 3),
    (slow_links, 2),
    (move_leader, 4),
    (fence, 3),
    (change_min_isr, 1),
)
"""All faults, each with its weight."""

MOVES: tuple[tuple[Fault, int], ...] = (*ALL, (move, 20), (cancel, 3))


def menu(cluster: Cluster, until_ms: int, choices: Sequence[tuple[Fault, int]] = ALL) -> None:
    """Schedule random faults until `until_ms`, some of them close together."""
    events, chance = cluster.events, cluster.chance
    faults = [fault for fault, _ in choices]
    weights = [weight for _, weight in choices]
    when_ms = events.now_ms + chance.randrange(200, 800)
    while when_ms < until_ms:
        fault = chance.choices(faults, weights)[0]
        events.at(when_ms, _happen, cluster, fault)
        when_ms += chance.choice((5, 40, 300, 900))


def _happen(cluster: Cluster, fault: Fault) -> None:
    cluster.note(CONTROLLER, "fault", fault.__name__)
    fault(cluster)
