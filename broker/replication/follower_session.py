"""A leader's side of one follower: what it asks for, and which of it is worth a look.

Floor: replication. Pure. One session is one follower's link; the link's end ends it. A fetch costs
what it names and what has been written since, never what is followed: a write marks the partition
in the session of each follower, and the first mark since the request was parked is the wake-up, so
one turn of writes wakes a follower once.

Two sets of marks. *Due*: there may be records, or an error to tell; it wakes. *Moved*: only the
high watermark or the log's start has, which rides along with the next answer: woken by it, each
follower would be answered twice for every write (KAFKA-9731).

`hear` judges what a fetch says of one partition before it is believed: the epoch before the role,
the start of the log, where the logs part, and only then is the follower's end taken for progress.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from broker.replication.epochs import EpochEnd, Epochs, divergence, is_comparable
from broker.replication.fetch_session import EPOCH_MAX, FULL_EPOCH
from broker.replication.follower_steps import PartitionId
from broker.replication.partition import PartitionState
from protocol.errors import ApiError, ErrorCode
from protocol.messages.fetch import FetchPartition


@dataclass(frozen=True, slots=True)
class FollowerIdentity:
    """Who fetches, by the head of the request."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """The leader's own log at the moment of a fetch."""

    epochs: Epochs
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class Heard:
    """What to answer to one partition of a fetch: an error, a divergence, or records from there."""

    code: ErrorCode = ErrorCode.NONE
    diverging: EpochEnd | None = None
    is_again: bool = False
    """It has asked for the same before, and there is more: it may not be able to take that."""

    @property
    def is_refusal(self) -> bool:
        """Whether the follower has to name the partition anew, and nothing is read for it."""
        return self.code is not ErrorCode.NONE or self.diverging is not None


GRANTED = Heard()
GRANTED_AGAIN = Heard(is_again=True)


def hear(
    state: PartitionState,
    log: LeaderLog,
    asked: FetchPartition,
    follower: FollowerIdentity,
    now_ms: int,
) -> Heard:
    """Judge one partition that a fetch names; if it is good, the partition notes the progress.

    An error's answer carries the log start offset all the same: with OFFSET_OUT_OF_RANGE it tells
    a follower that is not above it from one that is above our end, who must never cut for it.
    """
    code = state.refusal(asked.current_leader_epoch)
    if code is not ErrorCode.NONE:
        return Heard(code)
    if not state.is_replica(follower.node_id):
        # The metadata log has named it, or will, and we have not got there; or it has been removed.
        return Heard(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if asked.fetch_offset < log.log_start_offset or not is_comparable(
        log.epochs,
        log.log_start_offset,
        log.log_end_offset,
        asked.fetch_offset,
        asked.last_fetched_epoch,
    ):
        return Heard(ErrorCode.OFFSET_OUT_OF_RANGE)
    parting = divergence(
        log.epochs,
        log.log_end_offset,
        state.leader_epoch,
        asked.fetch_offset,
        asked.last_fetched_epoch,
    )
    if parting is not None:
        return Heard(diverging=parting)
    if asked.fetch_offset > log.log_end_offset:
        return Heard(ErrorCode.OFFSET_OUT_OF_RANGE)
    is_again = state.fetched_end(follower.node_id) == asked.fetch_offset < log.log_end_offset
    state.fetched(
        follower.node_id,
        follower.broker_epoch,
        asked.fetch_offset,
        asked.log_start_offset,
        now_ms,
    )
    return GRANTED_AGAIN if is_again else GRANTED


class FollowerSession:
    """One follower's partitions and their marks.

    `session_id` is given by the owner: never 0, and another one for each session.
    """

    __slots__ = ("_due", "_moved", "_next_epoch", "is_parked", "partitions", "session_id")

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.partitions: dict[PartitionId, FetchPartition] = {}
        """As each was named last."""
        self.is_parked = False
        """A request waits for a mark."""
        self._due: dict[PartitionId, None] = {}
        self._moved: dict[PartitionId, None] = {}
        self._next_epoch = FULL_EPOCH

    def begin(
        self,
        session_id: int,
        session_epoch: int,
        named: Iterable[tuple[PartitionId, FetchPartition]],
        forgotten: Iterable[PartitionId],
    ) -> list[tuple[PartitionId, FetchPartition]]:
        """Take in a request; returns what it names, each to be heard before anything is read.

        Its owner makes another session for each full request (epoch 0). Refuses another session's
        id and an epoch out of turn, which is how a request that comes late is known; the follower
        then starts over.
        """
        if session_epoch != FULL_EPOCH and session_id != self.session_id:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session_epoch != self._next_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"epoch {session_epoch}, expected {self._next_epoch}",
            )
        self._next_epoch = 1 if session_epoch == EPOCH_MAX else session_epoch + 1
        self.is_parked = False
        for partition in forgotten:
            self.put_out(partition)
        heard = list(named)
        for partition, asked in heard:
            if partition not in self.partitions:
                self._moved[partition] = None
            self.partitions[partition] = asked
            self._due[partition] = None
        return heard

    def written(self, partition: PartitionId) -> bool:
        """There is something to look at: a write, another start, another role of the leader.

        True for the first one since the request was parked: answer it once this turn is over.
        """
        if partition not in self.partitions:
            return False
        self._due[partition] = None
        wakes, self.is_parked = self.is_parked, False
        return wakes

    def moved(self, partition: PartitionId) -> None:
        """The high watermark or the log's start has moved: to be told with the next answer."""
        if partition in self.partitions:
            self._moved[partition] = None

    def due(self) -> list[PartitionId]:
        """What to look at for an answer, longest waiting first. Marks stay until they
        are `served`, or `looked` at in vain."""
        return list(self._due)

    def also(self) -> list[PartitionId]:
        """What an answer that leaves anyway tells besides: high watermarks that have moved."""
        return [one for one in self._moved if one not in self._due]

    def looked(self, partition: PartitionId) -> None:
        """There was nothing to read: it waits for its next mark."""
        self._due.pop(partition, None)

    def served(self, partition: PartitionId) -> None:
        """An answer tells of it, the high watermark as well; it waits for its next mark.

        What an answer has no room for keeps its mark, and so its turn.
        """
        self._due.pop(partition, None)
        self._moved.pop(partition, None)

    def put_out(self, partition: PartitionId) -> None:
        """Forget a partition until it is named anew: it was forgotten, refused, or diverges."""
        self.partitions.pop(partition, None)
        self.served(partition)

    def park(self) -> None:
        """Nothing to tell: the request waits for the next mark, or for its time."""
        self.is_parked = True
