"""The events of the quorum's core: requests and answers between replicas, and reports of the
driver.

This module has only data classes. Requests and answers have the fields of Kafka's messages without
their nesting by topic and partition, because the metadata log is one partition. The driver converts
them. `Vote` is VoteRequest v2 (KIP-996). `Fetch` is FetchRequest v18 (KIP-1166: it has the high
watermark that the replica knows). Every answer, even an error, has the leader and the epoch that
its sender knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.quorum.snapshot import SnapshotId
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import Endpoint, ReplicaKey, Voter, VoterSet
from protocol.errors import ErrorCode
from protocol.types import NO_NODE


class QuorumEpochEnd(NamedTuple):
    """An epoch and its end offset (exclusive) in the leader's log.

    The epoch is the leader's largest one not above the requested epoch.
    """

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Vote:
    """A request of `candidate` for the vote of `voter`.

    A pre-vote only asks how the voter would decide. `epoch` is the candidate's epoch. Before a vote
    the candidate has raised its epoch, before a pre-vote it has not.
    """

    cluster_id: str
    voter: ReplicaKey
    candidate: ReplicaKey
    epoch: int
    last_epoch: int
    last_epoch_end_offset: int
    is_pre_vote: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpoch:
    """The request with which the leader of a new epoch notifies a voter."""

    cluster_id: str
    voter: ReplicaKey
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EndQuorumEpoch:
    """The request with which the leader of an epoch resigns.

    The first voter of `preferred` should start an election at once.
    """

    cluster_id: str
    leader_id: int
    leader_epoch: int
    preferred: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """The request for the batches from `fetch_offset` on.

    The replica has all records below on its disk.
    """

    cluster_id: str
    replica: ReplicaKey
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    high_watermark: int
    max_wait_ms: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class FetchSnapshot:
    """The request for the bytes of a snapshot from `position` on."""

    cluster_id: str
    replica: ReplicaKey
    current_leader_epoch: int
    snapshot_id: SnapshotId
    position: int
    max_bytes: int


Request = Vote | BeginQuorumEpoch | EndQuorumEpoch | Fetch | FetchSnapshot


@dataclass(frozen=True, slots=True)
class VoteAnswer:
    error: ErrorCode
    leader_id: int
    leader_epoch: int
    vote_granted: bool


@dataclass(frozen=True, slots=True)
class BeginQuorumEpochAnswer:
    error: ErrorCode
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EndQuorumEpochAnswer:
    error: ErrorCode
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchAnswer:
    """The answer to a Fetch. At most one of `diverging`, `snapshot_id` and `batches` is set.

    The leader's core leaves `batches` empty; the leader's driver reads the batches from the log
    (`Reply.read`).
    """

    error: ErrorCode
    leader_id: int
    leader_epoch: int
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: QuorumEpochEnd | None = None
    snapshot_id: SnapshotId | None = None
    batches: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class FetchSnapshotAnswer:
    """The answer to a FetchSnapshot. `size_bytes` is the size of the whole snapshot.

    The leader's driver fills in the bytes from the requested position on.
    """

    error: ErrorCode
    leader_id: int
    leader_epoch: int
    snapshot_id: SnapshotId
    size_bytes: int = 0
    position: int = 0
    data: bytes = b""


Answer = (
    VoteAnswer | BeginQuorumEpochAnswer | EndQuorumEpochAnswer | FetchAnswer | FetchSnapshotAnswer
)


@dataclass(frozen=True, slots=True)
class Received:
    """A request of another replica. Its only `Reply` has the same `call_id`."""

    call_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """The answer to the `Send` with this `id`."""

    request_id: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """The `Send` with this `id` gets no answer: it was refused, closed or timed out."""

    request_id: int


@dataclass(frozen=True, slots=True)
class LeaderDead:
    """The leader of this epoch is dead, as a probe has found: its listener refuses connections, or
    no connection to it could be made in time."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Propose:
    """A request to append whole batches to the log, without offset and epoch. The request is
    ignored if this node does not lead that epoch.

    `Ready.committed_offset` tells the caller when the batches are committed, and `Ready.role` when
    they can be lost.
    """

    epoch: int
    batches: Sequence[bytes | bytearray]


@dataclass(frozen=True, slots=True)
class AddVoter:
    """The change that makes an observer with this disk a voter."""

    voter: Voter


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """The change that takes the vote from a node with this disk."""

    key: ReplicaKey


@dataclass(frozen=True, slots=True)
class UpdateVoter:
    """The change that gives a voter other addresses or another range of versions. The set keeps
    its members."""

    voter: Voter


VoterChange = AddVoter | RemoveVoter | UpdateVoter


@dataclass(frozen=True, slots=True)
class ChangeVoters:
    """A request to change the voter set. `Ready.changes` has its only result, with the same
    `change_id`.

    The result comes when the change is committed or, without `waits_for_commit`, when its record is
    durable at the leader.
    """

    change_id: int
    change: VoterChange
    timeout_ms: int
    waits_for_commit: bool = True
    addresses: Mapping[ReplicaKey, tuple[Endpoint, ...]] = field(default_factory=dict)
    """The present addresses of voters. The record names them, because an address can have changed
    since the record before."""


@dataclass(frozen=True, slots=True)
class VoterChangeResult:
    """The result of a `ChangeVoters`. `reason` explains an error to an operator.

    After NOT_LEADER_OR_FOLLOWER, and after REQUEST_TIMED_OUT for a change that was appended, it is
    unknown whether the change will be committed.
    """

    change_id: int
    error: ErrorCode
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Resign:
    """A request to give up leadership, because this node stops or must not lead any more. A node
    that does not lead ignores it."""


@dataclass(frozen=True, slots=True)
class VoteSaved:
    """The vote file with this content is durable, and so is its folder entry."""

    election: ElectionState


@dataclass(frozen=True, slots=True)
class Synced:
    """All records below this offset are durable."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """One truncation (`Ready.truncate_to`) is done and durable."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """A fetched snapshot is complete and durable, and the log starts at the snapshot's end."""

    snapshot_id: SnapshotId
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class SnapshotSpoiled:
    """A fetched snapshot has no footer or has a corrupt batch, and was deleted."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class Snapshotted:
    """This node has written a durable snapshot itself, and its log now starts at this offset."""

    snapshot_id: SnapshotId
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The disk is full. The log ends at this offset, and all records above it are lost.

    The driver has dropped all work that was queued behind the failed write, and all messages with
    the barrier SYNC that waited for it. It continues only after this event.
    """

    end_offset: int


@dataclass(frozen=True, slots=True)
class Tick:
    """The time `next_deadline_ms` has passed."""


Event = (
    Received
    | RequestAnswered
    | RequestFailed
    | LeaderDead
    | Propose
    | ChangeVoters
    | Resign
    | VoteSaved
    | Synced
    | Truncated
    | SnapshotStored
    | SnapshotSpoiled
    | Snapshotted
    | Unwritten
    | Tick
)


def leader_of(answer: Answer) -> tuple[int, int]:
    """Return the (leader, epoch) in an answer. The leader is -1 if the sender knows none."""
    return (answer.leader_id, answer.leader_epoch) if answer.leader_epoch >= 0 else (NO_NODE, -1)
