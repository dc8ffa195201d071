"""A leader's side of one follower: its requested partitions, and which of them have news.

This module is pure. A session belongs to one follower's link and ends with it. The cost of a fetch
depends on the number of partitions that it names and of partitions with new records. It does not
depend on the number of all partitions that the follower fetches. An append marks the partition in
the session of each follower. The first mark after a request was parked wakes the follower. So all
appends of one iteration of the event loop wake it once.

There are two kinds of marks. A partition is *due* if there can be records or an error to send. This
mark wakes the follower. A partition has *moved* if only its high watermark or log start offset has
changed. The change is sent with the next response. If this mark woke the follower too, each append
would cause two responses (KAFKA-9731).

`check_fetch` checks one partition of a fetch: first the epoch, then the role, the log start offset,
and whether the logs diverge. Only after these checks is the fetch offset recorded as the follower's
progress.
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
    """The follower that fetches, as the request names it."""

    node_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class LeaderLog:
    """The leader's own log at the moment of a fetch."""

    epochs: Epochs
    log_start_offset: int
    log_end_offset: int


@dataclass(frozen=True, slots=True)
class FetchVerdict:
    """The answer to one partition of a fetch: an error, a divergence, or permission to read."""

    code: ErrorCode = ErrorCode.NONE
    diverging: EpochEnd | None = None
    is_again: bool = False
    """True if the follower fetches the same offset again although there are more records. The
    follower possibly cannot append them."""

    @property
    def is_refusal(self) -> bool:
        """True if nothing is read. The follower must name the partition again."""
        return self.code is not ErrorCode.NONE or self.diverging is not None


GRANTED = FetchVerdict()
GRANTED_AGAIN = FetchVerdict(is_again=True)


def check_fetch(
    state: PartitionState,
    log: LeaderLog,
    asked: FetchPartition,
    follower: FollowerIdentity,
    now_ms: int,
) -> FetchVerdict:
    """Check one partition of a fetch. If it is valid, record the follower's progress.

    An error response also has the log start offset. With OFFSET_OUT_OF_RANGE, this offset
    distinguishes a follower below the leader's start from a follower above the leader's end, which
    must never truncate for this error.
    """
    code = state.refusal(asked.current_leader_epoch)
    if code is not ErrorCode.NONE:
        return FetchVerdict(code)
    if not state.is_replica(follower.node_id):
        # Either this broker's metadata is old and will soon name the follower as a replica, or the
        # follower is no longer a replica.
        return FetchVerdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if asked.fetch_offset < log.log_start_offset or not is_comparable(
        log.epochs,
        log.log_start_offset,
        log.log_end_offset,
        asked.fetch_offset,
        asked.last_fetched_epoch,
    ):
        return FetchVerdict(ErrorCode.OFFSET_OUT_OF_RANGE)
    parting = divergence(
        log.epochs,
        log.log_end_offset,
        state.leader_epoch,
        asked.fetch_offset,
        asked.last_fetched_epoch,
    )
    if parting is not None:
        return FetchVerdict(diverging=parting)
    if asked.fetch_offset > log.log_end_offset:
        return FetchVerdict(ErrorCode.OFFSET_OUT_OF_RANGE)
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
    """The partitions that one follower fetches, and which of them have news for it.

    The owner chooses `session_id`. It is never 0, and each session has a different one.
    """

    __slots__ = ("_due", "_lost", "_moved", "_next_epoch", "is_parked", "partitions", "session_id")

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.partitions: dict[PartitionId, FetchPartition] = {}
        """The partitions as the follower last named them."""
        self.is_parked = False
        """True while a fetch request of this session waits for records."""
        self._due: dict[PartitionId, None] = {}
        self._moved: dict[PartitionId, None] = {}
        self._lost: set[PartitionId] = set()
        """The partitions that the follower has named in another session. They stay here until a
        response of this session has reported this."""
        self._next_epoch = FULL_EPOCH

    def begin(
        self,
        session_id: int,
        session_epoch: int,
        named: Iterable[tuple[PartitionId, FetchPartition]],
        forgotten: Iterable[PartitionId],
    ) -> list[tuple[PartitionId, FetchPartition]]:
        """Start a request. Return the partitions that it names.

        The caller must pass each of them to `check_fetch` before it reads. The owner creates a new
        session for each full request (epoch 0). Raises ApiError for the id of another session, and
        for an epoch out of order, which shows a late request. The follower then starts a new
        session.
        """
        if session_epoch != FULL_EPOCH and session_id != self.session_id:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session_epoch != self._next_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"found fetch session epoch {session_epoch}, expected {self._next_epoch}",
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
            self._lost.discard(partition)
        return heard

    def lose(self, partition: PartitionId) -> bool:
        """Remove a partition that the same follower has named in another session.

        The next response reports this with an error. If the request in the other session was a late
        one, the follower reacts by naming the partition in this session again. Return True for the
        first mark since the request was parked.
        """
        if partition not in self.partitions:
            return False
        del self.partitions[partition]
        self._moved.pop(partition, None)
        self._lost.add(partition)
        self._due[partition] = None
        wakes, self.is_parked = self.is_parked, False
        return wakes

    def is_lost(self, partition: PartitionId) -> bool:
        """Return True if another session has the partition and no response has reported this
        yet."""
        return partition in self._lost

    def written(self, partition: PartitionId) -> bool:
        """Mark a partition as due, after an append, a new start offset or a new role of the leader.

        Return True for the first mark since the request was parked. The caller must then answer the
        request in the next iteration of the event loop.
        """
        if partition not in self.partitions:
            return False
        self._due[partition] = None
        wakes, self.is_parked = self.is_parked, False
        return wakes

    def moved(self, partition: PartitionId) -> None:
        """Mark a partition whose high watermark or log start offset has changed. The next response
        contains it."""
        if partition in self.partitions:
            self._moved[partition] = None

    def due(self) -> list[PartitionId]:
        """Return the partitions that are due. Those that have waited longest come first.

        A mark stays until `served`, or until `looked` if there was nothing to read.
        """
        return list(self._due)

    def also(self) -> list[PartitionId]:
        """Return the partitions whose high watermark or log start offset has changed, for a
        response that is sent in any case."""
        return [one for one in self._moved if one not in self._due]

    def looked(self, partition: PartitionId) -> None:
        """Remove the mark, because there was nothing to read."""
        self._due.pop(partition, None)

    def served(self, partition: PartitionId) -> None:
        """Remove the marks, because a response contains the partition.

        A partition that does not fit into the response keeps its mark and its position in the
        queue.
        """
        self._due.pop(partition, None)
        self._moved.pop(partition, None)
        self._lost.discard(partition)

    def put_out(self, partition: PartitionId) -> None:
        """Remove a partition until the follower names it again, because the partition was forgotten
        or refused, or its logs diverge."""
        self.partitions.pop(partition, None)
        self.served(partition)

    def park(self) -> None:
        """Let the request wait for the next mark or its timeout, because there is nothing to
        send."""
        self.is_parked = True
