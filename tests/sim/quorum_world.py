"""A metadata quorum in one process, from one seed: replicas, their disks, the network, and faults.

A heap of (time, id, call) has all events in order. `chaos` causes all faults for a while, and the
invariants are checked after every event. `heal` ends the faults, and then requires a leader and
progress.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random

from broker.quorum.events import (
    AddVoter,
    Answer,
    ChangeVoters,
    Event,
    LeaderDead,
    Received,
    RemoveVoter,
    Resign,
    UpdateVoter,
    VoterChange,
)
from broker.quorum.ready import Send
from broker.quorum.snapshot import BOOTSTRAP, build_snapshot, check_snapshot
from broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from protocol.wire.records import iterate_batches
from tests.sim.quorum_checks import Checks
from tests.sim.quorum_disk import SnapshotFile
from tests.sim.quorum_node import Asker, Node, key_of
from tests.sim.violation import Violation

HEALED_MS = 30_000
REFUSED_MS = 1
ANSWER_MS_MAX = 2_000
"""A running replica that takes longer than this to respond breaks an invariant."""


@dataclass(frozen=True)
class Mix:
    """The rates of faults: the mean ms between two faults of one kind. 0 means that it never
    comes."""

    crash: int = 1_500
    all_crash: int = 0
    cut: int = 1_500
    slow_disk: int = 4_000
    full_disk: int = 0
    verdict: int = 5_000
    resign: int = 6_000
    snapshot: int = 700
    short_snapshot: bool = False
    wipe: int = 0
    change: int = 0
    """The rate of voter changes: add, remove, and replace a lost disk."""
    copy: int = 0
    """The rate at which a voter's disk is copied, or replaced by its old copy."""
    loss: float = 0.01
    propose: int = 60


class World:
    """The replicas, their network, and the queue of all events."""

    def __init__(self, seed: str, voters: int = 3, observers: int = 0, mix: Mix | None = None):
        self.chance = Random(seed)
        self.mix = mix or Mix()
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._ids = count()
        self._calls = count(1)
        self._values = count(1)
        self._trace: list[tuple[int | str, ...]] = []
        self.event_count = 0
        self.cuts: set[tuple[int, int]] = set()
        """(from, to): messages in this direction do not arrive."""
        self.is_chaos = False
        self.check_snapshot: Callable[[bytes], VoterSet] = check_snapshot
        ids = range(1, voters + 1)
        self.voters = VoterSet(Voter(key_of(node_id)) for node_id in ids)
        self.check = Checks(self)
        self.listed: set[ReplicaKey] = set(self.voters)
        """All directories that were ever in a voter set, committed or not. If it is empty, this is
        not checked."""
        all_ids = range(1, voters + observers + 1)
        bootstrap = list(all_ids if self.mix.change else ids)
        self.nodes = {node_id: Node(self, node_id, self.voters, bootstrap) for node_id in all_ids}
        self.disks = {node.key: [node.disk] for node in self.nodes.values()}
        """All disks that ever existed, by directory: the first one, and its copies that were used.
        Lost disks keep the content that they had then."""
        for node in self.nodes.values():
            self.after(self.chance.randint(0, 300), node.start)

    # Time.

    def at(self, time_ms: int, call: Callable[[], None]) -> None:
        heapq.heappush(self._heap, (time_ms, next(self._ids), call))

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, call)

    def run_until(self, end_ms: int, condition: Callable[[], bool] | None = None) -> bool:
        """Let time pass until `end_ms`, or until the condition holds. Return True if it holds."""
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, call = heapq.heappop(self._heap)
            call()
            self.event_count += 1
            if condition is not None and condition():
                return True
        self.now_ms = end_ms
        return False

    def trace(self, node: Node, event: Event) -> None:
        assert node.quorum is not None
        replica = node.quorum.replica
        told = (
            self.now_ms,
            node.node_id,
            type(event).__name__,
            type(node.quorum.role).__name__,
            replica.epoch,
            replica.log.end_offset,
            replica.log.committed_offset,
        )
        self._trace.append(told)

    @property
    def trace_digest(self) -> str:
        return hashlib.sha256(repr(self._trace).encode()).hexdigest()

    # The network.

    def _delay_ms(self) -> int:
        late = self.is_chaos and self.chance.random() < 0.03
        return self.chance.randint(20, 600) if late else self.chance.randint(0, 3)

    def _is_lost(self, source: int, target: int) -> bool:
        return (source, target) in self.cuts or (
            self.is_chaos and self.chance.random() < self.mix.loss
        )

    def ask(self, node: Node, send: Send) -> None:
        incarnation, request_id = node.incarnation, send.request_id
        other = self.nodes[send.node_id]

        def fail() -> None:
            node.answered(incarnation, request_id, None)

        def arrive() -> None:
            if not other.is_up:
                self.after(REFUSED_MS, fail)
                return
            asker = Asker(node.node_id, incarnation, request_id)
            other.receive(asker, Received(next(self._calls), send.request))

        self.after(send.timeout_ms, fail)
        if not self._is_lost(node.node_id, other.node_id):
            self.after(self._delay_ms(), arrive)

    def answer(self, node: Node, asker: Asker, answer: Answer) -> None:
        """Send a response to the process that sent the request. A later process of the same node
        must not get it, because it has other connections."""
        other = self.nodes[asker.node_id]
        if not self._is_lost(node.node_id, asker.node_id):
            self.after(
                self._delay_ms(),
                lambda: other.answered(asker.incarnation, asker.request_id, answer),
            )

    def served(self, node: Node, content: bytes) -> bytes:
        """Return a snapshot as read from its file. During chaos it can be truncated, as if its
        writing had been interrupted unnoticed."""
        if not (self.is_chaos and self.mix.short_snapshot):
            return content
        ends = [len(batch) for _, batch in iterate_batches(content)]
        return content[: sum(ends[: (len(content) + node.node_id) % len(ends) + 1])]

    # The state of the whole cluster.

    def birth_snapshot(self, voters: VoterSet) -> SnapshotFile:
        return SnapshotFile(BOOTSTRAP, build_snapshot(BOOTSTRAP, voters, []), voters)

    def image_at(self, end_offset: int) -> list[bytes]:
        return self.check.images[end_offset]

    @property
    def leaders(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_up and node.won is not None]

    # Faults.

    def chaos(self, duration_ms: int) -> None:
        """Cause faults for a while. In the meantime leaders get proposals all the time."""
        self.is_chaos = True
        end_ms = self.now_ms + duration_ms
        mix = self.mix
        kinds: list[tuple[int, Callable[[], None]]] = [
            (mix.propose, self.propose),
            (mix.crash, self._crash_one),
            (mix.all_crash, self._crash_all),
            (mix.cut, self._cut),
            (mix.slow_disk, self._slow_disk),
            (mix.full_disk, self._full_disk),
            (mix.verdict, self._false_verdict),
            (mix.resign, self._resign),
            (mix.snapshot, self._snapshot),
            (mix.wipe, self._wipe),
            (mix.change, self._change),
            (mix.copy, self._copy),
        ]
        for mean_ms, fault in kinds:
            if mean_ms:
                self._repeat(mean_ms, fault, end_ms)
        self.run_until(end_ms)
        self.is_chaos = False

    def _repeat(self, mean_ms: int, fault: Callable[[], None], end_ms: int) -> None:
        def happen() -> None:
            if self.now_ms < end_ms and self.is_chaos:
                fault()
                self._repeat(mean_ms, fault, end_ms)

        self.after(self.chance.randint(1, 2 * mean_ms), happen)

    def propose(self) -> None:
        for node in self.leaders:
            values = [b"%d" % next(self._values) for _ in range(self.chance.randint(1, 3))]
            node.propose(values)

    def _any(self, *, up: bool = True) -> Node | None:
        nodes = [node for node in self.nodes.values() if node.is_up == up]
        return self.chance.choice(nodes) if nodes else None

    def crash(self, node: Node, down_ms: int) -> None:
        """Crash a node and start it again after a while. The other nodes can learn of the crash at
        once."""
        was_leader = node.won
        node.crash(self.chance)
        if self.chance.random() < 0.7:
            # Only the process has died, so its kernel closes the connections. In the other case the
            # whole host is silent.
            for other in self.nodes.values():
                self.after(self.chance.randint(0, 3), partial(other.reset, node.node_id))
        self.after(down_ms, lambda: None if node.is_up else node.start())
        if was_leader is not None and self.chance.random() < 0.5:
            verdict = LeaderDead(node.node_id, was_leader.epoch)
            for other in self.nodes.values():
                self.after(self.chance.randint(1, 10), partial(other.handle, verdict))

    def _crash_one(self) -> None:
        leaders = self.leaders
        node = (
            self.chance.choice(leaders) if leaders and self.chance.random() < 0.5 else self._any()
        )
        if node is not None:
            self.crash(node, self.chance.choice([1, 30, 300, 2_500]))

    def _crash_all(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                self.crash(node, self.chance.randint(1, 500))

    def _cut(self) -> None:
        """For a while drop messages from a node, to it, or both. The other end is one node or
        all."""
        one = self.chance.choice(list(self.nodes))
        others = [node_id for node_id in self.nodes if node_id != one]
        if not others:
            return
        if self.chance.random() < 0.5:
            others = [self.chance.choice(others)]
        ways = self.chance.choice([(True, False), (False, True), (True, True)])
        pairs = [(one, other) for other in others if ways[0]]
        pairs += [(other, one) for other in others if ways[1]]
        self.cuts.update(pairs)
        self.after(
            self.chance.choice([100, 1_000, 5_000]), lambda: self.cuts.difference_update(pairs)
        )

    def _slow_disk(self) -> None:
        node = self.chance.choice(list(self.nodes.values()))
        node.sync_ms = self.chance.choice([(20, 60), (150, 400), (400, 900)])
        self.after(self.chance.randint(500, 4_000), lambda: setattr(node, "sync_ms", (1, 4)))

    def _full_disk(self) -> None:
        node = self.chance.choice(list(self.nodes.values()))
        node.is_full = True
        self.after(self.chance.randint(200, 3_000), lambda: setattr(node, "is_full", False))

    def _false_verdict(self) -> None:
        node = self._any()
        if node is not None and node.quorum is not None and node.quorum.role.leader_id >= 0:
            replica = node.quorum.replica
            node.handle(LeaderDead(node.quorum.role.leader_id, replica.epoch))

    def _resign(self) -> None:
        for node in self.leaders:
            node.handle(Resign())

    def _snapshot(self) -> None:
        node = self._any()
        if node is not None:
            node.take_snapshot(keep=self.chance.choice([0, 0, 3]))

    def _wipe(self) -> None:
        """Replace a voter's disk by an empty one. Do it only if a majority of every voter set in
        force still has its disk afterwards."""
        sets = [*self._sets_in_force()] if self.mix.change else [self.voters]
        node = self.chance.choice([self.nodes[key.node_id] for key in sets[0]])
        named = [one for one in sets if node.key in one]
        if named and all(self._intact(one) > one.majority for one in named):
            if node.is_up:
                self.crash(node, self.chance.randint(1, 500))
            node.wipe()
            self.disks[node.key] = [node.disk]

    def _copy(self) -> None:
        """Copy a voter's disk, or start the voter at another address with the copy that was made
        before. A majority of the voters has its own disk."""
        voters = [self.nodes[key.node_id] for key in self.voters]
        node = self.chance.choice(voters)
        if node.old_copy is None:
            node.old_copy = node.disk.copied()
            return
        proven = [one for one in voters if one is not node and not one.is_copy]
        if len(proven) >= self.voters.majority:
            if node.is_up:
                self.crash(node, self.chance.randint(1, 500))
            node.move_with_copy()
            self.disks[node.key].append(node.disk)

    def _intact(self, voters: VoterSet) -> int:
        """Return the number of voters that still have the disk with which they are listed."""
        return sum(self.nodes[key.node_id].key == key for key in voters)

    def _sets_in_force(self) -> Iterator[VoterSet]:
        """Yield each voter set that a replica follows now, or would follow after a crash or a
        truncation."""
        for node in self.nodes.values():
            histories = [node.disk.recovered()[1], node.disk.recovered(is_crashed=True)[1]]
            if node.quorum is not None:
                histories.insert(0, node.quorum.replica.voters)
            for history in histories:
                for voters in (history.latest, history.previous):
                    if len(voters):
                        yield voters

    def _change(self) -> None:
        """Order one random voter change at each leader. Choose it so that a majority of the new
        voter set still has its disk."""
        for node in self.leaders:
            assert node.quorum is not None
            voters = node.quorum.replica.voters.latest
            ways: list[VoterChange] = []
            for key in voters:
                lost = self.nodes[key.node_id].key != key
                ways += [RemoveVoter(key)] * (5 if lost else 1)
                host = f"h{self.chance.randint(1, 3)}"
                ways.append(UpdateVoter(Voter(key, (Endpoint("BROKER", host, 29_092),))))
            for other in self.nodes.values():
                if voters.voter(other.node_id) is None:
                    ways += [AddVoter(Voter(other.key))] * 3
            way = self.chance.choice(ways)
            after = changed(voters, way)
            if len(after) and self._intact(after) >= after.majority:
                timeout_ms = self.chance.choice([50, 2_000])
                node.handle(ChangeVoters(next(self._calls), way, timeout_ms))

    # The end.

    def heal(self) -> None:
        """End all faults. Then a leader must be elected, and a new proposal must be committed on
        all replicas."""
        self.cuts.clear()
        for node in self.nodes.values():
            node.sync_ms = (1, 4)
            node.is_full = False
            if not node.is_up:
                node.start()
        goal = self.check.end_offset + 1

        def is_done() -> bool:
            return all(node.committed_offset >= goal for node in self.nodes.values())

        def propose() -> None:
            if not is_done():
                self.propose()
                self.after(100, propose)

        self.after(100, propose)
        if not self.run_until(self.now_ms + HEALED_MS, is_done):
            raise Violation(f"no progress within {HEALED_MS} ms of the repair: {self.describe()}")
        self._all_calls_are_answered()

    def _all_calls_are_answered(self) -> None:
        self.run_until(self.now_ms + ANSWER_MS_MAX)
        for node in self.nodes.values():
            for call in node.open_calls.values():
                if self.now_ms - call.since_ms >= ANSWER_MS_MAX:
                    raise Violation(f"{node.node_id} never answered {call.request}")

    def describe(self) -> str:
        told = []
        for node in self.nodes.values():
            if node.quorum is None:
                told.append(f"{node.node_id} is down")
                continue
            replica = node.quorum.replica
            told.append(
                f"{node.node_id} {type(node.quorum.role).__name__} of {node.quorum.role.leader_id} "
                f"in {replica.epoch}, log {replica.log.start_offset} to {replica.log.end_offset}, "
                f"committed {replica.log.committed_offset}"
            )
        return "; ".join(told)


def changed(voters: VoterSet, change: VoterChange) -> VoterSet:
    """Return the voter set after a change."""
    if isinstance(change, RemoveVoter):
        return VoterSet(one for one in voters.voters if one.key != change.key)
    if isinstance(change, UpdateVoter):
        return VoterSet(
            change.voter if one.key == change.voter.key else one for one in voters.voters
        )
    return VoterSet([*voters.voters, change.voter])


def run(seed: str, voters: int, observers: int, mix: Mix, chaos_ms: int) -> World:
    """Perform one run of a cluster with faults, and end them. Raise if an invariant does not
    hold."""
    world = World(seed, voters, observers, mix)
    world.chaos(chaos_ms)
    world.heal()
    return world
