"""The outputs of the quorum's core for its driver, as data.

This module has only data classes. The driver does the work of a `Ready` in the order of its fields,
after that of earlier ones. Messages are sent when their barriers are reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from broker.quorum.events import Answer, Request
from broker.quorum.snapshot import SnapshotId
from broker.quorum.vote_file import ElectionState


class Barrier(Enum):
    """The work that must be durable before a message is sent. It includes that of all earlier
    Readys.
    """

    NOW = auto()
    """Nothing. Batches to append have been written, so an answer can read them."""
    VOTE = auto()
    """The vote."""
    SYNC = auto()
    """Vote, snapshot, truncation and appended batches."""


@dataclass(frozen=True, slots=True)
class Send:
    """A request to another node. It comes back once, as `RequestAnswered` or as `RequestFailed`."""

    request_id: int
    node_id: int
    request: Request
    barrier: Barrier
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class BatchesToRead:
    """The driver fills the answer with whole batches between two offsets.

    The answer gets at least one batch if there is one. Beyond the first batch, the total is at most
    `max_bytes`.
    """

    start_offset: int
    end_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class PieceToRead:
    """The driver fills the answer with a piece of the snapshot and its size.

    If the snapshot does not exist, or the position is outside, it sets the error instead
    (SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE). A snapshot can be deleted once it is not the
    newest. A replica that was fetching it starts over.
    """

    snapshot_id: SnapshotId
    position: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The one answer to a `Received`."""

    call_id: int
    answer: Answer
    barrier: Barrier
    read: BatchesToRead | PieceToRead | None = None


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """Bytes for the file of a snapshot that is being fetched. Position 0 starts over."""

    snapshot_id: SnapshotId
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class LeadsEpoch:
    """This node leads the epoch. It may act as leader once it has replayed everything below
    `end_offset`.
    """

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class HasNoLeader:
    """This node does not lead any more, or knows no leader any more."""

    epoch: int


@dataclass(frozen=True, slots=True)
class FollowsLeader:
    """Another node leads the epoch. If this node led before, it does not any more."""

    leader_id: int
    epoch: int


RoleChange = LeadsEpoch | HasNoLeader | FollowsLeader


@dataclass(frozen=True, slots=True)
class Ready:
    """The work that follows from one step."""

    vote: ElectionState | None
    """Write the vote file: write, fsync, rename, fsync the folder; then report `VoteSaved`.

    A failed write is repeated until it succeeds, because no message that depends on it has been
    sent.
    """
    piece: SnapshotPiece | None
    """Write it; it need not be durable."""
    snapshot: SnapshotId | None
    """All pieces are there: check the whole (`snapshot.check_snapshot`), make it durable, and only
    then reset the log to its end. Report `SnapshotStored`, or `SnapshotSpoiled` if incomplete.
    """
    truncate_to: int | None
    """Make it durable before anything else is appended; then report `Truncated`."""
    append: Sequence[bytes]
    """Write at once, so that it can be read. Report `Synced` when durable, in the
    order of the log.
    """
    sends: Sequence[Send]
    replies: Sequence[Reply]
    committed_offset: int
    """Everything below is committed. It can be replayed once `append` is written."""
    role: RoleChange | None


class ReadyBuilder:
    """Collects the work of one step."""

    __slots__ = ("append", "piece", "replies", "role", "sends", "snapshot", "truncate_to", "vote")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start a step."""
        self.vote: ElectionState | None = None
        self.piece: SnapshotPiece | None = None
        self.snapshot: SnapshotId | None = None
        self.truncate_to: int | None = None
        self.append: list[bytes] = []
        self.sends: list[Send] = []
        self.replies: list[Reply] = []
        self.role: RoleChange | None = None

    def take(self, committed_offset: int) -> Ready:
        """Return the work of the step, and start empty again."""
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
        )
        self.clear()
        return ready
