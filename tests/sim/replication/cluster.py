"""Three brokers, a few partitions, clients and faults. One seed gives exactly one run, byte for
byte."""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import Any

from broker.replication.partition import LeaderRole
from protocol.types import NO_NODE
from tests.sim.replication.broker import WRITE_TIMEOUT_MS, Broker, Write
from tests.sim.replication.controller import AlterPartition, Batch
from tests.sim.replication.events import CONTROLLER, Events, Network
from tests.sim.replication.history import History
from tests.sim.replication.ruling import RulingController

NODES = (1, 2, 3)
MIN_ISR = 2
CONTROLLER_TICK_MS = 250
WRITE_EVERY_MS = 25
HEAL_MS = 30_000
HEAL_LOOK_MS = 250


class Cluster:
    """The brokers of one run. `note` writes the trace if `is_traced` is set."""

    def __init__(
        self,
        seed: int,
        partition_count: int = 2,
        *,
        is_traced: bool = False,
        nodes: tuple[int, ...] = NODES,
    ) -> None:
        """At first the first three of `nodes` have the replicas. Reassignments can use all
        nodes."""
        self.nodes = nodes
        self.chance = Random(seed)
        self.events = Events()
        self.network = Network(self.events, self.chance)
        self.partitions = range(partition_count)
        self.brokers: dict[int, Broker] = {}
        self.history = History(self.brokers, self.partitions)
        self.controller = RulingController(self._committed)
        for node_id in nodes:
            self.brokers[node_id] = Broker(self, node_id, self.partitions, self.chance)
        self.trace: list[str] = []
        self.is_traced = is_traced
        self.writes: list[Write] = []
        self.acknowledged_count = 0
        self._next_value = 0
        for node_id in nodes:
            self.brokers[node_id].start()
        for partition in self.partitions:
            first = partition % len(NODES)
            self.controller.create(partition, NODES[first:] + NODES[:first], MIN_ISR)
        self._controller_tick()

    def note(self, node_id: int, what: str, *about: Any) -> None:
        if self.is_traced:
            self.trace.append(f"{self.events.now_ms} {node_id} {what} {about}")

    def digest(self) -> str:
        return blake2b("\n".join(self.trace).encode(), digest_size=16).hexdigest()

    # Messages to and from the controller.

    def _controller_tick(self) -> None:
        self.controller.tick(self.events.now_ms)
        self.events.after(CONTROLLER_TICK_MS, self._controller_tick)

    def _committed(self, batch: Batch) -> None:
        self.history.decided(batch)
        self.note(CONTROLLER, "commits", batch.end_offset, batch.parts, batch.brokers)
        count = len(self.controller.log)
        for node_id, broker in self.brokers.items():
            self.network.send(CONTROLLER, node_id, broker.on_metadata, broker.incarnation, count)

    def on_register(self, node_id: int, incarnation: int) -> None:
        broker = self.brokers[node_id]
        if incarnation == broker.incarnation:
            epoch = self.controller.register(node_id, incarnation, self.events.now_ms)
            self.network.send(CONTROLLER, node_id, broker.on_registered, incarnation, epoch)

    def on_heartbeat(self, node_id: int, broker_epoch: int, replayed: int) -> None:
        self.controller.heartbeat(node_id, broker_epoch, replayed, self.events.now_ms)

    def on_alter(self, asked: AlterPartition, incarnation: int, number: int) -> None:
        code = self.controller.alter(asked)
        self.note(CONTROLLER, "answers", asked, code)
        broker = self.brokers[asked.node_id]
        self.network.send(
            CONTROLLER,
            asked.node_id,
            broker.on_altered,
            incarnation,
            asked.partition,
            number,
            code,
        )

    # Requests of clients.

    def acknowledged(self, write: Write) -> None:
        self.acknowledged_count += 1
        committed = self.history.committed[write.partition]
        assert committed[write.offset] == write.entry, "what is acknowledged is committed"

    def write(self, partition: int, node_id: int | None = None) -> Write | None:
        """Write a record to the first broker, in random order, that accepts it. This can be a
        deposed leader. Return None if no broker accepts it."""
        nodes = list(self.brokers.values()) if node_id is None else [self.brokers[node_id]]
        if node_id is None:
            self.chance.shuffle(nodes)
        for broker in nodes:
            self._next_value += 1
            write = broker.write(partition, self._next_value)
            if write is not None:
                self.writes.append(write)
                return write
        return None

    def _client(self, until_ms: int) -> None:
        if self.events.now_ms >= until_ms:
            return
        partition = self.chance.randrange(len(self.partitions))
        for _ in range(self.chance.choice((1, 1, 1, 4))):
            self.write(partition)
        deed = self.chance.random()
        broker = self.brokers[self.chance.choice(self.nodes)]
        if deed < 0.3:
            broker.latest(partition)
        elif deed < 0.32:
            broker.trim(
                partition, self.chance.randrange(1 + len(self.history.committed[partition]))
            )
        self.events.after(self.chance.randrange(1, 2 * WRITE_EVERY_MS), self._client, until_ms)

    # Time.

    def run(self, until_ms: int) -> None:
        """Run all events up to this time."""
        while self.events.step(until_ms):
            pass

    def run_for(self, for_ms: int) -> None:
        self.run(self.events.now_ms + for_ms)

    def chaos(self, for_ms: int, menu: Any) -> None:
        """Let clients work while random faults of the menu happen."""
        until_ms = self.events.now_ms + for_ms
        self._client(until_ms)
        menu(self, until_ms)
        self.run(until_ms)

    def heal(self) -> None:
        """End all faults. Within 30 s each partition must have a leader, all replicas must be in
        sync, and every record must be committed."""
        self.network.heal()
        for partition in self.partitions:
            self.controller.set_min_isr(partition, MIN_ISR)
        for broker in self.brokers.values():
            broker.sync_ms = (1, 6)
            broker.paused_until_ms = min(broker.paused_until_ms, self.events.now_ms)
            broker.start()
        until_ms = self.events.now_ms + HEAL_MS
        self._await_whole(until_ms)
        # A decision from before this call can still fence a broker, so retry rejected writes.
        wanting = list(self.partitions)
        while wanting and self.events.now_ms < until_ms:
            wanting = [partition for partition in wanting if not self.write(partition)]
            if wanting:
                # A whole cluster can refuse writes until a leader knows a decision.
                self.run_for(HEAL_LOOK_MS)
            self._await_whole(until_ms)
        assert not wanting, f"{wanting} take no writes though they are whole"
        until_ms = self.events.now_ms + WRITE_TIMEOUT_MS + HEAL_LOOK_MS
        while (waiting := self._waiting()) and self.events.now_ms < until_ms:
            self.run_for(HEAL_LOOK_MS)
        assert not waiting, f"{waiting} waits never ended"

    def _waiting(self) -> int:
        return sum(write.end is None for write in self.writes)

    def _await_whole(self, until_ms: int) -> None:
        while (missing := self.missing()) and self.events.now_ms < until_ms:
            self.run_for(HEAL_LOOK_MS)
        assert not missing, f"{HEAL_MS} ms after the healing: {missing}"

    def missing(self) -> str:
        """Return a text about the first thing that the cluster lacks to be healthy, or ""."""
        for partition, part in self.controller.parts.items():
            is_moving = part.adding or part.removing
            if part.leader == NO_NODE or is_moving or set(part.isr) != set(part.replicas):
                return f"{part} of {partition}"
            state = self.brokers[part.leader].states.get(partition)
            if state is None or not isinstance(state.role, LeaderRole):
                return f"{part.leader} does not lead {partition} yet"
            log = self.brokers[part.leader].logs[partition]
            if state.high_watermark < log.log_end_offset:
                return f"{partition} is committed to {state.high_watermark} of {log.log_end_offset}"
            for node_id in part.replicas:
                other = self.brokers[node_id].logs[partition]
                if other.log_end_offset != log.log_end_offset:
                    return f"{node_id} has {other.log_end_offset} of {log.log_end_offset}"
        return ""
