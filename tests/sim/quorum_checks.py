"""The invariants of the simulated quorum, which must hold after every event and fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker.quorum.control_records import voter_sets_in
from broker.quorum.events import (
    Answer,
    BeginQuorumEpoch,
    Request,
    Vote,
    VoteAnswer,
    VoterChangeResult,
)
from broker.quorum.ready import LeadsEpoch, RoleChange
from broker.quorum.snapshot import SnapshotId
from broker.quorum.voters import ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from protocol.wire.records import read_header
from tests.sim.quorum_disk import Batch, Disk
from tests.sim.violation import Violation

if TYPE_CHECKING:
    from tests.sim.quorum_node import Node
    from tests.sim.quorum_world import World


class Checks:
    """The state of the whole cluster as the test sees it. No replica knows all of it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, ReplicaKey], ReplicaKey] = {}
        self.log: dict[int, Batch] = {}
        """Every batch that any replica has ever reported as committed, by base offset."""
        self.end_offset = 0
        self.images: dict[int, list[bytes]] = {0: []}
        self.voters = VoterSet(Voter(key) for key in world.voters)
        """The committed voter set."""
        self.change_count = 0
        self.reported_count = 0
        """How many voter sets were committed, and how many changes were reported to their
        requesters."""

    def role(self, node: Node, role: RoleChange) -> None:
        """Check that each epoch has one leader."""
        if isinstance(role, LeadsEpoch):
            leader = self.leaders.setdefault(role.epoch, node.node_id)
            if leader != node.node_id:
                raise Violation(f"epoch {role.epoch} is led by {leader} and {node.node_id}")

    def committed(self, node: Node, batches: Sequence[Batch]) -> None:
        """Check that newly committed batches are equal on all replicas, never change, and are on
        the disks of a majority."""
        for batch in batches:
            known = self.log.setdefault(batch.base_offset, batch)
            if known != batch:
                raise Violation(f"two batches are committed at {batch.base_offset}")
        end_offset = batches[-1].end_offset
        if end_offset > self.end_offset:
            self._is_on_a_majority(node, batches[-1])
            for batch in batches:
                if batch.base_offset >= self.end_offset:
                    self._changes_one_voter(batch)
            self.end_offset = end_offset
        image = self.images.setdefault(end_offset, node.image)
        if image != node.image:
            raise Violation(f"two images at {end_offset}")

    def _is_on_a_majority(self, node: Node, batch: Batch) -> None:
        assert node.quorum is not None
        voters = node.quorum.replica.voters.latest
        holding = 0
        for key in voters:
            holding += any(_has(disk, batch) for disk in self.world.disks[key])
        if holding < voters.majority:
            raise Violation(f"{batch.base_offset} is committed and durable on {holding} disks")

    def _changes_one_voter(self, batch: Batch) -> None:
        """Check that two successive voter sets differ by at most one voter (I18)."""
        if read_header(batch.data).is_control:
            for _, voters in voter_sets_in(batch.data):
                if len(set(self.voters) ^ set(voters)) > 1:
                    raise Violation(f"{self.voters} becomes {voters} at {batch.base_offset}")
                self.change_count += voters != self.voters
                self.voters = voters

    def appended(self, batches: Sequence[bytes]) -> None:
        """Record the directories in an appended voter set, because they may vote from now on."""
        for data in batches:
            if self.world.listed and read_header(data).is_control:
                for _, voters in voter_sets_in(data):
                    self.world.listed |= set(voters)

    def changed(self, node: Node, result: VoterChangeResult) -> None:
        """Check that a voter change that is reported as done is committed."""
        assert node.quorum is not None
        voters = node.quorum.replica.voters
        if result.error is ErrorCode.NONE:
            if voters.latest_offset >= node.quorum.replica.log.committed_offset:
                raise Violation(f"{node.node_id} reports a change of voters that is still open")
            self.reported_count += 1

    def installed(self, node: Node, snapshot_id: SnapshotId) -> None:
        """Check that an installed snapshot equals the state that the log gives at the same
        offset."""
        if node.image != self.world.image_at(snapshot_id.end_offset):
            raise Violation(f"the snapshot to {snapshot_id.end_offset} is not the log's image")

    def leaving(self, node: Node, request: Request) -> None:
        """Check, when a request is sent, that no other vote than the one it implies was ever
        given."""
        if isinstance(request, Vote) and not request.is_pre_vote:
            self._voted(node, request.epoch, request.candidate)
        if isinstance(request, BeginQuorumEpoch):
            self._voted(node, request.leader_epoch, node.key)

    def answering(self, node: Node, request: Request, answer: Answer) -> None:
        """Check, when a granted vote is sent, that it is the directory's only vote of its epoch."""
        if isinstance(answer, VoteAnswer) and answer.vote_granted:
            assert isinstance(request, Vote)
            if not request.is_pre_vote:
                self._voted(node, request.epoch, request.candidate)

    def _voted(self, node: Node, epoch: int, candidate: ReplicaKey) -> None:
        """Check that a directory gives one vote per epoch, and only if some voter set has listed
        it."""
        first = self.votes.setdefault((epoch, node.key), candidate)
        if first != candidate:
            raise Violation(f"{node.key} votes for {first} and {candidate} in epoch {epoch}")
        if self.world.listed and node.key not in self.world.listed:
            raise Violation(f"{node.key} votes without being listed")


def _has(disk: Disk, batch: Batch) -> bool:
    index = disk.durable.index_of(batch.base_offset)
    return batch in disk.durable.batches[index : index + 1]
