"""Famous bugs of replicated logs, each as a sequence of events that would show the bug. The names
have the KIP or issue.

A script controls three brokers. The invariants are checked after every event, as in random runs,
and at the end of a script all faults end. Most scripts fail if a particular guard is removed.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.replication.leader import REPLICA_LAG_TIME_MAX_MS
from broker.replication.partition import LeaderRole
from protocol.errors import ErrorCode
from tests.sim.replication.broker import REQUEST_TIMEOUT_MS, Broker, Write
from tests.sim.replication.cluster import NODES, Cluster
from tests.sim.replication.controller import SESSION_MS
from tests.sim.replication.events import CONTROLLER

P = 0
LONG_MS = 60_000
SOON_MS = 100


class Play:
    """One partition with three in-sync replicas, led by node 1."""

    def __init__(self) -> None:
        self.cluster = Cluster(seed=1, partition_count=1)
        self.until(lambda: not self.cluster.missing())
        self.lead(1)

    def node(self, node_id: int) -> Broker:
        return self.cluster.brokers[node_id]

    def until(self, is_so: Callable[[], bool], within_ms: int = 15_000) -> None:
        """Let time pass until the condition holds."""
        events = self.cluster.events
        deadline_ms = events.now_ms + within_ms
        while not is_so():
            assert events.now_ms < deadline_ms, f"not so within {within_ms} ms"
            self.cluster.run_for(1)

    def wait(self, for_ms: int) -> None:
        self.cluster.run_for(for_ms)

    def lead(self, node_id: int) -> None:
        """Let the controller move the leadership, and wait until the new leader leads."""
        self.cluster.controller.prefer(P, node_id)
        self.until(lambda: self.leads(node_id))

    def leads(self, node_id: int) -> bool:
        state = self.node(node_id).states.get(P)
        epoch = self.cluster.controller.parts[P].leader_epoch
        return state is not None and state.role == LeaderRole(epoch)

    def write(self, node_id: int, count: int = 1) -> list[Write]:
        found = []
        for _ in range(count):
            write = self.cluster.write(P, node_id)
            assert write is not None, f"{node_id} takes no writes"
            found.append(write)
        return found

    def acknowledged(self, node_id: int, count: int = 1) -> None:
        """Write records, and wait until they are acknowledged."""
        writes = self.write(node_id, count)
        self.until(lambda: all(write.end == "acknowledged" for write in writes))

    def ends(self) -> list[int]:
        return [self.node(node_id).logs[P].durable_end for node_id in NODES]

    def cut(self, source: int, target: int, for_ms: int = LONG_MS) -> None:
        self.cluster.network.cut(source, target, self.cluster.events.now_ms + for_ms)

    def part(self, one: int, other: int) -> None:
        """Cut two nodes off from each other."""
        self.cut(one, other)
        self.cut(other, one)

    def join(self, one: int, other: int) -> None:
        """End a cut between two nodes. The messages that have waited arrive in order."""
        self.cluster.network.restore(one, other)
        self.cluster.network.restore(other, one)

    def heal(self) -> None:
        self.cluster.heal()


def kip_101_a_follower_restarts_before_it_knows_the_high_watermark() -> None:
    """A restarted follower must not truncate its log to its high watermark. It would lose
    acknowledged records, and could be elected without them."""
    play = Play()
    play.acknowledged(1, 3)
    play.wait(SOON_MS * 10)
    play.acknowledged(1)
    follower = play.node(2)
    assert follower.states[P].high_watermark < follower.logs[P].log_end_offset
    follower.kill()
    follower.start()
    play.node(1).lose_power()
    play.node(3).lose_power()
    play.heal()


def kip_279_two_logs_part_twice() -> None:
    """A follower has records of the epochs 1 and 3, and its leader of 1 and 2. So the follower must
    compare again after its first truncation."""
    play = Play()
    play.acknowledged(1, 8)
    play.wait(SOON_MS * 10)
    play.part(1, 3)
    play.write(1, 2)
    play.until(lambda: play.ends() == [10, 10, 8])
    play.part(2, 3)
    play.part(1, 2)
    play.lead(3)
    play.write(3, 7)
    play.lead(2)
    play.write(2, 10)
    play.wait(SOON_MS)
    assert play.ends() == [10, 20, 15]
    play.lead(3)
    play.heal()


def kip_320_a_fetch_of_an_earlier_epoch_arrives_late() -> None:
    """A late Fetch reports an offset that the follower has truncated since. Only the leader epoch
    in the Fetch shows this."""
    play = Play()
    play.acknowledged(1, 8)
    play.wait(SOON_MS * 10)
    play.part(1, 3)
    play.write(1, 2)
    # Node 2 appends both records. Its next Fetch, which reports this, is delayed by a cut.
    play.until(lambda: play.node(2).logs[P].log_end_offset == 10)
    play.cut(2, 1)
    play.until(lambda: play.ends()[:2] == [10, 10])
    play.wait(SOON_MS // 10)
    play.lead(3)
    play.until(lambda: play.ends()[1] == 8)
    play.lead(1)
    play.join(1, 3)
    play.until(lambda: play.ends()[2] == 10)
    play.wait(SOON_MS)
    assert play.node(1).states[P].high_watermark == 8
    play.cluster.network.restore(2, 1)
    play.wait(SOON_MS)
    play.heal()


def kip_966_the_last_replica_standing_commits_nothing() -> None:
    """The last in-sync replica must not commit records alone. The eligible replicas lack them, and
    one of these could be elected."""
    play = Play()
    play.acknowledged(1, 3)
    play.write(1, 2)
    for node_id in (2, 3):
        play.node(node_id).kill()
    play.until(lambda: play.node(1).states[P].in_sync_replicas == (1,))
    assert play.node(1).states[P].is_under_min_isr
    assert play.cluster.write(P, 1) is None
    play.wait(SOON_MS)
    committed = play.node(1).states[P].high_watermark
    play.node(1).lose_power()
    play.node(2).start()
    play.until(lambda: play.leads(2))
    assert play.node(2).logs[P].durable_end >= committed
    play.heal()


def a_zombie_leader_acknowledges_nothing() -> None:
    """A leader that is cut off from all others still accepts writes. It must not acknowledge them,
    because no follower fetches in its epoch."""
    play = Play()
    play.acknowledged(1, 3)
    for other in (CONTROLLER, 2, 3):
        play.part(1, other)
    play.until(lambda: play.leads(2), SESSION_MS * 2)
    writes = play.write(1, 3)
    play.acknowledged(2, 2)
    play.wait(REPLICA_LAG_TIME_MAX_MS * 2)
    assert all(write.end == ErrorCode.REQUEST_TIMED_OUT.name for write in writes)
    play.heal()
    assert play.cluster.history.committed[P][-1].leader_epoch > writes[0].entry.leader_epoch


def kafka_15021_a_shrink_counts_when_the_controller_has_confirmed_it() -> None:
    """A proposed smaller ISR must not count before the controller has committed it. Until then the
    controller could still elect the slow member."""
    play = Play()
    play.acknowledged(1, 3)
    play.cut(1, CONTROLLER)
    play.part(1, 3)
    play.part(2, 3)
    waits = play.write(1, 2)
    play.wait(SOON_MS * 10)
    assert not [write for write in waits if write.end == "acknowledged"]
    assert play.node(1).states[P].high_watermark == 3
    play.lead(3)
    play.heal()


def an_unclear_answer_keeps_the_maximal_isr() -> None:
    """The controller adds node 3 to the ISR, and the leader learns this much later. Until then the
    leader must count node 3 in the maximal ISR."""
    play = Play()
    play.acknowledged(1, 3)
    play.node(3).kill()
    play.until(lambda: play.node(1).states[P].in_sync_replicas == (1, 2))
    play.acknowledged(1, 3)
    play.node(3).start()
    play.until(lambda: 3 in play.cluster.controller.parts[P].isr)
    # The change is committed. Its response and its metadata record do not reach the leader, and
    # then node 3 cannot reach the leader either.
    assert play.node(1).states[P].in_sync_replicas == (1, 2)
    assert play.node(1).states[P].maximal_in_sync_replicas == (1, 2, 3)
    play.cut(CONTROLLER, 1, REPLICA_LAG_TIME_MAX_MS * 2)
    play.part(1, 3)
    play.write(1, 2)
    play.wait(REPLICA_LAG_TIME_MAX_MS * 2 - SOON_MS)
    assert play.ends()[2] == 6
    assert play.node(1).states[P].high_watermark == 6
    play.heal()


def an_answer_comes_before_the_log_that_it_rests_on() -> None:
    """Min ISR rises to 2, and then the other replicas leave the ISR. They stay eligible, because
    one replica alone may not commit any more.

    The leader learns of the smaller ISR from a response, before it replays the new min ISR. It must
    not commit with the old min ISR.
    """
    play = Play()
    play.cluster.controller.set_min_isr(P, 1)
    play.acknowledged(1, 3)
    leader = play.node(1)
    for node_id in (2, 3):
        play.part(1, node_id)
    waits = play.write(1, 2)
    hear = leader.on_metadata
    heard: list[tuple[int, int]] = []
    leader.on_metadata = lambda *what: heard.append(what)  # type: ignore[method-assign]
    play.cluster.controller.set_min_isr(P, 2)
    play.until(lambda: play.cluster.controller.parts[P].isr == (1,))
    assert play.cluster.controller.parts[P].elr == (2, 3)
    play.wait(SOON_MS)
    assert not [write for write in waits if write.end == "acknowledged"]
    leader.on_metadata = hear  # type: ignore[method-assign]
    for what in heard:
        hear(*what)
    play.until(lambda: leader.states[P].is_under_min_isr)
    play.heal()


def a_late_answer_is_not_taken_for_a_later_one() -> None:
    """The same records are fetched twice. A response must be matched by its request id, because
    only one of the two belongs to the pending request."""
    play = Play()
    play.acknowledged(1, 3)
    play.wait(SOON_MS * 10)
    # The response takes longer than node 3 waits. Then node 3's next Fetch takes as long.
    play.cut(1, 3, REQUEST_TIMEOUT_MS + SOON_MS)
    play.cluster.network.lag(3, 1, REQUEST_TIMEOUT_MS)
    play.write(1, 2)
    play.wait(REQUEST_TIMEOUT_MS * 4)
    play.heal()


def what_a_follower_said_in_an_earlier_epoch_is_forgotten() -> None:
    """A leader must forget the fetch offsets of its earlier epoch. In the meantime another leader
    has truncated the follower's log below them."""
    play = Play()
    play.acknowledged(1, 8)
    play.wait(SOON_MS * 10)
    play.part(1, 3)
    play.write(1, 2)
    play.until(lambda: play.ends() == [10, 10, 8])
    play.wait(SOON_MS)
    play.part(1, 2)
    play.lead(3)
    play.until(lambda: play.ends()[1] == 8)
    play.lead(1)
    play.join(1, 3)
    play.until(lambda: play.ends()[2] == 10)
    play.wait(SOON_MS)
    assert play.node(1).states[P].high_watermark == 8
    play.heal()


def what_the_leader_has_deleted_cannot_be_compared() -> None:
    """A log diverges below the leader's log start offset, and ends exactly at it. The leader must
    not treat it as equal, because it has deleted the records to compare."""
    play = Play()
    play.acknowledged(1, 8)
    play.wait(SOON_MS * 10)
    play.part(1, 2)
    play.part(1, 3)
    play.write(1, 2)
    play.lead(2)
    play.write(2, 5)
    play.until(lambda: play.node(2).states[P].high_watermark == 13)
    play.node(2).trim(P, 10)
    assert play.ends()[0] == 10
    play.heal()


def a_new_leader_adds_no_replica_below_its_epoch_start() -> None:
    """A new leader must not add a replica to the ISR whose log ends below the start of its epoch.
    Its high watermark is only a lower bound: the leader before it can have committed its whole
    log."""
    play = Play()
    play.acknowledged(1, 3)
    play.node(3).kill()
    play.until(lambda: play.node(1).states[P].in_sync_replicas == (1, 2))
    # The leader's disk is slow, so node 2 has all records before any of them is committed.
    play.node(1).sync_ms = (SOON_MS, SOON_MS)
    play.acknowledged(1, 9)
    assert play.node(2).states[P].high_watermark == 3
    play.part(1, 2)
    play.lead(2)
    play.node(3).sync_ms = (SESSION_MS // 2, SESSION_MS // 2)
    play.node(3).start()
    play.until(lambda: play.ends()[2] == 12)
    play.heal()


def a_power_cut_takes_what_only_the_leader_has_not_synced() -> None:
    """The followers' disks are faster than the leader's. A leader must not commit records that are
    not durable on its own disk, because a power cut would lose them there."""
    play = Play()
    play.acknowledged(1, 3)
    leader = play.node(1)
    leader.sync_ms = (SOON_MS, SOON_MS)
    play.write(1)
    play.wait(1)
    play.write(1, 3)
    play.until(lambda: play.ends()[1:] == [7, 7])
    play.wait(SOON_MS)
    leader.lose_power()
    play.heal()


def what_is_older_than_the_own_registration_is_not_believed() -> None:
    """A restarted node replays metadata from before its registration, by which it leads alone. It
    must ignore them, because it has other data since its restart."""
    play = Play()
    play.cluster.controller.set_min_isr(P, 1)
    for node_id in (2, 3):
        play.node(node_id).kill()
    play.until(lambda: play.node(1).states[P].in_sync_replicas == (1,))
    play.acknowledged(1, 2)
    for node_id in (2, 3):
        play.node(node_id).start()
    play.until(lambda: play.node(1).states[P].in_sync_replicas == NODES)
    for node_id in (2, 3):
        play.part(1, node_id)
    play.write(1, 2)
    play.wait(SOON_MS)
    play.node(1).kill()
    play.node(1).start()
    play.wait(SOON_MS)
    play.heal()


def kip_903_another_incarnation_does_not_join_by_its_predecessor_s_fetch() -> None:
    """The leader proposes an ISR with the broker epoch from an old Fetch. The controller must
    reject it, because the node has registered again since."""
    play = Play()
    play.acknowledged(1, 3)
    play.cut(CONTROLLER, 1, SESSION_MS * 2)
    play.node(3).kill()
    play.wait(SOON_MS)
    play.node(3).start()
    play.wait(SESSION_MS)
    assert 3 not in play.cluster.controller.parts[P].isr
    play.heal()


def kip_207_a_new_leader_tells_no_earlier_end() -> None:
    """A new leader must return no end offset until its high watermark is reliable. Before the start
    of its epoch is committed, the high watermark is only a lower bound."""
    play = Play()
    play.acknowledged(1, 5)
    play.node(1).latest(P)
    assert play.cluster.history.told_end[P] == 5
    play.part(2, 3)
    play.lead(2)
    assert play.node(2).states[P].high_watermark < 5
    play.node(2).latest(P)
    play.join(2, 3)
    play.until(lambda: not play.node(2).states[P].is_high_watermark_floor)
    play.node(2).latest(P)
    assert play.cluster.history.told_end[P] == 5
    play.heal()


def trap_8_a_follower_joins_under_load() -> None:
    """A follower must be able to join the ISR under load. The high watermark waits for it, because
    otherwise it would always be one Fetch behind."""
    play = Play()
    play.node(3).kill()
    play.until(lambda: play.node(1).states[P].in_sync_replicas == (1, 2))
    play.acknowledged(1, 30)
    play.node(3).start()
    # Node 3 gets responses a little later than node 2, and there is always a new record.
    play.cluster.network.lag(1, 3, 10)
    deadline_ms = play.cluster.events.now_ms + 5_000
    while 3 not in play.cluster.controller.parts[P].isr:
        assert play.cluster.events.now_ms < deadline_ms, "node 3 does not join under load"
        play.write(1)
        play.wait(1)
    play.heal()


def flapping_a_slow_follower_leaves_once_and_dwells() -> None:
    """A follower that was slow must stay out of the ISR for a while, so that the ISR does not
    change each time it catches up."""
    play = Play()
    play.acknowledged(1, 3)
    play.part(1, 3)
    play.write(1)
    play.until(lambda: play.node(1).states[P].in_sync_replicas == (1, 2))
    before = len(play.cluster.controller.log)
    play.join(1, 3)
    play.until(lambda: play.ends()[2] == 4)
    play.wait(REPLICA_LAG_TIME_MAX_MS - REQUEST_TIMEOUT_MS * 3)
    assert len(play.cluster.controller.log) == before
    play.until(lambda: play.node(1).states[P].in_sync_replicas == NODES)
    play.heal()


def trap_15_deleted_records_are_not_fetched_for() -> None:
    """A follower whose log ends below the leader's log start offset must drop its log, and start at
    that offset."""
    play = Play()
    play.acknowledged(1, 3)
    play.node(3).kill()
    play.until(lambda: play.node(1).states[P].in_sync_replicas == (1, 2))
    play.acknowledged(1, 9)
    play.node(1).trim(P, 10)
    play.node(3).start()
    play.heal()
    assert play.node(3).logs[P].log_start_offset == 10


def trap_18_records_are_deleted_when_all_live_replicas_have_followed() -> None:
    """The low watermark must reach the new log start offset only after both followers have reported
    it."""
    play = Play()
    play.acknowledged(1, 9)
    play.wait(SOON_MS * 10)
    play.node(1).trim(P, 5)
    state = play.node(1).states[P]
    assert state.low_watermark == 0
    play.until(lambda: state.low_watermark == 5)
    assert [play.node(node_id).logs[P].log_start_offset for node_id in NODES] == [5, 5, 5]
    play.heal()


SCRIPTS: tuple[Callable[[], None], ...] = (
    kip_101_a_follower_restarts_before_it_knows_the_high_watermark,
    kip_279_two_logs_part_twice,
    kip_320_a_fetch_of_an_earlier_epoch_arrives_late,
    kip_966_the_last_replica_standing_commits_nothing,
    a_zombie_leader_acknowledges_nothing,
    kafka_15021_a_shrink_counts_when_the_controller_has_confirmed_it,
    an_unclear_answer_keeps_the_maximal_isr,
    an_answer_comes_before_the_log_that_it_rests_on,
    a_late_answer_is_not_taken_for_a_later_one,
    what_a_follower_said_in_an_earlier_epoch_is_forgotten,
    what_the_leader_has_deleted_cannot_be_compared,
    a_new_leader_adds_no_replica_below_its_epoch_start,
    a_power_cut_takes_what_only_the_leader_has_not_synced,
    what_is_older_than_the_own_registration_is_not_believed,
    kip_903_another_incarnation_does_not_join_by_its_predecessor_s_fetch,
    kip_207_a_new_leader_tells_no_earlier_end,
    trap_8_a_follower_joins_under_load,
    flapping_a_slow_follower_leaves_once_and_dwells,
    trap_15_deleted_records_are_not_fetched_for,
    trap_18_records_are_deleted_when_all_live_replicas_have_followed,
)
