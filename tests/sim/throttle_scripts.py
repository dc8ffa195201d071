"""Copies that are delayed by a rate, by the queue of copies, or by a disk that is nearly full."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from broker.replicas import copies
from broker.replication import copy_queue
from broker.replication.leader import REPLICA_LAG_TIME_MAX_MS
from broker.sessions.peers import LinkKind
from protocol.types import TopicPartition
from tests.sim.catch_up_scripts import (
    ANSWER_BYTES,
    COPIED,
    LIVE,
    has_ended,
    is_copied,
    link_of,
    missing,
    returning,
    small_answers,
)
from tests.sim.replicated_node import TOPIC, ReplicatedNode
from tests.sim.replicated_nodes import ReplicatedCluster
from tests.sim.replicated_scripts import until

RATE = 4_000
"""Bytes per second. The copy has about 22,000 bytes."""
QUICK_MS = 150
"""The longest time of an acknowledgement that does not wait for a copy."""


def size_of(node: ReplicatedNode, index: int = COPIED) -> int:
    log = node.logs.get(TopicPartition(TOPIC, index))
    return 0 if log is None else log.size_bytes


def limit(node: ReplicatedNode, side: str, rate: int) -> None:
    """Set the throttle rate of one side, as IncrementalAlterConfigs does on a running broker."""
    key = f"{side}.replication.throttled.rate"
    node.settings.config = node.settings.config.with_dynamic({}, {key: str(rate)})


def listed(
    seed: str, replicas: str, batches: int = 60
) -> tuple[ReplicatedCluster, ReplicatedNode, ReplicatedNode]:
    """Return a cluster, its third node, and the leader. The third node must copy many records.
    `replicas` is the value of both lists of throttled replicas.

    The third node was down for so long that the leader does not wait for it.
    """
    lists = {f"{side}.replication.throttled.replicas": replicas for side in ("leader", "follower")}
    cluster, third = returning(seed, batches, lists, REPLICA_LAG_TIME_MAX_MS + 1_000)
    third.world.job_ms_by_name.clear()
    return cluster, third, cluster.nodes[1]


def has_copied(cluster: ReplicatedCluster, node: ReplicatedNode) -> bool:
    return not missing(cluster, node)


def is_in_sync(cluster: ReplicatedCluster, node: ReplicatedNode) -> bool:
    """Return True if a node is in sync in LIVE, the partition that is not copied."""
    return node.node_id in cluster.controller.parts[LIVE].isr


def is_acknowledged_quickly(cluster: ReplicatedCluster, leader: ReplicatedNode) -> None:
    began_ms = cluster.now_ms
    write = leader.write(LIVE, b"live")
    assert write is not None
    until(cluster, partial(has_ended, write))
    took_ms = cluster.now_ms - began_ms
    assert write.end == "acknowledged" and took_ms < QUICK_MS, f"{took_ms} ms"


def _keeps_to_its_rate(side: str, replicas: str) -> None:
    with small_answers():
        cluster, third, leader = listed(f"rate {side} {replicas}", replicas)
        limit(leader if side == "leader" else third, side, RATE)
        began_ms, before = cluster.now_ms, size_of(third)
        until(cluster, partial(is_in_sync, cluster, third))
        while missing(cluster, third):
            is_acknowledged_quickly(cluster, leader)
            copied, passed_ms = size_of(third) - before, cluster.now_ms - began_ms
            bound = RATE * passed_ms // 1_000 + RATE + ANSWER_BYTES
            assert copied <= bound, f"{copied} bytes in {passed_ms} ms"
            assert passed_ms < 15_000, "it is slower than its rate"
        assert cluster.now_ms - began_ms > 3_000, "nothing held it back"
        cluster.heal()


def a_leader_keeps_to_its_rate() -> None:
    """I21 and I22: the list names every replica, but an in-sync replica is never throttled
    (KIP-73)."""
    _keeps_to_its_rate("leader", "*")


def a_follower_keeps_to_its_rate() -> None:
    _keeps_to_its_rate("follower", "*")


def a_list_names_single_replicas() -> None:
    """The leader's list names the leader's replica, and the follower's list the follower's."""
    _keeps_to_its_rate("leader", f"{COPIED}:1")
    _keeps_to_its_rate("follower", f"{COPIED}:3")


def what_no_list_names_is_not_limited() -> None:
    """Trap 15 (KAFKA-4200): a rate must not throttle a partition that no list names."""
    for side, replicas in (("leader", f"{LIVE}:1"), ("follower", f"{COPIED}:1"), ("leader", "")):
        with small_answers():
            cluster, third, leader = listed(f"outside {side} {replicas}", replicas)
            limit(leader if side == "leader" else third, side, 0)
            until(cluster, partial(has_copied, cluster, third))
            cluster.heal()


def a_rate_changes_under_a_running_copy() -> None:
    """Trap 15 (KAFKA-10143): with a rate of 0 nothing is copied, and in-sync partitions are not
    affected. A new rate takes effect at once."""
    for side in ("leader", "follower"):
        with small_answers():
            cluster, third, leader = listed(f"change {side}", f"{COPIED}:1,{COPIED}:3")
            limited = leader if side == "leader" else third
            limit(limited, side, 0)
            until(cluster, partial(is_copied, third), 1)
            cluster.pass_time(2_000)
            rest = missing(cluster, third)
            assert rest > 50, "a rate of 0 copies"
            until(cluster, partial(is_in_sync, cluster, third))
            is_acknowledged_quickly(cluster, leader)
            limit(limited, side, 10**9)
            cluster.pass_time(1_500)
            assert not missing(cluster, third), "the new rate does not count"
            cluster.heal()


def followers_share_a_rate() -> None:
    """Two followers return at once. Neither may have to wait until the other one has everything."""
    with small_answers():
        cluster, third, leader = listed("share", "*", 12)
        second = cluster.nodes[2]
        until(cluster, partial(has_copied, cluster, third))
        until(cluster, lambda: len(cluster.controller.parts[COPIED].isr) == 3)
        cluster.settings["min.insync.replicas"] = "1"
        for index in (COPIED, LIVE):
            cluster.controller.set_min_isr(index, 1)
        for node in (second, third):
            node.kill()
            cluster.controller.fence(node.node_id)
        for _ in range(120):
            assert leader.write(COPIED, b"x" * 300) is not None
            cluster.pass_time(3)
        limit(leader, "leader", RATE)
        for node in (second, third):
            node.start()
        before = {node: size_of(node) for node in (second, third)}
        cluster.pass_time(6_000)
        shares = [size_of(node) - before[node] for node in (second, third)]
        assert min(shares) > sum(shares) // 4, shares
        limit(leader, "leader", 10**9)
        cluster.heal()


def large_copies_wait_for_their_turn() -> None:
    """Of two large copies only one runs at a time. Both complete although no client sends
    requests."""
    with small_answers(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_queue, "LARGE_BYTES", 3_000)
        patch.setattr(copy_queue, "LARGE_COPIES_MAX", 1)
        cluster, third, _ = listed("queue", "", 0)
        third.kill()
        cluster.controller.fence(third.node_id)
        leader = cluster.nodes[1]
        for _ in range(60):
            for index in (COPIED, LIVE):
                assert leader.write(index, b"x" * 300) is not None
            cluster.pass_time(3)
        third.start()
        third.world.job_ms_by_name["flush-catch-up"] = 20, 20
        until(cluster, lambda: is_copied(third) and missing(cluster, third) < 50, 1)
        sides = [missing(cluster, third, index) for index in (COPIED, LIVE)]
        until(cluster, lambda: min(missing(cluster, third, i) for i in (COPIED, LIVE)) < 10, 1)
        rests = [missing(cluster, third, index) for index in (COPIED, LIVE)]
        assert max(rests) > 55, f"both were copied: {sides}, then {rests}"
        cluster.heal()
        assert not missing(cluster, third, COPIED) + missing(cluster, third, LIVE)


def has_no_room(node: ReplicatedNode) -> bool:
    return node.followers.copies.is_out_of_room


def a_nearly_full_disk_pauses_copies() -> None:
    """Copies to a nearly full disk are paused, because a full disk accepts no writes at all
    (CruiseControl#1590). A partition that lacks little continues, such as LIVE, which is not in
    sync either when the broker returns."""
    with small_answers(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies, "ROOM_COPY_BYTES", 3_000)
        # "Nearly full" is half of the disk here, so that a whole Fetch response still fits.
        patch.setattr(copies, "ROOM_MIN_SHARE", 2)
        cluster, third, leader = listed("room", "")
        until(cluster, partial(is_in_sync, cluster, third))
        until(cluster, partial(has_copied, cluster, third))
        third.kill()
        cluster.controller.fence(third.node_id)
        for _ in range(60):
            assert leader.write(COPIED, b"x" * 300) is not None
            cluster.pass_time(3)
        third.disk.capacity_bytes = third.disk.used_bytes() * 3 // 2
        third.start()
        until(cluster, lambda: link_of(third, COPIED) is LinkKind.CATCH_UP, 1)
        until(cluster, partial(is_in_sync, cluster, third))
        cluster.pass_time(1_000)
        assert has_no_room(third)
        rest = missing(cluster, third)
        assert rest > 40
        is_acknowledged_quickly(cluster, leader)
        cluster.pass_time(3_000)
        assert missing(cluster, third) == rest, "it is copied to a disk that is nearly full"
        third.disk.capacity_bytes = None
        until(cluster, partial(has_copied, cluster, third))
        assert not has_no_room(third)
        cluster.heal()


SCRIPTS: tuple[Callable[[], None], ...] = (
    a_leader_keeps_to_its_rate,
    a_follower_keeps_to_its_rate,
    a_list_names_single_replicas,
    what_no_list_names_is_not_limited,
    a_rate_changes_under_a_running_copy,
    followers_share_a_rate,
    large_copies_wait_for_their_turn,
    a_nearly_full_disk_pauses_copies,
)
