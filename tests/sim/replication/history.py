"""The invariants that must hold after every event. Each check looks only at what has changed.

I1: one leader per partition and epoch. I2: a leader's committed records are durable on every member
of the committed ISR and ELR. I3: logs are equal below the high watermark. I4: the same offset and
epoch have the same value and the same predecessor, so by induction equal prefixes. I5: a high
watermark never falls within an epoch, and the end offset that consumers got never falls. I6: no
consumer reads above the high watermark. I8: an ELR exists only below min ISR. I15: the replica sets
of a partition are consistent during a reassignment. I16: a complete reassignment leaves enough
complete replicas. In addition each waiting request completes once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from protocol.types import NO_NODE
from tests.sim.replication.controller import Batch, Part
from tests.sim.replication.toylog import Entry, ToyLog
from tests.sim.violation import Violation


class Node(Protocol):
    """The parts of a broker that the checks read."""

    logs: dict[int, ToyLog]


class History:
    """Every committed record, and the leader of each epoch, as the test has seen them."""

    def __init__(self, nodes: Mapping[int, Node], partitions: range) -> None:
        self._nodes = nodes
        self.committed: dict[int, list[Entry]] = {p: [] for p in partitions}
        self.parts: dict[int, Part] = {}
        self.told_end: dict[int, int] = dict.fromkeys(partitions, 0)
        """The latest offset that any consumer was told."""
        self.acknowledged = 0
        self._leaders: dict[tuple[int, int], int] = {}
        self._seen: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._checked: dict[tuple[int, int], tuple[int, int]] = {}
        """(node, partition) -> the offset up to which its log was found equal, and the number of
        truncations by then."""

    def led(self, node_id: int, partition: int, epoch: int) -> None:
        known = self._leaders.setdefault((partition, epoch), node_id)
        if known != node_id:
            raise Violation(f"I1: {known} and {node_id} lead {partition} in epoch {epoch}")

    def appended(self, node_id: int, partition: int, offset: int) -> None:
        log = self._nodes[node_id].logs[partition]
        entry = log.entry(offset)
        before = log.entry(offset - 1).leader_epoch if offset > log.log_start_offset else None
        key = (partition, offset, entry.leader_epoch)
        known = self._seen.get(key)
        if known is None:
            self._seen[key] = (entry.value, -1 if before is None else before)
        elif known[0] != entry.value or (before is not None and known[1] not in (before, -1)):
            raise Violation(
                f"I4: {node_id} has {entry} at {offset} of {partition} behind epoch {before}, "
                f"another log has {known}"
            )

    def advanced(self, node_id: int, partition: int, before: int, after: int, leads: bool) -> None:
        """Check a move of a node's high watermark within one role."""
        log = self._nodes[node_id].logs[partition]
        if after < before:
            raise Violation(f"I5: {node_id} of {partition} falls from {before} to {after}")
        if after > log.log_end_offset:
            raise Violation(f"I6: {node_id} of {partition} commits {after} beyond its end")
        committed = self.committed[partition]
        if after > len(committed):
            if not leads:
                raise Violation(f"I3: follower {node_id} of {partition} is first to know {after}")
            if log.log_start_offset > len(committed):
                raise Violation(f"I3: {node_id} of {partition} begins above what is committed")
            old = len(committed)
            committed.extend(log.read(old, after - old))
            self._check_holders(partition)
        self._check_equal(node_id, partition, after)

    def told(self, node_id: int, partition: int, end: int) -> None:
        """Check the latest offset that a consumer got from a leader."""
        if end < self.told_end[partition]:
            raise Violation(
                f"I5: {node_id} tells {end} of {partition}, after {self.told_end[partition]}"
            )
        self.told_end[partition] = end

    def cut(self, node_id: int, partition: int) -> None:
        """Check and record that a log lost records by a truncation or a power cut."""
        part = self.parts.get(partition)
        if part is not None and node_id in (*part.isr, *part.elr):
            self._check_holder(node_id, partition)

    def decided(self, batch: Batch) -> None:
        """Check a change that the controller has committed."""
        for partition, part in batch.parts:
            before = self.parts.get(partition)
            self.parts[partition] = part
            if part.elr and len(part.isr) >= part.least:
                raise Violation(f"I8: {part}")
            self._check_sets(part)
            if before is not None:
                self._check_completion(before, part)
            self._check_holders(partition)

    def _check_sets(self, part: Part) -> None:
        replicas = set(part.replicas)
        if (
            not set(part.adding) <= set(part.target)
            or not part.originals
            or not {*part.isr, *part.elr} <= replicas
            or (part.leader != NO_NODE and part.leader not in part.isr)
        ):
            raise Violation(f"I15: {part}")

    def _check_completion(self, before: Part, part: Part) -> None:
        was_moving = before.adding or before.removing
        if not was_moving or part.adding or part.removing or part.replicas != before.target:
            return
        is_copied = set(before.adding) <= set(part.isr)
        if not is_copied or part.elr or not part.isr or len(part.isr) < part.least:
            raise Violation(f"I16: {before} became {part}")

    def _check_holders(self, partition: int) -> None:
        part = self.parts[partition]
        for node_id in (*part.isr, *part.elr):
            self._check_holder(node_id, partition)

    def _check_holder(self, node_id: int, partition: int) -> None:
        log = self._nodes[node_id].logs[partition]
        end = len(self.committed[partition])
        if log.durable_end < end:
            raise Violation(
                f"I2: {node_id} is in {self.parts[partition]} of {partition} and holds "
                f"{log.durable_end} of {end} committed"
            )
        self._check_equal(node_id, partition, end)

    def _check_equal(self, node_id: int, partition: int, end: int) -> None:
        log = self._nodes[node_id].logs[partition]
        committed = self.committed[partition]
        checked, cuts = self._checked.get((node_id, partition), (0, 0))
        if cuts != log.cuts:
            checked = 0
        checked = max(checked, log.log_start_offset)
        end = min(end, len(committed))
        if end <= checked:
            return
        if log.read(checked, end - checked) != committed[checked:end]:
            raise Violation(f"I3: {node_id} of {partition} differs below {end}")
        self._checked[node_id, partition] = (end, log.cuts)
