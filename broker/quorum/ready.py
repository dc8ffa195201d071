"""What the quorum's core asks of its driver, as data.

Floor: quorum. Pure data. A `Ready` lists duties in the order in which they are done, those of
earlier ones first; its messages leave at their barriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from broker.quorum.events import Answer, Request
from broker.quorum.snapshot import SnapshotId
from broker.quorum.vote_file import ElectionState


class Barrier(Enum):
    """What must be durable before a message leaves, of this Ready and of all before it."""

    NOW = auto()
    """Nothing. What is to append has been written, so that an answer may read it."""
    VOTE = auto()
    """The vote."""
    SYNC = auto()
    """Vote, snapshot, truncation and appended batches."""


@dataclass(frozen=True, slots=True)
class Send:
    """A request to another node; it comes back once, as `Answered` or as `Failed`."""

    request_id: int
    node_id: int
    request: Request
    barrier: Barrier
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """The driver fills the answer with whole batches of the log between two offsets.

    At least one if there is one, and no more than `max_bytes` beyond the first.
    """

    start_offset: int
    end_offset: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotRead:
    """The driver fills the answer with a piece of the snapshot and its size.

    Where there is no such snapshot, or the position lies outside, it sets the error instead
    (SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE). A snapshot may be deleted once it is not the
    newest: who was fetching it begins again.
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
    read: LogRead | SnapshotRead | None = None


@dataclass(frozen=True, slots=True)
class SnapshotPiece:
    """Bytes for the file in which a snapshot is being fetched; at position 0 it begins anew."""

    snapshot_id: SnapshotId
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Won:
    """This node leads the epoch; it may act once it has replayed all below `end_offset`."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Lost:
    """This node leads no longer, or has lost sight of the leader."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Following:
    """Another node leads the epoch; if this one has led before, it does so no longer."""

    leader_id: int
    epoch: int


RoleChange = Won | Lost | Following


@dataclass(frozen=True, slots=True)
class Ready:
    """The duties of one step."""

    vote: ElectionState | None
    """Write it to the vote file, fsync, rename, fsync the folder; then `VoteSaved`. A write that
    fails is repeated until it succeeds: nothing that waits for it has left."""
    piece: SnapshotPiece | None
    """Write it; it need not be durable."""
    snapshot: SnapshotId | None
    """All pieces are there: check the whole (`snapshot.check_snapshot`), make it durable, and only
    then reset the log to its end; then `Stored`. If it is not whole: `Spoiled`."""
    truncate_to: int | None
    """Durable before anything else is appended; then `Truncated`."""
    append: Sequence[bytes]
    """Write at once, so that it can be read; `Synced` when durable, in the order of the log."""
    sends: Sequence[Send]
    replies: Sequence[Reply]
    committed_offset: int
    """All below is committed, and replayed once `append` is written."""
    role: RoleChange | None


class Outbox:
    """Gathers the duties of one step."""

    __slots__ = ("append", "piece", "replies", "role", "sends", "snapshot", "truncate_to", "vote")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin a step."""
        self.vote: ElectionState | None = None
        self.piece: SnapshotPiece | None = None
        self.snapshot: SnapshotId | None = None
        self.truncate_to: int | None = None
        self.append: list[bytes] = []
        self.sends: list[Send] = []
        self.replies: list[Reply] = []
        self.role: RoleChange | None = None

    def take(self, committed_offset: int) -> Ready:
        """The step's duties, and an empty box."""
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
