"""The states of a transactional id and their legal moves.

This module is pure.

    EMPTY -> ONGOING -> PREPARE_COMMIT -> COMPLETE_COMMIT -> ONGOING | EMPTY | DEAD
                     -> PREPARE_ABORT  -> COMPLETE_ABORT  -> ONGOING | EMPTY | DEAD
    EMPTY -> EMPTY (a producer starts again) | DEAD (deleted)
    ONGOING -> ONGOING (partitions are added)

A transaction is decided when its PREPARE state is durable; COMPLETE follows the last marker. Kafka
has one more state, PrepareEpochFence, which is never in its log. Here, fencing a producer with an
open transaction is the move to PREPARE_ABORT itself, under a raised epoch.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import IntEnum

from protocol.errors import ApiError, ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

PRODUCER_EPOCH_MAX = 32_767
EXHAUSTED_EPOCH = PRODUCER_EPOCH_MAX - 1
"""The last epoch that a producer gets.

The next higher epoch only fences the producer that had this one.
"""


Expected = tuple[int, int] | None
"""The producer id and epoch in InitProducerId; None if the request has none."""


class TxnState(IntEnum):
    """The states of a transaction, by Kafka's numbers in its log.

    `title` is the name that Kafka's tools show.
    """

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
        """True if the outcome is decided and the markers are being written."""
        return self in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT)

    @property
    def is_at_rest(self) -> bool:
        """True if no transaction is open, so that the transactional id can be deleted."""
        return self in (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT)


class IllegalTxnMove(Exception):
    """The error for a move between states that is not allowed. It is a bug of the broker."""

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
    """The state of one transactional id. Each move returns a new object; nothing changes in place.

    `last_producer_id` and `last_producer_epoch` are the producer's values before it raised its
    epoch itself (KIP-360). They identify a repeated request whose first answer was lost. They are
    not in Kafka's log format, so a restart loses them, as in Kafka.
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
        """Return the transaction in another state.

        Raises IllegalTxnMove if the move is not allowed.
        """
        if self.state not in _SOURCES[state]:
            raise IllegalTxnMove(self.state, state)
        return replace(self, state=state, last_update_ms=now_ms, **changes)  # type: ignore[arg-type]  # checked where it is called

    # Start a producer.

    def begun_anew(self, expected: Expected, timeout_ms: int, now_ms: int) -> Transaction:
        """Return the transaction after InitProducerId: no transaction is open, and the epoch is
        raised.

        If the request has a producer id and epoch (KIP-360), there are three cases. With the
        current epoch, the epoch is raised. With the epoch before the current one, the request is a
        repetition and gets the same answer again. Any other epoch gets PRODUCER_FENCED. If the
        request has no epoch, the former producer is fenced.
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
        """Return True if this producer's next epoch must belong to a new producer id."""
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
        """Return the transaction with a new producer id and epoch 0, because the epochs of the old
        id are used up."""
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
        """Raise PRODUCER_FENCED for a producer id that this transaction does not have.

        The former producer id is accepted only with its last epoch. Such a request is a repetition
        of the request that gave the producer its new id.
        """
        if expected is None or self.producer_epoch == NO_PRODUCER_EPOCH:
            return
        producer_id, epoch = expected
        if producer_id == self.producer_id:
            return
        if producer_id == self.last_producer_id and epoch >= EXHAUSTED_EPOCH:
            return
        raise ApiError(ErrorCode.PRODUCER_FENCED)

    # Run a transaction.

    def joined(self, partitions: Collection[TopicPartition], now_ms: int) -> Transaction:
        """Return the transaction with these partitions added.

        The first partitions open the transaction.
        """
        return self.to(
            TxnState.ONGOING,
            now_ms,
            start_ms=self.start_ms if self.state is TxnState.ONGOING else now_ms,
            partitions=self.partitions | set(partitions),
            last_producer_id=NO_PRODUCER_ID,
        )

    def decided(self, now_ms: int, *, is_commit: bool) -> Transaction:
        """Return the transaction with the outcome that the producer requested: commit or abort."""
        return self.to(TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT, now_ms)

    def fenced(self, now_ms: int, *, is_own_wish: bool = False) -> Transaction:
        """Return the transaction as aborted without the producer, under an epoch that the producer
        does not have.

        `is_own_wish` is True if the producer itself asks for a new epoch. librdkafka aborts a
        transaction in this way. If such a producer repeats its request, it gets the raised epoch;
        Kafka would fence it.
        """
        return self.to(
            TxnState.PREPARE_ABORT,
            now_ms,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch if is_own_wish else NO_PRODUCER_EPOCH,
        )

    def completed(self, now_ms: int) -> Transaction:
        """Return the transaction as completed, because all markers are written."""
        is_commit = self.state is TxnState.PREPARE_COMMIT
        return self.to(
            TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT,
            now_ms,
            partitions=frozenset(),
        )
