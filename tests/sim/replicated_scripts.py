"""Rare sequences of events on whole nodes. Each needs a particular guard of `docs/guards.md`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from broker.config import LogConfig
from broker.fetch.follower_line import LineName
from broker.sessions.peers import LinkKind
from broker.storage.folder_jobs import DELETE_SUFFIX, FolderRemoval
from broker.storage.log import Log
from broker.storage.truncation import Truncation
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from protocol.types import NO_NODE, TopicPartition, Uuid
from protocol.wire.records import patch
from tests.sim.replicated_node import TOPIC, ReplicatedNode, host_of
from tests.sim.replicated_nodes import TOPIC_ID, ReplicatedCluster
from tests.sim.world import Died
from tests.unit.storage.kit import NOW, batch

PARTITION = TopicPartition(TOPIC, 0)
PATIENCE_MS = 3_000

Written = tuple[tuple[int, int, str], ...]
"""Leader epoch, base offset and content of each batch, one record each."""


def log_of(node: ReplicatedNode) -> Log:
    return node.logs.logs[PARTITION]


def end_of(node: ReplicatedNode) -> int:
    return log_of(node).log_end_offset


def until(cluster: ReplicatedCluster, is_so: Callable[[], bool], step_ms: int = 1) -> None:
    """Let time pass until a condition holds."""
    for _ in range(PATIENCE_MS // step_ms):
        if is_so():
            return
        cluster.pass_time(step_ms)
    raise AssertionError(f"not so after {PATIENCE_MS} ms")


def settled(seed: str = "script") -> tuple[ReplicatedCluster, ReplicatedNode, list[ReplicatedNode]]:
    """Return a cluster of three in-sync nodes with a few batches, its leader, and its followers."""
    cluster = ReplicatedCluster(seed, partition_count=1, leaders=(1,))
    # A new partition begins with all replicas in sync, even before the nodes are registered. So
    # let time pass before waiting for them to be in sync.
    cluster.pass_time(1_000)
    until(cluster, lambda: len(cluster.controller.parts[0].isr) == 3, 50)
    cluster.controller.prefer(0, 1)
    until(cluster, lambda: cluster.nodes[1].find(0) is not None)
    for _ in range(5):
        assert cluster.write(0) is not None
        cluster.pass_time(20)
    until(cluster, lambda: not cluster.missing())
    one, two, three = cluster.nodes.values()
    return cluster, one, [two, three]


def prepared(*logs: Written) -> ReplicatedCluster:
    """Return a cluster whose nodes have these logs. The first node leads, in a later leader epoch
    than any record."""
    cluster = ReplicatedCluster("prepared", len(logs), partition_count=1, leaders=(1,))
    for node, written in zip(cluster.nodes.values(), logs, strict=True):
        fill(node, written)
    epoch = 1 + max(one[0] for written in logs for one in written)
    part = cluster.controller.parts[0]
    found = replace(part, leader=NO_NODE, leader_epoch=epoch, isr=(1,), elr=())
    cluster.controller._commit({0: found})
    return cluster


def fill(node: ReplicatedNode, written: Written) -> None:
    log = node.logs.create(PARTITION, TOPIC_ID, LogConfig(), NOW)
    log.gap_mark().perform()
    log.gaps_are_marked()
    for epoch, offset, content in written:
        view = batch(content.encode())
        patch(view, offset, epoch)
        log.follower_append(view, NOW)
        log.write_staged(NOW)
    target = log.flush_target()
    if target is not None:
        target.perform()
        log.flushed(target)


def kip_279_two_logs_part_twice() -> None:
    """The logs of the follower and the leader diverge in two epochs. After its first truncation the
    follower must compare again, with the leader epoch at its new log end."""
    common = tuple((0, offset, "all") for offset in range(3))
    leader = (*common, *((2, offset, "leader") for offset in range(3, 8)), (4, 8, "leader"))
    follower = (
        *common,
        *((1, offset, "other") for offset in range(3, 6)),
        *((3, offset, "other") for offset in range(6, 9)),
    )
    cluster = prepared(leader, follower)
    cluster.heal()


def kip_320_a_fetch_of_an_earlier_epoch_arrives_late() -> None:
    """The follower has truncated the offsets that its late Fetch reports. The leader must not count
    them as acknowledged."""
    cluster, leader, (second, third) = settled()
    before = end_of(leader)
    cluster.network.cut(second.host, leader.host)
    cluster.network.cut(leader.host, third.host)
    cluster.network.cut(third.host, leader.host)
    assert leader.write(0, b"only the second has it too") is not None
    # The second node syncs the record. Its next Fetch reports this, but is lost in the cut.
    until(cluster, lambda: second.durable_end(0) > before)
    cluster.pass_time(20)
    assert end_of(third) == before
    cluster.controller.prefer(0, third.node_id)
    until(cluster, lambda: end_of(second) == before)
    assert end_of(leader) > before
    third.kill()
    cluster.controller.fence(third.node_id)
    until(cluster, lambda: leader.find(0) is not None)
    assert cluster.controller.parts[0].isr == (leader.node_id, second.node_id)
    cluster.network.heal(second.host, leader.host)
    cluster.pass_time(200)
    cluster.heal()


def diverged(seed: str) -> tuple[ReplicatedCluster, ReplicatedNode, int]:
    """Return a cluster, a deposed leader, and the log end offset that all replicas share. The
    deposed leader has just truncated segments that no other replica has."""
    cluster, leader, others = settled(seed)
    before = end_of(leader)
    for other in others:
        cluster.network.cut(leader.host, other.host)
    for _ in range(8):
        assert leader.write(0, b"alone" * 100) is not None
        cluster.pass_time(10)
    until(cluster, lambda: leader.durable_end(0) == before + 8)
    # Let the checkpoint be written, so that its recovery point is above all these records.
    cluster.pass_time(500)
    cluster.controller.prefer(0, others[0].node_id)
    until(cluster, lambda: others[0].find(0) is not None)
    cluster.network.heal()
    until(cluster, lambda: end_of(leader) <= before)
    return cluster, leader, before


def what_was_cut_stays_cut_when_the_power_goes(cuts: int = 2) -> None:
    """A power cut right after a truncation must not bring the truncated records back. Otherwise the
    log of an in-sync replica would differ at its end."""
    for number in range(cuts):
        cluster, deposed, end_offset = diverged(f"cut {number}")
        deposed.cut_power()
        deposed.start()
        assert end_of(deposed) == end_offset, "what was cut has come back"
        cluster.heal()


def a_kill_in_the_middle_of_a_truncation() -> None:
    """After a power cut at any step of a truncation, the next start must continue. No record is
    lost, and no log goes offline."""
    for step in range(1, 24, 6):
        cut_short(step)


def cut_short(step: int) -> None:
    """Let every call of the disk fail from step number `step` of a truncation on, and then cut the
    power."""
    cluster, deposed, (second, third) = settled(f"kill {step}")
    before = end_of(deposed)
    for other in (second, third):
        cluster.network.cut(deposed.host, other.host)
    for _ in range(4):
        assert deposed.write(0, b"alone" * 100) is not None
        cluster.pass_time(10)
    cluster.pass_time(500)
    cluster.controller.prefer(0, second.node_id)
    until(cluster, lambda: second.find(0) is not None)
    begin, disk = deposed.logs.begin_truncation, deposed.disk

    def trapped(log: Log, offset: int, now_ms: int) -> Truncation | None:
        disk.fail_at, disk.fails_on = disk.calls + step, True
        return begin(log, offset, now_ms)

    deposed.logs.begin_truncation = trapped  # type: ignore[method-assign]
    cluster.network.heal()
    with suppress(Died):
        until(cluster, lambda: disk.fail_at is not None)
        cluster.pass_time(30)
    disk.fail_at = None
    deposed.cut_power()
    deposed.start()
    assert before <= end_of(deposed) <= before + 4
    cluster.heal()


def leads(cluster: ReplicatedCluster, node: ReplicatedNode) -> bool:
    """Return True if a node leads partition 0 in its newest epoch."""
    replica = node.find(0)
    return replica is not None and replica.leader_epoch == cluster.controller.parts[0].leader_epoch


def trap_3_no_sync_is_under_way_when_a_log_is_cut() -> None:
    """A sync that is still running would set the recovery point above the truncated log. This can
    happen only with `flush=interval`. Otherwise a follower syncs its log before it fetches again,
    so no sync runs when the leader reports a divergence."""
    cluster, deposed, (second, third) = settled("sync under way")
    before = end_of(deposed)
    cluster.settings["flush.messages"] = "2"
    cluster.controller.prefer(0, second.node_id)
    until(cluster, lambda: second.find(0) is not None)
    cluster.controller.prefer(0, deposed.node_id)
    until(cluster, lambda: leads(cluster, deposed))
    until(cluster, lambda: not log_of(deposed).config.is_flushed_before_ack)
    for other in (second, third):
        cluster.network.cut(deposed.host, other.host)
    deposed.world.job_ms = (500, 500)
    for _ in range(2):
        assert deposed.write(0, b"alone") is not None
    cluster.controller.prefer(0, second.node_id)
    until(cluster, lambda: second.find(0) is not None)
    cluster.network.heal()
    until(cluster, lambda: end_of(deposed) <= before)
    assert log_of(deposed).recovery_point <= before, "what was cut is vouched for"
    cluster.settings["flush.messages"] = "1"
    cluster.controller.prefer(0, third.node_id)
    cluster.heal()


def gaps_that_were_fetched_outlive_a_power_cut() -> None:
    """A compacted leader's log has gaps. After a power cut a follower must not take a gap above its
    recovery point for the end of its log."""
    leader = tuple((0, offset, "kept") for offset in (0, 1, 5, 9, 10, 20))
    cluster = prepared(leader, ())
    follower = cluster.nodes[2]
    until(cluster, lambda: follower.durable_end(0) == 21)
    follower.cut_power()
    follower.start()
    assert end_of(follower) == 21, "a gap was taken for a torn tail"
    cluster.heal()


def taken_away(cluster: ReplicatedCluster, node: ReplicatedNode) -> None:
    """Remove a node's replica, and wait until the node's disk has no folder of it."""
    others = tuple(one for one in cluster.nodes if one != node.node_id)
    assert cluster.controller.reassign(0, others)
    until(cluster, lambda: not node.folders_of(0))


def a_replica_that_came_back_is_not_removed_by_older_metadata() -> None:
    """A starting broker has replayed old metadata, in which it has no replica. It must not delete
    its replica because of them. By now the replica can be the only one, besides the leader, that
    has all records."""
    cluster, leader, (second, third) = settled("came back")
    taken_away(cluster, third)
    away = len(cluster.images)
    assert cluster.controller.reassign(0, tuple(cluster.nodes))
    until(cluster, lambda: len(cluster.controller.parts[0].isr) == 3)
    second.kill()
    cluster.controller.fence(second.node_id)
    for _ in range(5):
        assert leader.write(0, b"on two") is not None
        cluster.pass_time(30)
    third.cut_power()
    cluster.controller.fence(third.node_id)
    assert cluster.controller.parts[0].elr == (third.node_id,)
    third.replays_from = away
    third.start()
    until(cluster, lambda: third.replicas is not None)
    leader.kill()
    cluster.controller.fence(leader.node_id)
    until(cluster, lambda: third.find(0) is not None)
    cluster.heal()


def a_death_at_any_step_of_a_removal() -> None:
    """A power cut can come at any step of a replica's removal. The next start must finish the
    removal and report no lost log, and the broker can get the replica again."""
    for step in range(1, 30, 4):
        dies_while_it_is_taken_away(step)


def dies_while_it_is_taken_away(step: int) -> None:
    """Let every call of the disk fail from step number `step` of a removal on, and then cut the
    power."""
    cluster, _, (_, third) = settled(f"removal {step}")
    cluster.pass_time(500)
    begin, disk = third.logs.begin_removal, third.disk

    def trapped(
        topic_partitions: Iterable[TopicPartition], suffix: str = DELETE_SUFFIX
    ) -> FolderRemoval | None:
        if disk.fail_at is None:
            disk.fail_at, disk.fails_on = disk.calls + step, True
        return begin(topic_partitions, suffix)

    third.logs.begin_removal = trapped  # type: ignore[method-assign]
    assert cluster.controller.reassign(0, (1, 2))
    with suppress(Died):
        until(cluster, lambda: disk.fail_at is not None)
        cluster.pass_time(100)
    disk.fail_at = None
    third.cut_power()
    third.start()
    until(cluster, lambda: not third.folders_of(0), 10)
    cluster.run_for(200)
    assert cluster.controller.reassign(0, (1, 2, 3))
    until(cluster, lambda: len(cluster.controller.parts[0].isr) == 3, 10)
    cluster.heal()


def a_follower_with_a_full_disk_leaves_and_comes_back() -> None:
    """A follower whose write fails must fetch again from the same offset."""
    cluster, leader, (second, _) = settled()
    before = end_of(second)
    second.disk.refuses = lambda path, operation: operation == "write"
    cluster.run_for(300)
    assert end_of(second) == before
    assert end_of(leader) > before
    # Acknowledgements wait for this follower until its lag has removed it from the ISR.
    cluster.run_for(7_000, write_every_ms=100)
    assert second.node_id not in cluster.controller.parts[0].isr
    acked = len(cluster.acked)
    cluster.run_for(300)
    assert len(cluster.acked) > acked
    second.disk.refuses = None
    cluster.heal()


def a_follower_below_the_leaders_start_starts_again() -> None:
    """The leader has deleted all offsets that the follower has. So the follower must drop its log
    and start at the leader's log start offset."""
    cluster, leader, (second, third) = settled()
    second.kill()
    cluster.controller.fence(second.node_id)
    cluster.run_for(600)
    leader.trim(0, log_of(leader).high_watermark)
    start_offset = log_of(leader).log_start_offset
    assert start_offset > 5
    cluster.pass_time(700)
    second.start()
    cluster.heal()
    for node in (leader, second, third):
        assert log_of(node).log_start_offset == start_offset, host_of(node.node_id)


def an_idle_partition_stays_in_sync_and_costs_two_fetches_a_second() -> None:
    """A higher high watermark alone must not end a parked Fetch. The Fetch ends after its wait
    time, so an idle follower sends about two per second."""
    cluster, leader, others = settled()
    cluster.pass_time(2_000)
    asked = [requests_of(node, 1) for node in others]
    cluster.pass_time(10_000)
    for node, before in zip(others, asked, strict=True):
        count = requests_of(node, 1) - before
        assert 15 <= count <= 21, count
    assert len(cluster.controller.parts[0].isr) == 3
    assert leader.fetches.parked_count == 2


def requests_of(node: ReplicatedNode, leader: int) -> int:
    """Return how many Fetch requests this process of a node has sent to a leader."""
    return node.followers._sources[leader, LinkKind.DATA].fetch._last_request_id


def followers_write_while_the_leader_still_syncs() -> None:
    """An append must wake both followers in the same turn, once for all its records, and before the
    leader's own sync has ended."""
    cluster, leader, others = settled()
    before = end_of(leader)
    cluster.pass_time(30)
    asked = [requests_of(node, 1) for node in others]
    leader.world.job_ms = (1_000, 1_000)
    for _ in range(10):
        assert leader.write(0, b"in one turn") is not None
    until(cluster, lambda: all(node.durable_end(0) == before + 10 for node in others))
    assert leader.durable_end(0) == before
    assert log_of(leader).high_watermark == before
    # By then the Fetch that acknowledges the write is parked at the leader.
    cluster.pass_time(20)
    assert all(
        requests_of(node, 1) - number <= 2 for node, number in zip(others, asked, strict=True)
    )
    until(cluster, lambda: log_of(leader).high_watermark == before + 10)


def a_follower_that_has_not_synced_is_waited_for() -> None:
    """A follower's next Fetch acknowledges its records. So the follower must not fetch again before
    it has synced them."""
    cluster, leader, (second, _) = settled()
    before = end_of(leader)
    second.world.job_ms = (300, 300)
    assert leader.write(0, b"slow") is not None
    until(cluster, lambda: end_of(second) > before)
    cluster.pass_time(100)
    assert second.durable_end(0) == before
    assert log_of(leader).high_watermark == before
    until(cluster, lambda: log_of(leader).high_watermark > before)
    assert second.durable_end(0) > before


def a_new_leader_is_fetched_from_though_a_fetch_waits_there() -> None:
    """A follower gets a new partition of a leader while a Fetch to that leader waits. That Fetch
    does not include the partition, so the follower must not wait half a second for its end."""
    cluster = ReplicatedCluster("news of leaders 4 4", partition_count=2, leaders=(1, 2))
    cluster.late_news = 0.0
    cluster.pass_time(1_500)
    cluster.controller.prefer(0, 1)
    cluster.controller.prefer(1, 2)
    cluster.pass_time(1_500)
    assert not cluster.missing()
    assert [part.leader for part in cluster.controller.parts.values()] == [1, 2]
    for _ in range(5):
        cluster.controller.prefer(1, 1)
        until(cluster, lambda: cluster.nodes[1].find(1) is not None)
        write = cluster.nodes[1].write(1, b"in the new epoch")
        assert write is not None
        cluster.pass_time(150)
        assert write.end == "acknowledged"
        cluster.controller.prefer(1, 2)
        cluster.pass_time(1_500)


def who_is_owed_bytes_of_a_log_that_may_be_cut_is_hung_up_on() -> None:
    """A leader still has to send a range of its file to a follower when its leadership ends. It
    must close that connection, because after a truncation the range would have other bytes."""
    cluster, leader, (second, third) = settled()
    cluster.pass_time(30)
    cluster.network.cut(leader.host, second.host)
    assert leader.write(0, b"on its way") is not None
    cluster.pass_time(20)
    call = leader.fetches._lines[LineName(second.node_id, is_catch_up=False)].call
    assert call is not None
    was_closed = call.session.is_closed
    cluster.controller.prefer(0, third.node_id)
    until(cluster, lambda: leader.find(0) is None)
    assert (was_closed, call.session.is_closed) == (False, True)
    cluster.heal()


def another_topic_of_the_same_name_is_another_topic() -> None:
    """Brokers identify topics by id. So a Fetch for a deleted topic must not return records of a
    new topic that has the same name."""
    cluster, leader, (second, _) = settled()
    asked = FetchPartition(
        partition=0,
        current_leader_epoch=log_of(leader).leader_epochs.latest,
        fetch_offset=0,
        partition_max_bytes=1_000,
    )
    request = FetchRequest(
        replica_state=ReplicaState(replica_id=second.node_id, replica_epoch=second.me.broker_epoch),
        max_bytes=1_000,
        session_epoch=0,
        topics=[FetchTopic(topic_id=Uuid(int=78), partitions=[asked])],
    )
    answers: list[FetchResponse] = []
    deadline_ms = cluster.now_ms + 1_000
    ends: list[object] = []
    second.peers.ask(1, LinkKind.DATA, request, deadline_ms, answers.append, ends.append)
    until(cluster, lambda: bool(answers or ends))
    ((told,),) = (topic.partitions for topic in answers[0].responses)
    assert told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not told.records
    cluster.heal()


SCRIPTS = (
    kip_279_two_logs_part_twice,
    kip_320_a_fetch_of_an_earlier_epoch_arrives_late,
    what_was_cut_stays_cut_when_the_power_goes,
    a_kill_in_the_middle_of_a_truncation,
    trap_3_no_sync_is_under_way_when_a_log_is_cut,
    gaps_that_were_fetched_outlive_a_power_cut,
    a_replica_that_came_back_is_not_removed_by_older_metadata,
    a_death_at_any_step_of_a_removal,
    a_follower_with_a_full_disk_leaves_and_comes_back,
    a_follower_below_the_leaders_start_starts_again,
    an_idle_partition_stays_in_sync_and_costs_two_fetches_a_second,
    followers_write_while_the_leader_still_syncs,
    a_follower_that_has_not_synced_is_waited_for,
    a_new_leader_is_fetched_from_though_a_fetch_waits_there,
    who_is_owed_bytes_of_a_log_that_may_be_cut_is_hung_up_on,
    another_topic_of_the_same_name_is_another_topic,
)
