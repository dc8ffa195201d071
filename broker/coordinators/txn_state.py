"""What a transactional id stands for, and how it may move.

Floor: coordinators. Pure.

    EMPTY -> ONGOING -> PREPARE_COMMIT -> COMPLETE_COMMIT -> ONGOING | EMPTY | DEAD
                     -> PREPARE_ABORT  -> COMPLETE_ABORT  -> ONGOING | EMPTY | DEAD
    EMPTY -> EMPTY (a producer begins anew) | DEAD (forgotten)
    ONGOING -> ONGOING (partitions join)

A transaction is decided when its PREPARE state is durable; COMPLETE follows the last marker. Kafka
has one state more, PrepareEpochFence, which never reaches its log: fencing a producer whose
transaction is open is here the move to PREPARE_ABORT itself, under a raised epoch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import IntEnum

from protocol.errors import ApiError, ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

PRODUCER_EPOCH_MAX = 32_767
EXHAUSTED_EPOCH = PRODUCER_EPOCH_MAX - 1
"""The last epoch a producer is given: the one above it is kept for fencing that producer."""


Expected = tuple[int, int] | None
"""The producer id and epoch that InitProducerId comes with, or none."""


class TxnState(IntEnum):
    """Kafka's states by the numbers of its log; `title` is the name that its tools show."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6

    @property
    def title(self) -> str:
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_preparing(self) -> bool:
        """Whether the transaction is decided and its markers are being written."""
        return self in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is open, so that the id may be given up."""
        return self in (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)


class IllegalTransition(Exception):
    """Our own bug: a move that the states do not allow."""

    def __init__(self, source: TxnState, target: TxnState) -> None:
        super().__init__(f"{source.title} to {target.title}")


_SOURCES: dict[TxnState, frozenset[TxnState]] = {
    TxnState.EMPTY: frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT}),
    TxnState.ONGOING: frozenset(
        {TxnState.EMPTY, TxnState.ONGOING, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT}
    ),
    TxnState.PREPARE_COMMIT: frozenset({TxnState.ONGOING}),
    TxnState.PREPARE_ABORT: frozenset({TxnState.ONGOING}),
    TxnState.COMPLETE_COMMIT: frozenset({TxnState.PREPARE_COMMIT}),
    TxnState.COMPLETE_ABORT: frozenset({TxnState.PREPARE_ABORT}),
    TxnState.DEAD: frozenset({TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT}),
}


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transactional id at one moment. Moves give the next moment; nothing changes in place.

    `last_producer_id` and `last_producer_epoch` are what the producer had before its epoch was
    raised at its own wish (KIP-360), so that the repeat of a lost answer is recognised. They are
    not in Kafka's log format: a restart forgets them, as Kafka's does.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TxnState
    last_update_ms: int
    start_ms: int = NO_TIMESTAMP
    partitions: frozenset[TopicPartition] = frozenset()
    last_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH

    def to(self, state: TxnState, now_ms: int, **changes: object) -> Transaction:
        """The next moment; raises IllegalTransition."""
        if self.state not in _SOURCES[state]:
            raise IllegalTransition(self.state, state)
        return replace(self, state=state, last_update_ms=now_ms, **changes)  # type: ignore[arg-type]  # checked where it is called

    # A producer begins.

    def begun_anew(self, expected: Expected, timeout_ms: int, now_ms: int) -> Transaction:
        """For InitProducerId while nothing is open: the epoch raised, whoever had it fenced.

        With the id and epoch that the producer believes in (KIP-360): the current one is raised,
        the one before gets the same answer again, any other is PRODUCER_FENCED.
        """
        self.refuse_stranger(expected)
        epoch, last_epoch, last_id = self.producer_epoch + 1, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
        if expected is not None and self.producer_epoch != NO_PRODUCER_EPOCH:
            if expected[1] == self.producer_epoch:
                last_epoch = self.producer_epoch
            elif expected[1] == self.last_producer_epoch:
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
                last_id = self.last_producer_id
            else:
                raise ApiError(ErrorCode.PRODUCER_FENCED)
        return self.to(
            TxnState.EMPTY,
            now_ms,
            producer_epoch=epoch,
            last_producer_id=last_id,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            start_ms=NO_TIMESTAMP,
            partitions=frozenset(),
        )

    def must_rotate(self, expected: Expected) -> bool:
        """Whether this producer's next epoch must be one of a new producer id."""
        if self.producer_epoch < EXHAUSTED_EPOCH:
            return False
        if expected is None or expected[1] == self.producer_epoch:
            return True
        return self.producer_epoch == PRODUCER_EPOCH_MAX and (
            expected[1] == self.last_producer_epoch
        )

    def rotated(
        self, producer_id: int, expected: Expected, timeout_ms: int, now_ms: int
    ) -> Transaction:
        """The same once the epochs of a producer id are used up: a new id, from epoch 0."""
        self.refuse_stranger(expected)
        return self.to(
            TxnState.EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_id=self.producer_id,
            last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else expected[1],
            timeout_ms=timeout_ms,
            start_ms=NO_TIMESTAMP,
            partitions=frozenset(),
        )

    def refuse_stranger(self, expected: Expected) -> None:
        """PRODUCER_FENCED for a producer id that was never, or is no more, this transaction's.

        The id before counts only with its last epoch: that is a repeat of the call that got the
        new one.
        """
        if expected is None or self.producer_epoch == NO_PRODUCER_EPOCH:
            return
        producer_id, epoch = expected
        if producer_id == self.producer_id:
            return
        if producer_id == self.last_producer_id and epoch >= EXHAUSTED_EPOCH:
            return
        raise ApiError(ErrorCode.PRODUCER_FENCED)

    # A transaction runs.

    def joined(self, partitions: Collection[TopicPartition], now_ms: int) -> Transaction:
        """Partitions join; the first ones open the transaction."""
        return self.to(
            TxnState.ONGOING,
            now_ms,
            start_ms=self.start_ms if self.state is TxnState.ONGOING else now_ms,
            partitions=self.partitions | set(partitions),
            last_producer_id=NO_PRODUCER_ID,
        )

    def decided(self, now_ms: int, *, is_commit: bool) -> Transaction:
        """The outcome at the producer's own wish."""
        return self.to(TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT, now_ms)

    def fenced(self, now_ms: int, *, is_own_wish: bool = False) -> Transaction:
        """Aborted over the producer's head, under an epoch that the producer does not have.

        With `is_own_wish` it is the producer itself that begins anew (librdkafka aborts so when it
        wants a new epoch): its repeat of the call is then answered with the raised epoch. Kafka
        takes that repeat for a stranger's.
        """
        return self.to(
            TxnState.PREPARE_ABORT,
            now_ms,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch if is_own_wish else NO_PRODUCER_EPOCH,
        )

    def completed(self, now_ms: int) -> Transaction:
        """All markers are in place."""
        is_commit = self.state is TxnState.PREPARE_COMMIT
        return self.to(
            TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT,
            now_ms,
            partitions=frozenset(),
        )
