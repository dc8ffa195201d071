"""What reaches the quorum's core: requests and answers between replicas, and what the driver saw.

Floor: quorum. Pure data. Requests and answers carry the fields of Kafka's wire messages without
their nesting by topic and partition, for the metadata log is one partition; the driver maps them.
`Vote` is VoteRequest v2 (KIP-996), `Fetch` is FetchRequest v18 (KIP-1166: it names the high
watermark that the replica knows). An answer always names the leader and the epoch that its sender
knows of, whatever the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from broker.quorum.snapshot import SnapshotId
from broker.quorum.vote_file import ElectionState
from broker.quorum.voters import ReplicaKey, VoterSet
from protocol.errors import ErrorCode
from protocol.types import NO_NODE


class EpochEnd(NamedTuple):
    """The leader's last offset (exclusive) in the largest epoch not above the one asked for."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Vote:
    """`candidate` asks `voter` for its vote; a pre-vote asks what it would say, and binds nobody.

    `epoch` is the candidate's: raised already for a vote, as it is for a pre-vote.
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
    """The leader of a new epoch makes itself known to a voter."""

    cluster_id: str
    voter: ReplicaKey
    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EndQuorumEpoch:
    """The leader of an epoch resigns; the first of `preferred` is to try at once."""

    cluster_id: str
    leader_id: int
    leader_epoch: int
    preferred: tuple[ReplicaKey, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """A replica holds all below `fetch_offset` durably and wants what follows."""

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
    """A replica wants a snapshot's bytes from `position` on."""

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
    """At most one of `diverging`, `snapshot_id` and `batches` says something.

    The leader's core leaves `batches` empty: its driver reads them from the log (`Reply.read`).
    """

    error: ErrorCode
    leader_id: int
    leader_epoch: int
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging: EpochEnd | None = None
    snapshot_id: SnapshotId | None = None
    batches: Sequence[bytes] = ()


@dataclass(frozen=True, slots=True)
class FetchSnapshotAnswer:
    """A piece of a snapshot of `size_bytes` in all; the leader's driver fills in the piece."""

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
    """A request of another replica; `call_id` comes back in the one `Reply` to it."""

    call_id: int
    request: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to the `Send` of that id."""

    request_id: int
    answer: Answer


@dataclass(frozen=True, slots=True)
class Failed:
    """The `Send` of that id will not be answered: refused, closed or out of time."""

    request_id: int


@dataclass(frozen=True, slots=True)
class LeaderDead:
    """A probe found the leader of that epoch gone: its listener refuses, or it does not return."""

    leader_id: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Propose:
    """Whole batches for the log, each without offset and epoch; nothing happens in another epoch.

    The caller learns of the end by `Ready.committed_offset`, or of the loss by `Ready.role`.
    """

    epoch: int
    batches: Sequence[bytes | bytearray]


@dataclass(frozen=True, slots=True)
class Resign:
    """The node stops, or may lead no longer: hand the epoch over if it leads."""


@dataclass(frozen=True, slots=True)
class VoteSaved:
    """The vote file holds this and has reached the disk, its folder too."""

    election: ElectionState


@dataclass(frozen=True, slots=True)
class Synced:
    """All that was given out to append below the offset has reached the disk."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Truncated:
    """One `Ready.truncate_to` is done and has reached the disk."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class Stored:
    """A fetched snapshot is whole and durable, and the log was reset to its end."""

    snapshot_id: SnapshotId
    voters: VoterSet


@dataclass(frozen=True, slots=True)
class Spoiled:
    """A fetched snapshot has no footer, or a broken batch; it is thrown away."""

    snapshot_id: SnapshotId


@dataclass(frozen=True, slots=True)
class Snapshotted:
    """This node took a snapshot of its own, durable, and its log begins at the offset."""

    snapshot_id: SnapshotId
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The disk is full: the log ends at the offset, and what was given out above it is gone.

    The driver has thrown away all that waited behind the failed write in the queue, and what waited
    at SYNC for any of it. It goes on only after this event.
    """

    end_offset: int


@dataclass(frozen=True, slots=True)
class Tick:
    """`next_deadline_ms` has come."""


Event = (
    Received
    | Answered
    | Failed
    | LeaderDead
    | Propose
    | Resign
    | VoteSaved
    | Synced
    | Truncated
    | Stored
    | Spoiled
    | Snapshotted
    | Unwritten
    | Tick
)


def leader_of(answer: Answer) -> tuple[int, int]:
    """Leader and epoch that an answer names; the leader is -1 where it knows none."""
    return (answer.leader_id, answer.leader_epoch) if answer.leader_epoch >= 0 else (NO_NODE, -1)
