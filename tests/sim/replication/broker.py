"""A broker reduced to replication: the real cores, and a driver that calls them as the broker
does."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from broker.purgatory import OffsetKey
from broker.replication.follower import LeaderFetch
from broker.replication.follower_steps import (
    Append,
    Drop,
    Followed,
    Key,
    Reset,
    Truncate,
)
from broker.replication.leader import LogEnds
from broker.replication.partition import FollowerRole, LeaderRole, PartitionState
from protocol.errors import ErrorCode
from protocol.messages.fetch import FetchResponse
from tests.sim.replication.controller import AlterPartition, Part
from tests.sim.replication.events import CONTROLLER
from tests.sim.replication.serving import TOPIC_ID, FollowerSessions, Request
from tests.sim.replication.toylog import Entry, ToyLog, unpack

if TYPE_CHECKING:
    from tests.sim.replication.cluster import Cluster

REQUEST_TIMEOUT_MS = 900
PROPOSAL_TIMEOUT_MS = 600
TICK_MS = 250
REPLAY_SLICE = 6
STALL_MS = 500
WRITE_TIMEOUT_MS = 4_000


class Write:
    """A client's write with acks=all. Its wait must end only once."""

    def __init__(self, broker: Broker, partition: int, offset: int, entry: Entry) -> None:
        self.broker = broker
        self.partition = partition
        self.offset = offset
        self.entry = entry
        self.end: str | None = None

    def reached(self) -> None:
        self._ended("acknowledged")
        self.broker.cluster.acknowledged(self)

    def lost(self, code: ErrorCode) -> None:
        self._ended(code.name)

    def _ended(self, how: str) -> None:
        assert self.end is None, f"a wait ended twice: {self.end}, {how}"
        self.end = how
        self.broker.cluster.note(self.broker.node_id, how, self.partition, self.offset)


class Broker:
    """One node. Its disk outlives its processes, and each process starts with new cores."""

    def __init__(self, cluster: Cluster, node_id: int, partitions: range, chance: Random) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.chance = chance
        self.logs = {partition: ToyLog() for partition in partitions}
        self.checkpoints = dict.fromkeys(partitions, 0)
        """The high watermarks on the disk, which are lower bounds."""
        self.incarnation = 0
        self.is_up = False
        self.paused_until_ms = 0
        self.skipped_ms = 0
        self.sync_ms = (1, 6)
        self._fresh()

    def _fresh(self) -> None:
        self.broker_epoch = -1
        self.replayed = 0
        self.image_end = 0
        self.image: dict[int, Part] = {}
        self.states: dict[int, PartitionState] = {}
        self.lines: dict[int, OffsetKey] = {}
        self.fetchers: dict[int, LeaderFetch] = {}
        self.serving = FollowerSessions(self)
        self.busy: dict[int, None] = {}
        """Logs that are being truncated. Their partitions have no role until this ends."""
        self.unsynced: dict[int, None] = {}
        self.is_syncing = False
        self.marks: dict[int, int] = {}
        self.outstanding: dict[int, int] = {}
        """Leader -> the request that has no response yet."""
        self.pumps: dict[int, int] = {}
        """Leader -> the time of the next call of `_pump`."""

    # Start and end of a process.

    def start(self) -> None:
        if self.is_up:
            return
        self._fresh()
        self.incarnation += 1
        self.is_up = True
        self.paused_until_ms = self.skipped_ms = 0
        for partition, log in self.logs.items():
            log.recover()
            self.cluster.history.cut(self.node_id, partition)
        self._register()
        self.later(TICK_MS, self._tick)

    def kill(self) -> None:
        """Kill the process. Written data survives in the page cache."""
        if not self.is_up:
            return
        self.is_up = False
        for partition, state in self.states.items():
            self.checkpoints[partition] = max(0, self.chance.choice((0, state.high_watermark)))
            self.lines[partition].lost(ErrorCode.NETWORK_EXCEPTION)
        for other in self.cluster.brokers:
            self.cluster.network.reset(self.node_id, other)
        self.cluster.network.reset(self.node_id, CONTROLLER)

    def lose_power(self) -> None:
        self.kill()
        for partition, log in self.logs.items():
            log.lose_power(self.chance)
            self.cluster.history.cut(self.node_id, partition)

    def pause(self, for_ms: int) -> None:
        """Freeze the process for a while. Its own clock does not count that time."""
        self.paused_until_ms = max(self.paused_until_ms, self.cluster.events.now_ms + for_ms)
        if for_ms > STALL_MS:
            self.skipped_ms += for_ms

    def lived_ms(self) -> int:
        return self.cluster.events.now_ms - self.skipped_ms

    def _alive(self, incarnation: int, call: Callable[..., None], *args: object) -> None:
        """Make a call if this process still runs. If it is paused, make the call afterwards."""
        if not self.is_up or incarnation != self.incarnation:
            return
        events = self.cluster.events
        if events.now_ms < self.paused_until_ms:
            events.at(self.paused_until_ms, self._alive, incarnation, call, *args)
            return
        call(*args)

    def later(self, delay_ms: int, call: Callable[..., None], *args: object) -> None:
        self.cluster.events.after(delay_ms, self._alive, self.incarnation, call, *args)

    def send(self, target: int, call: Callable[..., None], *args: object) -> None:
        self.cluster.network.send(self.node_id, target, call, *args)

    # Registration and metadata.

    def _register(self) -> None:
        if self.broker_epoch >= 0:
            return
        self.send(CONTROLLER, self.cluster.on_register, self.node_id, self.incarnation)
        self.later(PROPOSAL_TIMEOUT_MS, self._register)

    def on_registered(self, incarnation: int, broker_epoch: int) -> None:
        self._alive(incarnation, self._registered, broker_epoch)

    def _registered(self, broker_epoch: int) -> None:
        if self.broker_epoch >= 0:
            return
        self.broker_epoch = broker_epoch
        for partition in self.logs:
            self.states[partition] = PartitionState(self.node_id, broker_epoch)
            self.lines[partition] = OffsetKey()
            self.marks[partition] = -1
        self._replay(len(self.cluster.controller.log))

    def on_metadata(self, incarnation: int, count: int) -> None:
        self._alive(incarnation, self._replay, count)

    def _replay(self, count: int) -> None:
        """Replay the first `count` batches of the metadata log, a few of them per turn."""
        if self.broker_epoch < 0:
            return
        until = min(count, self.replayed + REPLAY_SLICE)
        if until < count:
            self.later(self.chance.randrange(1, 20), self._replay, count)
        while self.replayed < until:
            batch = self.cluster.controller.log[self.replayed]
            self.replayed += 1
            before, self.image_end = self.image_end, batch.end_offset
            for partition, state in self.states.items():
                state.eligible(batch.brokers)
                self.after(partition)
            self.image.update(batch.parts)
            # With its own registration the broker assigns all partitions, even those that no later
            # batch changes.
            is_first = before <= self.broker_epoch < batch.end_offset
            touched = self.image if is_first else dict(batch.parts)
            for partition in list(touched):
                self._assign(partition)

    def _assign(self, partition: int) -> None:
        if partition in self.busy:
            return
        seen = self.image.get(partition)
        if seen is None:
            return
        log, state = self.logs[partition], self.states[partition]
        is_current = self.image_end > self.broker_epoch
        if is_current and self.node_id not in seen.replicas and log.log_end_offset:
            # The replica was removed, and its folder with it.
            log.reset_to(0)
            self.checkpoints[partition] = 0
            self.cluster.history.cut(self.node_id, partition)
        ends = LogEnds(
            log.log_start_offset,
            self.checkpoints[partition],
            self.durable_end(partition),
            log.log_end_offset,
        )
        change = state.assign(seen.assignment(self.image_end), ends, self.lived_ms())
        if change is None:
            self.after(partition)
            return
        self.cluster.note(self.node_id, "role", partition, change.after)
        self.lines[partition].lost(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self.marks[partition] = -1
        if isinstance(change.before, FollowerRole) and change.before.leader in self.fetchers:
            self.fetchers[change.before.leader].drop(Key(TOPIC_ID, partition, change.before.epoch))
        if isinstance(change.after, LeaderRole):
            self.cluster.history.led(self.node_id, partition, change.after.epoch)
        self.serving.wake(partition)
        if log.durable_end < log.log_end_offset:
            self._mark(partition)
        self._follow(partition)
        self.after(partition)
        for leader in list(self.fetchers):
            self._pump(leader)

    def _follow(self, partition: int) -> None:
        """Start to follow a leader. The log must be synced first, because a fetch offset claims
        that everything below it is durable."""
        state, log = self.states[partition], self.logs[partition]
        role = state.role
        if not isinstance(role, FollowerRole) or partition in self.busy:
            return
        if log.durable_end < log.log_end_offset:
            return
        key = Key(TOPIC_ID, partition, role.epoch)
        fetch = self.fetchers.setdefault(role.leader, LeaderFetch())
        if key not in fetch:
            fetch.follow(Followed(key, log, log.log_start_offset, log.log_end_offset))
            self._pump(role.leader)

    def _tick(self) -> None:
        self.later(TICK_MS, self._tick)
        self.send(
            CONTROLLER,
            self.cluster.on_heartbeat,
            self.node_id,
            self.broker_epoch,
            self.image_end,
        )
        for partition in self.states:
            self.propose(partition)
            self.lines[partition].expire(self.cluster.events.now_ms)

    def propose(self, partition: int) -> None:
        state = self.states[partition]
        proposal = state.proposal(self.lived_ms())
        self.after(partition)
        if proposal is None:
            return
        asked = AlterPartition(
            self.node_id,
            partition,
            proposal.leader_epoch,
            proposal.partition_epoch,
            proposal.in_sync_replicas,
        )
        self.cluster.note(self.node_id, "proposes", partition, proposal.in_sync_replicas)
        self.send(CONTROLLER, self.cluster.on_alter, asked, self.incarnation, proposal.number)
        self.later(
            PROPOSAL_TIMEOUT_MS,
            self._proposal_answered,
            partition,
            proposal.number,
            ErrorCode.REQUEST_TIMED_OUT,
        )

    def on_altered(self, incarnation: int, partition: int, number: int, code: ErrorCode) -> None:
        self._alive(incarnation, self._proposal_answered, partition, number, code)

    def _proposal_answered(self, partition: int, number: int, code: ErrorCode) -> None:
        self.states[partition].answered(number, code)
        self.after(partition)

    # The leader.

    def durable_end(self, partition: int) -> int:
        """Return the end of the durable part of the broker's own log."""
        return self.logs[partition].durable_end

    def write(self, partition: int, value: int) -> Write | None:
        """Append a client's write if this node believes that it is the leader."""
        if not self.is_up or self.cluster.events.now_ms < self.paused_until_ms:
            return None
        state = self.states.get(partition)
        if state is None or not isinstance(state.role, LeaderRole) or state.is_under_min_isr:
            return None
        entry = Entry(state.role.epoch, value)
        offset = self.logs[partition].append(entry)
        self.cluster.history.appended(self.node_id, partition, offset)
        write = Write(self, partition, offset, entry)
        deadline_ms = self.cluster.events.now_ms + WRITE_TIMEOUT_MS
        self.lines[partition].await_(offset + 1, write, deadline_ms)
        self.serving.wake(partition)
        self._mark(partition)
        self.after(partition)
        return write

    def trim(self, partition: int, log_start_offset: int) -> None:
        """Handle DeleteRecords if this node is the leader."""
        state = self.states.get(partition)
        if not self.is_up or state is None or not isinstance(state.role, LeaderRole):
            return
        log = self.logs[partition]
        log.trim(min(log_start_offset, state.high_watermark))
        state.trimmed(log.log_start_offset)
        self.serving.wake(partition)
        self.serving.moved(partition)

    def latest(self, partition: int) -> None:
        """Answer a consumer's ListOffsets for the latest offset, and check it against the
        history."""
        state = self.states.get(partition)
        if not self.is_up or state is None or not isinstance(state.role, LeaderRole):
            return
        if self.cluster.controller.parts[partition].leader_epoch != state.role.epoch:
            return
        if not state.is_high_watermark_floor:
            self.cluster.history.told(self.node_id, partition, state.high_watermark)

    def on_fetch(self, request: Request) -> None:
        if self.is_up:
            self._alive(self.incarnation, self.serving.fetch, request)
            return
        follower = self.cluster.brokers[request.source]
        refused = (request.incarnation, self.node_id, request.plan.request_id)
        self.send(request.source, follower.on_refused, *refused)

    # The follower.

    def _pump(self, leader: int) -> None:
        now_ms = self.cluster.events.now_ms
        fetch = self.fetchers[leader]
        plan = fetch.next_fetch(now_ms)
        if plan is not None:
            target = self.cluster.brokers[leader]
            self.cluster.note(self.node_id, "fetches", leader, plan)
            self.outstanding[leader] = plan.request_id
            request = Request(self.node_id, self.incarnation, self.broker_epoch, plan)
            self.send(leader, target.on_fetch, request)
            self.later(REQUEST_TIMEOUT_MS, self._fetch_failed, leader, plan.request_id)
        elif fetch.next_deadline_ms is not None:
            due_ms = max(now_ms + 1, fetch.next_deadline_ms)
            if not now_ms < self.pumps.get(leader, 0) <= due_ms:
                self.pumps[leader] = due_ms
                self.later(due_ms - now_ms, self._pump, leader)

    def on_refused(self, incarnation: int, leader: int, request_id: int) -> None:
        self._alive(incarnation, self._fetch_failed, leader, request_id)

    def _fetch_failed(self, leader: int, request_id: int) -> None:
        if self.outstanding.get(leader) == request_id:
            del self.outstanding[leader]
            self.fetchers[leader].failed(request_id, self.cluster.events.now_ms)
            self._pump(leader)

    def on_answer(
        self, incarnation: int, leader: int, request_id: int, answer: FetchResponse
    ) -> None:
        self._alive(incarnation, self._answered, leader, request_id, answer)

    def _answered(self, leader: int, request_id: int, answer: FetchResponse) -> None:
        if self.outstanding.get(leader) == request_id:
            del self.outstanding[leader]
        fetch = self.fetchers[leader]
        for action in fetch.on_answer(request_id, answer, self.cluster.events.now_ms):
            partition = action.key.partition_index
            self.cluster.note(self.node_id, type(action).__name__, partition, action)
            if isinstance(action, Append):
                self._append(leader, action)
            elif isinstance(action, Truncate | Reset):
                self.busy[partition] = None
                self.later(self.chance.randrange(1, 20), self._cut, leader, action)
            else:
                assert isinstance(action, Drop)
        self._pump(leader)

    def _append(self, leader: int, action: Append) -> None:
        partition = action.key.partition_index
        log, state = self.logs[partition], self.states[partition]
        for entry in unpack(action.records):
            offset = log.append(entry)
            self.cluster.history.appended(self.node_id, partition, offset)
        if action.records:
            self._mark(partition)
        state.learned(action.high_watermark, log.log_end_offset)
        start = min(action.log_start_offset, state.high_watermark)
        if start > log.log_start_offset:
            log.trim(start)
            self.fetchers[leader].trimmed(action.key, log.log_start_offset)
        self.after(partition)

    def _cut(self, leader: int, action: Truncate | Reset) -> None:
        partition = action.key.partition_index
        log = self.logs[partition]
        if isinstance(action, Truncate):
            log.truncate_to(action.end_offset)
        else:
            log.reset_to(action.start_offset)
        self.cluster.history.cut(self.node_id, partition)
        del self.busy[partition]
        self.fetchers[leader].truncated(action.key, log.log_end_offset, log.leader_epochs.latest)
        state = self.states[partition]
        if not isinstance(state.role, LeaderRole):
            state.learned(state.high_watermark, log.log_end_offset)
        self._assign(partition)
        self._follow(partition)
        self._pump(leader)

    # The disk.

    def _mark(self, partition: int) -> None:
        self.unsynced[partition] = None
        if not self.is_syncing:
            self._sync()

    def _sync(self) -> None:
        """Sync all marked logs together (group commit)."""
        self.is_syncing = True
        ends = [
            (partition, self.logs[partition].log_end_offset, self.logs[partition].cuts)
            for partition in self.unsynced
        ]
        self.unsynced = {}
        self.later(self.chance.randint(*self.sync_ms), self._synced, ends)

    def _synced(self, ends: list[tuple[int, int, int]]) -> None:
        self.is_syncing = False
        for partition, end_offset, cuts in ends:
            log, state = self.logs[partition], self.states[partition]
            log.synced(end_offset, cuts)
            state.advance_durable_end(self.durable_end(partition))
            self.after(partition)
            role = state.role
            if isinstance(role, FollowerRole) and log.durable_end == log.log_end_offset:
                self._follow(partition)
                self.fetchers[role.leader].synced(
                    Key(TOPIC_ID, partition, role.epoch), log.durable_end
                )
        if self.unsynced:
            self._sync()
        for leader in list(self.fetchers):
            self._pump(leader)

    def after(self, partition: int) -> None:
        """Read the high watermark, as the broker does after every call, and complete waiting
        writes."""
        state = self.states[partition]
        mark = state.high_watermark
        before = self.marks[partition]
        if mark == before:
            return
        self.marks[partition] = mark
        leads = isinstance(state.role, LeaderRole)
        self.cluster.history.advanced(self.node_id, partition, before, mark, leads)
        if leads:
            self.cluster.note(self.node_id, "commits", partition, mark)
            self.lines[partition].reached(mark)
            self.serving.moved(partition)
