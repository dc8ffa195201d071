"""Rare sequences of events while a follower copies partitions on the link CATCH_UP (decision
0131)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import pytest

from broker.fetch import replica_fetch
from broker.fetch.follower_line import LineName
from broker.metadata.features import UNNAMED, LevelRange
from broker.replicas import followers
from broker.replication import follower_lag
from broker.replication.follower_session import FetchVerdict, LeaderLog, check_fetch
from broker.replication.partition import PartitionState
from broker.sessions.peers import LinkKind
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchPartition
from protocol.types import TopicPartition
from tests.sim.network import Mix
from tests.sim.replicated_node import TOPIC, ReplicatedNode, Write
from tests.sim.replicated_nodes import ReplicatedCluster
from tests.sim.replicated_scripts import requests_of, until

COPIED, LIVE = 0, 1
"""The partition that is copied, and another one of the same leader and follower."""
ANSWER_BYTES = 2_000
SLOW_MS = 200
"""The duration of a sync of copied records. A sync of other records takes at most 6 ms."""


@contextmanager
def small_answers() -> Iterator[None]:
    """Limit the size of Fetch responses, so that a copy takes many of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(followers.BYTES_MAX, LinkKind.CATCH_UP, ANSWER_BYTES)
        yield


def returning(
    seed: str,
    batches: int = 60,
    settings: Mapping[str, str] | None = None,
    away_ms: int = 0,
    levels: Mapping[int, LevelRange] | None = None,
) -> tuple[ReplicatedCluster, ReplicatedNode]:
    """Return a cluster and its third node. The first node leads two partitions. The third node
    was down, comes back, and lacks many records of the first partition."""
    cluster = ReplicatedCluster(seed, partition_count=2, leaders=(1, 1), levels=levels)
    cluster.settings |= settings or {}
    cluster.late_news = 0.0
    # The network adds no delay, so a slow acknowledgement can only come from waiting.
    cluster.network.mix = Mix()
    cluster.pass_time(1_000)
    until(cluster, lambda: all(len(one.isr) == 3 for one in cluster.controller.parts.values()), 50)
    for index in (COPIED, LIVE):
        cluster.controller.prefer(index, 1)
    until(cluster, lambda: cluster.nodes[1].find(LIVE) is not None)
    third = cluster.nodes[3]
    third.kill()
    cluster.controller.fence(third.node_id)
    for _ in range(batches):
        assert cluster.nodes[1].write(COPIED, b"x" * 300) is not None
        cluster.pass_time(3)
    cluster.pass_time(away_ms)
    third.start()
    third.world.job_ms_by_name["flush-catch-up"] = SLOW_MS, SLOW_MS
    return cluster, third


def missing(cluster: ReplicatedCluster, node: ReplicatedNode, index: int = COPIED) -> int:
    """Return the number of records of a partition that a node lacks."""
    place = TopicPartition(TOPIC, index)
    return cluster.nodes[1].logs.logs[place].log_end_offset - node.durable_end(index)


def link_of(node: ReplicatedNode, index: int) -> LinkKind | None:
    """Return the link on which a node fetches a partition."""
    placed = node.followers._placed.items() if node.replicas is not None else ()
    kinds = [one.kind for partition, (one, _) in placed if partition.partition_index == index]
    return kinds[0] if kinds else None


def is_copied(node: ReplicatedNode) -> bool:
    return link_of(node, COPIED) is LinkKind.CATCH_UP


def has_ended(write: Write) -> bool:
    return write.end is not None


def no_acknowledgement_waits_for_a_copy() -> None:
    """I21: a write to an in-sync partition is acknowledged without delay while another partition
    is copied."""
    with small_answers():
        cluster, third = returning("copy")
        until(cluster, lambda: third.node_id in cluster.controller.parts[LIVE].isr)
        for _ in range(8):
            began_ms = cluster.now_ms
            write = cluster.nodes[1].write(LIVE, b"live")
            assert write is not None
            until(cluster, partial(has_ended, write))
            took_ms = cluster.now_ms - began_ms
            assert write.end == "acknowledged" and took_ms < SLOW_MS // 2, f"{took_ms} ms"
        assert missing(cluster, third) > 20, "it was not copied apart"
        assert (link_of(third, COPIED), link_of(third, LIVE)) == (LinkKind.CATCH_UP, LinkKind.DATA)
        cluster.heal()


def a_copied_partition_comes_to_data_when_it_has_caught_up() -> None:
    """A Fetch can be waiting on DATA when the partition moves to that link. The leader must answer
    this Fetch early, because writes to the partition would otherwise wait for 500 ms."""
    with small_answers():
        cluster, third = returning("over", batches=5)
        until(cluster, lambda: not missing(cluster, third), 1)
        cluster.pass_time(80)
        assert link_of(third, COPIED) is LinkKind.DATA
        until(cluster, lambda: third.node_id in cluster.controller.parts[COPIED].isr)
        cluster.heal()


def what_falls_far_behind_goes_back_to_the_copies() -> None:
    """A follower whose disk was full is no longer in sync and lacks many records. It must copy the
    partition on CATCH_UP again."""
    with small_answers(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(follower_lag, "FAR_BYTES", 3_000)
        patch.setitem(followers.BYTES_MAX, LinkKind.DATA, ANSWER_BYTES)
        cluster, third = returning("back", batches=5)
        until(cluster, lambda: len(cluster.controller.parts[COPIED].isr) == 3)
        until(cluster, lambda: link_of(third, COPIED) is LinkKind.DATA)
        third.disk.refuses = lambda path, operation: operation == "write"
        for _ in range(80):
            assert cluster.nodes[1].write(COPIED, b"x" * 300) is not None
            cluster.pass_time(100)
        assert third.node_id not in cluster.controller.parts[COPIED].isr
        assert link_of(third, COPIED) is LinkKind.DATA
        third.disk.refuses = None
        until(cluster, lambda: link_of(third, COPIED) is LinkKind.CATCH_UP)
        assert link_of(third, LIVE) is LinkKind.DATA
        cluster.heal()
        assert link_of(third, COPIED) is LinkKind.DATA


def deaths_during_a_switch() -> None:
    """The leader or the follower loses power shortly before, during or after the move to DATA."""
    chance = Random("deaths")
    with small_answers():
        for number in range(6):
            cluster, third = returning(f"deaths {number}", batches=12)
            third.world.job_ms_by_name.clear()
            until(cluster, partial(is_copied, third), 1)
            cluster.run_for(chance.randint(1, 120), write_every_ms=3)
            dying = chance.choice((third, cluster.nodes[1]))
            dying.cut_power()
            cluster.pass_time(chance.randint(1, 300))
            dying.start()
            cluster.run_for(200)
            cluster.heal()


def one_session_has_a_partition_at_a_time() -> None:
    """Trap 36: a partition must be in only one of a follower's two sessions. Otherwise the leader
    would send the same records on both links."""
    with small_answers():
        cluster, third = returning("one session", batches=12)
        for _ in range(400):
            cluster.run_for(2, write_every_ms=2)
        third.world.job_ms_by_name.clear()
        until(cluster, lambda: link_of(third, COPIED) is LinkKind.DATA)
        cluster.heal()


def a_late_request_takes_no_partition_for_good() -> None:
    """A late Fetch names a partition on the link that no longer fetches it, so the leader moves the
    partition there. The follower must notice this and name the partition on the right link
    again."""
    cluster, third = returning("late", batches=5)
    until(cluster, lambda: link_of(third, COPIED) is LinkKind.DATA)
    until(cluster, lambda: len(cluster.controller.parts[COPIED].isr) == 3)
    cluster.pass_time(1_000)
    leader = cluster.nodes[1]
    replica = leader.find(COPIED)
    assert replica is not None
    line = leader.fetches._lines[LineName(third.node_id, is_catch_up=False)]
    assert replica.partition_id in line.session.partitions
    # Simulate the late Fetch: the leader takes the partition from the session on DATA.
    leader.fetches._take_from(
        LineName(third.node_id, is_catch_up=False), [(replica.partition_id, FetchPartition())]
    )
    assert replica.partition_id not in line.session.partitions
    write = leader.write(COPIED, b"after it")
    assert write is not None
    until(cluster, lambda: write.end is not None)
    assert write.end == "acknowledged"
    cluster.heal()


def a_switch_reports_no_start_that_is_not_durable() -> None:
    """After DeleteRecords the follower's new log start offset is not durable yet, and the partition
    moves to DATA. The leader must not count that log start offset as durable, because DeleteRecords
    would then be answered too early."""
    with small_answers():
        cluster, third = returning("start 2", batches=30)
        leader = cluster.nodes[1]
        replica = leader.find(COPIED)
        assert replica is not None
        until(cluster, lambda: third.durable_end(COPIED) > 10 and is_copied(third), 1)
        third.world.job_ms_by_name["files"] = 1_000, 1_000
        leader.trim(COPIED, 5)
        until(cluster, lambda: link_of(third, COPIED) is LinkKind.DATA)
        cluster.pass_time(200)
        copy = third.logs.logs[TopicPartition(TOPIC, COPIED)]
        assert copy.log_start_offset == 5, "the start was not told"
        assert replica.state.low_watermark < 5, "a start that is not durable was reported"
        third.world.job_ms_by_name.clear()
        until(cluster, lambda: replica.state.low_watermark == 5)
        cluster.heal()


def a_refused_partition_hurries_no_fetch_on_data() -> None:
    """The leader rejects a partition on CATCH_UP for long, for example because its own log ends
    before the follower's. The follower retries every second. Its retries must not end waiting
    fetches on DATA early."""

    def check(state: PartitionState, log: LeaderLog, asked: FetchPartition, *rest: Any) -> Any:
        if asked.partition == COPIED:
            return FetchVerdict(ErrorCode.OFFSET_OUT_OF_RANGE)
        return check_fetch(state, log, asked, *rest)

    with pytest.MonkeyPatch.context() as patch:
        cluster, third = returning("refused", batches=0)
        patch.setattr(replica_fetch, "check_fetch", check)
        cluster.pass_time(3_000)
        assert (link_of(third, COPIED), link_of(third, LIVE)) == (LinkKind.CATCH_UP, LinkKind.DATA)
        before = requests_of(third, 1)
        cluster.pass_time(5_000)
        assert 8 <= requests_of(third, 1) - before <= 12
    cluster.heal()


def a_leader_of_1_0_0_rc1_has_one_session_with_a_follower() -> None:
    """A leader of 1.0.0-rc1 identifies a follower only by its node id, so a second session would
    end the first one. The follower must copy on DATA."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replica_fetch, "is_catch_up", lambda client_id: False)
        cluster, third = returning("older leader", levels={1: UNNAMED})
        for _ in range(40):
            cluster.pass_time(25)
            assert not is_copied(third), "the leader does not have this link"
        until(cluster, lambda: third.node_id in cluster.controller.parts[COPIED].isr)
        cluster.heal()


SCRIPTS: tuple[Callable[[], None], ...] = (
    no_acknowledgement_waits_for_a_copy,
    a_copied_partition_comes_to_data_when_it_has_caught_up,
    what_falls_far_behind_goes_back_to_the_copies,
    deaths_during_a_switch,
    one_session_has_a_partition_at_a_time,
    a_late_request_takes_no_partition_for_good,
    a_switch_reports_no_start_that_is_not_durable,
    a_refused_partition_hurries_no_fetch_on_data,
    a_leader_of_1_0_0_rc1_has_one_session_with_a_follower,
)
