"""The outputs of the quorum's core for its driver, as data.

This module has only data classes. The driver does the work of a `Ready` in the order of its fields,
after the work of earlier ones. It sends messages when their barriers are reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from broker.quorum.events import Answer, Request, VoterChangeResult
from broker.quorum.snapshot import SnapshotId
from broker.quorum.vote_file import ElectionState


class Barrier(Enum):
    """The work that must be durable before a message is sent.

    It includes the work of all earlier `Ready` objects.
    """

    NOW = auto()
    """No work must be durable. Batches to append have been written, so an answer can read them."""
    VOTE = auto()
    """The vote must be durable."""
    SYNC = auto()
    """The vote, the snapshot, the truncation and the appended batches must be durable."""


@dataclass(frozen=True, slots=True)
class Send:
    """A request to send to another node.

    Its result comes once, as `RequestAnswered` or as `RequestFailed`.
    """

    request_id: int
    node_id: int
    request: Request
    barrier: Barrier
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class BatchesToRead:
    """The batches that the driver must fill into an answer: whole batches between two offsets.

    The answer gets at least one batch if there is one. With a second batch, the total is at most
    `max_bytes`.
    """

    start_offset: int
    end_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class PieceToRead:
    """The bytes of a snapshot that the driver must fill into an answer, with the snapshot's size.

    If the snapshot does not exist, or the position is outside, the driver sets the error instead
    (SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE). A snapshot can be deleted once it is not the
    newest. A replica that was fetching it starts again with another snapshot.
    """

    snapshot_id: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The only answer to a `Received`."""

    call_id: int
    answer: Answer
    barrier: Barrier
    read: BatchesToRead | PieceToRead | None = None


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """Bytes for the file of a snapshot that is being fetched. Position 0 starts a new file."""

    snapshot_id: SnapshotId
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LeadsEpoch:
    """This node leads the epoch.

    It may act as leader once it has replayed all records below `end_offset`.
    """

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class HasNoLeader:
    """This node does not lead any more, or does not know the leader any more."""

    epoch: int


@dataclass(frozen=True, slots=True)
class FollowsLeader:
    """Another node leads the epoch. If this node was the leader before, it has lost its
    leadership."""

    leader_id: int
    epoch: int


RoleChange = LeadsEpoch | HasNoLeader | FollowsLeader


@dataclass(frozen=True, slots=True)
class Ready:
    """The work that follows from one step."""

    vote: ElectionState | None
    """The vote to save. Write the vote file, fsync it, rename it, fsync the folder; then report
    `VoteSaved`.

    Repeat a failed write until it succeeds, because no message that depends on the vote has been
    sent.
    """
    piece: SnapshotPiece | None
    """Bytes of a fetched snapshot to write. They need not be durable."""
    snapshot: SnapshotId | None
    """A fetched snapshot of which all bytes are written.

    Check it with `snapshot.check_snapshot`, make it durable, and only then reset the log to its
    end. Report `SnapshotStored`, or `SnapshotSpoiled` if the snapshot is incomplete.
    """
    truncate_to: int | None
    """The offset to truncate the log to.

    Make the truncation durable before the next append; then report `Truncated`.
    """
    append: Sequence[bytes]
    """Batches to append.

    Write them at once, so that they can be read. Report `Synced` when they are durable, in the
    order of the log.
    """
    sends: Sequence[Send]
    replies: Sequence[Reply]
    committed_offset: int
    """All records below this offset are committed.

    They can be replayed once `append` is written.
    """
    role: RoleChange | None
    changes: Sequence[VoterChangeResult] = ()
    """The results of changes of the voters, for the callers that wait."""


class ReadyBuilder:
    """Collects the work that follows from one step."""

    __slots__ = (
        "append",
        "changes",
        "piece",
        "replies",
        "role",
        "sends",
        "snapshot",
        "truncate_to",
        "vote",
    )

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Drop all collected work, at the start of a step."""
        self.vote: ElectionState | None = None
        self.piece: SnapshotPiece | None = None
        self.snapshot: SnapshotId | None = None
        self.truncate_to: int | None = None
        self.append: list[bytes] = []
        self.sends: list[Send] = []
        self.replies: list[Reply] = []
        self.role: RoleChange | None = None
        self.changes: list[VoterChangeResult] = []

    def take(self, committed_offset: int) -> Ready:
        """Return the work of the step, and remove it from the builder."""
        ready = Ready(
            self.vote,
            self.piece,
            self.snapshot,
            self.truncate_to,
            self.append,
            self.sends,
            self.replies,
            committed_offset,
            self.role,
            self.changes,
        )
        self.clear()
        return ready
