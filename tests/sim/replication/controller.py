"""A controller that never fails. It decides by KIP-966 which replicas are in sync, which may be
elected, and which one leads. `ruling` uses the real controller's rules instead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from broker.replication.leader import Assignment
from protocol.errors import ErrorCode
from protocol.reassignment import effective_min_isr, original_replicas
from protocol.types import NO_NODE

SESSION_MS = 1_500
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Part:
    """One partition in the controller's image."""

    replicas: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    min_isr: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def originals(self) -> tuple[int, ...]:
        return original_replicas(self.replicas, self.adding)

    @property
    def target(self) -> tuple[int, ...]:
        return tuple(one for one in self.replicas if one not in self.removing)

    @property
    def least(self) -> int:
        """Return the number of in-sync replicas that a record needs to be committed."""
        return effective_min_isr(self.min_isr, self.replicas, self.adding)

    def assignment(self, offset: int) -> Assignment:
        return Assignment(
            offset=offset,
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            replicas=self.replicas,
            in_sync_replicas=self.isr,
            min_in_sync_replicas=self.min_isr,
            adding_replicas=self.adding,
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """One atomic change of the metadata log."""

    end_offset: int
    parts: tuple[tuple[int, Part], ...]
    brokers: dict[int, int]
    """All unfenced brokers with their epochs, as of this batch."""


@dataclass(slots=True)
class BrokerRegistration:
    """One broker's registration."""

    incarnation: int
    broker_epoch: int
    is_fenced: bool
    heard_ms: int


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """A leader's proposal of a new ISR."""

    node_id: int
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class Controller:
    """Decides, and appends each decision to its log, which all nodes replay. It calls `on_commit`
    with every batch."""

    def __init__(self, on_commit: Callable[[Batch], None]) -> None:
        self.log: list[Batch] = []
        self.parts: dict[int, Part] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self._on_commit = on_commit

    @property
    def end_offset(self) -> int:
        return self.log[-1].end_offset if self.log else 0

    def create(self, partition: int, replicas: tuple[int, ...], min_isr: int) -> None:
        self._commit({partition: Part(replicas, replicas[0], 0, 0, replicas, (), min_isr)})

    def register(self, node_id: int, incarnation: int, now_ms: int) -> int:
        """Register a new process of a node. The node is fenced and leaves every ISR, and its
        leaderships end."""
        known = self.brokers.get(node_id)
        if known is not None and known.incarnation == incarnation:
            return known.broker_epoch
        self.brokers[node_id] = BrokerRegistration(incarnation, self.end_offset, True, now_ms)
        epoch = self.end_offset
        self._commit(self._without(node_id))
        return epoch

    def heartbeat(self, node_id: int, broker_epoch: int, replayed: int, now_ms: int) -> None:
        broker = self.brokers.get(node_id)
        if broker is None or broker.broker_epoch != broker_epoch:
            return
        broker.heard_ms = now_ms
        if broker.is_fenced and replayed > broker_epoch:
            broker.is_fenced = False
            changed = {
                index: self._elected(part)
                for index, part in self.parts.items()
                if part.leader == NO_NODE
            }
            self._commit({i: p for i, p in changed.items() if p != self.parts[i]})

    def tick(self, now_ms: int) -> None:
        for node_id, broker in self.brokers.items():
            if not broker.is_fenced and now_ms - broker.heard_ms > SESSION_MS:
                self.fence(node_id)

    def fence(self, node_id: int) -> None:
        self.brokers[node_id].is_fenced = True
        self._commit(self._without(node_id))

    def prefer(self, partition: int, node_id: int) -> None:
        """Move the leadership to this node, if it is in the ISR and alive."""
        part = self.parts[partition]
        if node_id in part.isr and node_id != part.leader and self._is_alive(node_id):
            self._commit({partition: self._led_by(part, node_id)})

    def reassign(self, partition: int, replicas: tuple[int, ...]) -> bool:
        """Assign a partition to these brokers in one record, as at the end of a reassignment.

        Return False if too few replicas remain, or if none of those can lead. The leader epoch
        rises if a replica is removed.
        """
        part = self.parts[partition]
        isr = tuple(member for member in part.isr if member in replicas)
        leaders = [part.leader, *replicas]
        leader = next((one for one in leaders if one in isr and self._is_alive(one)), NO_NODE)
        if leader == NO_NODE or len(isr) < min(part.min_isr, len(replicas)):
            return False
        changed = self._with_isr(replace(part, replicas=replicas), isr, ())
        if not set(part.replicas) <= set(replicas) or leader != part.leader:
            changed = replace(changed, leader=leader, leader_epoch=part.leader_epoch + 1)
        self._commit({partition: changed})
        return True

    def set_min_isr(self, partition: int, min_isr: int) -> None:
        """Set min ISR. If enough replicas are in sync for it, clear the ELR in the same batch.

        Otherwise change only the setting, so that no pending proposal is rejected because of it.
        """
        part = replace(self.parts[partition], min_isr=min_isr)
        settled = self._with_isr(part, part.isr, ())
        self._commit({partition: settled if settled.elr != part.elr else part})

    def alter(self, asked: AlterPartition) -> ErrorCode:
        """Decide a proposal, with checks in Kafka's order. A proposal of the same ISR is also a
        change, because it raises the partition epoch."""
        part = self.parts[asked.partition]
        members = tuple(node_id for node_id, _ in asked.isr)
        if asked.leader_epoch < part.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if asked.leader_epoch > part.leader_epoch or asked.partition_epoch > part.partition_epoch:
            return ErrorCode.NOT_CONTROLLER
        if asked.node_id != part.leader:
            return ErrorCode.INVALID_REQUEST
        if asked.partition_epoch < part.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        if asked.node_id not in members or not set(members) <= set(part.replicas):
            return ErrorCode.INVALID_REQUEST
        for node_id, epoch in asked.isr:
            if not self._is_alive(node_id) or epoch not in (
                NO_EPOCH,
                self.brokers[node_id].broker_epoch,
            ):
                return ErrorCode.INELIGIBLE_REPLICA
        left = tuple(member for member in part.isr if member not in members)
        self._commit({asked.partition: self._with_isr(part, members, left)})
        return ErrorCode.NONE

    def _without(self, node_id: int) -> dict[int, Part]:
        changed = {}
        for index, part in self.parts.items():
            found = part
            if node_id in part.isr:
                left = tuple(member for member in part.isr if member != node_id)
                found = self._with_isr(part, left, (node_id,))
            if found.leader == node_id:
                found = self._elected(found)
            if found != part:
                changed[index] = replace(found, partition_epoch=part.partition_epoch + 1)
        return changed

    def _with_isr(self, part: Part, isr: tuple[int, ...], left: tuple[int, ...]) -> Part:
        """Replace the ISR. The replicas in `left` join the ELR only if fewer than min ISR
        remain."""
        elr: tuple[int, ...] = ()
        if len(isr) < min(part.min_isr, len(part.replicas)):
            elr = tuple(sorted({*part.elr, *left} - set(isr)))
        return replace(
            part, isr=tuple(sorted(isr)), elr=elr, partition_epoch=part.partition_epoch + 1
        )

    def _elected(self, part: Part) -> Part:
        """Elect the first living member of the ISR, otherwise of the ELR, otherwise no leader."""
        for candidates in (part.isr, part.elr):
            for node_id in part.replicas:
                if node_id in candidates and self._is_alive(node_id):
                    return self._led_by(part, node_id)
        return replace(
            part,
            leader=NO_NODE,
            leader_epoch=part.leader_epoch + (part.leader != NO_NODE),
            partition_epoch=part.partition_epoch + (part.leader != NO_NODE),
        )

    def _led_by(self, part: Part, node_id: int) -> Part:
        isr = part.isr if node_id in part.isr else (node_id,)
        led = replace(part, leader=node_id, leader_epoch=part.leader_epoch + 1)
        return self._with_isr(led, isr, ())

    def _is_alive(self, node_id: int) -> bool:
        broker = self.brokers.get(node_id)
        return broker is not None and not broker.is_fenced

    def _commit(self, parts: dict[int, Part]) -> None:
        self.parts.update(parts)
        alive = {n: b.broker_epoch for n, b in self.brokers.items() if not b.is_fenced}
        batch = Batch(self.end_offset + 1 + len(parts), tuple(parts.items()), alive)
        self.log.append(batch)
        self._on_commit(batch)
