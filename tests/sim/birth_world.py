"""A simulated creation of a cluster, from one seed: three broker processes, their disks and their
messages.

Processes stop and start. Messages are delayed, lost and duplicated. A killed process leaves its
written data on its disk. A power cut loses unsynced data. An emptied disk comes back with another
directory id. As on real connections, a response reaches only the process that sent the request.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from broker.cluster.birth import (
    Birth,
    BirthDone,
    BirthTick,
    Effect,
    Event,
    RefuseStart,
    RejectQuestion,
    ReportFailed,
    ReportReceived,
    ReportRequested,
    RequestReport,
    SendReport,
    StartBirth,
    StoreVoters,
    VotersStored,
)
from broker.cluster.found import FIRST_EPOCH, DiskReport
from broker.cluster.reports import BrokerReport
from broker.quorum.voters import ReplicaKey
from protocol.types import Uuid
from tests.sim.violation import Violation

NODES = (1, 2, 3)
CLUSTER = "cluster"
CHAOS_MS = 3_000
SETTLED_MS = 3_000
"""The time in which the creation must be complete if all processes run: three rounds of requests,
and two rounds of writes to disk."""

Voters = tuple[ReplicaKey, ...]


@dataclass
class Mix:
    """The rates of faults. They are probabilities from 0 to 1, and times in ms."""

    fault_count_max: int = 8
    lost: float = 0.1
    twice: float = 0.1
    late: float = 0.2
    late_ms_max: int = 900
    answer_ms_max: int = 1_000
    """The time after which a request has failed."""
    quick_ms_max: int = 10
    store_ms_max: int = 300
    down_ms_max: int = 500
    emptied: float = 0.4
    powerless: float = 0.3


@dataclass
class Disk:
    """One data folder: the data that a process can read, and the data that survive a power cut."""

    directory_id: Uuid
    written: Voters = ()
    durable: Voters = ()
    has_vote_file: bool = False
    has_voted: bool = False

    def lose_power(self) -> None:
        self.written = self.durable


@dataclass
class Process:
    """One process of a node, from its start to its end."""

    number: int
    birth: Birth
    done: Voters = ()
    refused: str = ""


@dataclass
class World:
    """The network, the disks and the broker processes. One queue has all their events in order."""

    chance: Random
    mix: Mix = field(default_factory=Mix)
    make: Callable[[DiskReport], Birth] = Birth
    now_ms: int = 0
    emptied_count: int = 0
    store_count: int = 0
    is_healed: bool = False
    """True after the faults have ended: all processes stay up, and no message is lost."""
    is_final: bool = False
    """A refused broker stays refused."""

    def __post_init__(self) -> None:
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = 0
        self.disks = {node_id: self._new_disk() for node_id in NODES}
        self.running: dict[int, Process] = {}

    # The queue of events.

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._numbers += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._numbers, call))

    def run_until(self, end_ms: int) -> None:
        while self._heap and self._heap[0][0] <= end_ms:
            self.now_ms, _, call = heapq.heappop(self._heap)
            call()
            self.check()
        self.now_ms = end_ms

    def live(self) -> None:
        """Run random starts and faults. Then end the faults, run all processes for a while, and
        check the result."""
        chance, mix = self.chance, self.mix
        for node_id in NODES:
            self.later(chance.randint(0, mix.down_ms_max), partial(self.start, node_id))
        for _ in range(chance.randint(0, mix.fault_count_max)):
            self.later(chance.randint(0, CHAOS_MS), self._fault)
        self.run_until(CHAOS_MS + mix.down_ms_max)
        self.is_healed = True
        for node_id in NODES:
            self.start(node_id)
        # Wait until every delayed message of the faulty time has arrived or its request has failed.
        self.run_until(self.now_ms + mix.late_ms_max + mix.answer_ms_max)
        self.is_final = True
        self.run_until(self.now_ms + mix.down_ms_max + SETTLED_MS)
        self.check_end()

    # Nodes.

    def start(self, node_id: int) -> None:
        if node_id in self.running:
            return
        disk = self.disks[node_id]
        me = ReplicaKey(node_id, disk.directory_id)
        report = BrokerReport(CLUSTER, me, NODES, voters=disk.written)
        vote_epoch = FIRST_EPOCH + disk.has_voted if disk.has_vote_file else None
        self._numbers += 1
        process = Process(self._numbers, self.make(DiskReport(report, vote_epoch)))
        self.running[node_id] = process
        self.step(node_id, process, StartBirth())

    def kill(self, node_id: int) -> None:
        self.running.pop(node_id, None)

    def lose_power(self, node_id: int) -> None:
        self.kill(node_id)
        self.disks[node_id].lose_power()

    def empty(self, node_id: int) -> None:
        self.kill(node_id)
        self.emptied_count += 1
        self.disks[node_id] = self._new_disk()

    def _new_disk(self) -> Disk:
        return Disk(Uuid(int=self.chance.getrandbits(128)))

    def _fault(self) -> None:
        chance, mix = self.chance, self.mix
        node_id = chance.choice(NODES)
        drawn = chance.random()
        if drawn < mix.emptied:
            self.empty(node_id)
        elif drawn < mix.emptied + mix.powerless:
            self.lose_power(node_id)
        else:
            self.kill(node_id)
        self.later(chance.randint(0, mix.down_ms_max), lambda: self.start(node_id))

    # The driver of a process: it performs the effects of `Birth`.

    def step(self, node_id: int, process: Process, event: Event) -> None:
        """Pass an event to a process if it is still running."""
        if self.running.get(node_id) is not process:
            return
        for effect in process.birth.step(event, self.now_ms):
            self._do(node_id, process, effect)
        due_ms = process.birth.next_deadline_ms
        if due_ms is not None:
            delay_ms = max(due_ms - self.now_ms, 0)
            self.later(delay_ms, lambda: self._tick(node_id, process))

    def _tick(self, node_id: int, process: Process) -> None:
        due_ms = process.birth.next_deadline_ms
        if due_ms is not None and due_ms <= self.now_ms:
            self.step(node_id, process, BirthTick())

    def _do(self, node_id: int, process: Process, effect: Effect) -> None:
        match effect:
            case RequestReport(question_id, asked_id):
                self._say(lambda: self._hear(node_id, process, question_id, asked_id))
                failed = ReportFailed(question_id)
                self.later(self.mix.answer_ms_max, lambda: self.step(node_id, process, failed))
            case StoreVoters(voters):
                self.store_count += 1
                self._store(node_id, process, voters)
            case BirthDone(voters):
                process.done = voters
                self._vote(node_id, voters)
            case RefuseStart(text):
                process.refused = text
                if "damaged" in text:
                    raise Violation(f"broker {node_id}: {text}")
                if not self.is_final:
                    # The supervisor starts a refused process again, because the reason of the
                    # refusal can be gone by then.
                    self.kill(node_id)
                    delay_ms = self.chance.randint(0, self.mix.down_ms_max)
                    self.later(delay_ms, lambda: self.start(node_id))
            case _:
                raise AssertionError(f"{effect} is an answer without a question")

    def _hear(self, node_id: int, process: Process, question_id: int, asked_id: int) -> None:
        """Deliver a request to the current process of the other node, and send its response
        back."""
        asked = self.running.get(asked_id)
        answer: Event
        match [] if asked is None else asked.birth.step(ReportRequested(0, node_id), self.now_ms):
            case []:
                answer = ReportFailed(question_id)
            case [SendReport(_, report)]:
                answer = ReportReceived(question_id, report)
            case [RejectQuestion(_)]:
                answer = ReportFailed(question_id)
            case other:
                raise AssertionError(f"{other} is no answer")
        self._say(lambda: self.step(node_id, process, answer))

    def _say(self, arrives: Callable[[], None]) -> None:
        chance, mix = self.chance, self.mix
        count = 1
        if not self.is_healed:
            drawn = chance.random()
            count = 0 if drawn < mix.lost else 2 if drawn < mix.lost + mix.twice else 1
        for _ in range(count):
            is_late = not self.is_healed and chance.random() < mix.late
            self.later(chance.randint(0, mix.late_ms_max if is_late else mix.quick_ms_max), arrives)

    # Disks.

    def _store(self, node_id: int, process: Process, voters: Voters) -> None:
        """Write the vote file, write the voter set, and sync. Each step takes a while, and the
        process can die between two steps."""
        disk = self.disks[node_id]

        def vote_file() -> None:
            disk.has_vote_file = True

        def write() -> None:
            disk.written = voters

        def sync() -> None:
            disk.durable = disk.written
            self.step(node_id, process, VotersStored())

        def go_on(jobs: Sequence[Callable[[], None]]) -> None:
            if self.running.get(node_id) is process:
                jobs[0]()
                if len(jobs) > 1:
                    delay_ms = self.chance.randint(0, self.mix.store_ms_max)
                    self.later(delay_ms, lambda: go_on(jobs[1:]))

        delay_ms = self.chance.randint(0, self.mix.store_ms_max)
        self.later(delay_ms, lambda: go_on([vote_file, write, sync]))

    def _vote(self, node_id: int, voters: Voters) -> None:
        """Record that a broker has voted in its new voter set. That vote is durable at once."""
        disk = self.disks[node_id]
        if disk.written != voters:
            raise Violation(f"broker {node_id} votes in a set that it has not")
        disk.has_voted = True

    # Invariants.

    @property
    def sets(self) -> set[Voters]:
        """Return the voter sets that would survive a power cut."""
        return {disk.durable for disk in self.disks.values() if disk.durable}

    def check(self) -> None:
        """Check that no two durable voter sets differ."""
        if len(self.sets) > 1:
            raise Violation(f"two voter sets: {self.sets}")

    def check_end(self) -> None:
        """Check that no broker still waits, that a broker was refused only if a disk was emptied,
        and that all brokers belong to one cluster."""
        for node_id, process in self.running.items():
            if not (process.done or process.refused):
                raise Violation(f"broker {node_id} waits for {process.birth.waits_for}")
            if process.refused and not self.emptied_count:
                raise Violation(f"broker {node_id} is refused: {process.refused}")
        done = {process.done for process in self.running.values() if process.done}
        if len(done) != 1 or done != self.sets:
            raise Violation(f"voters are {done}, on the disks {self.sets}")
