"""One shard of the transaction coordinator: the state of each of its transactional ids.

This module is pure. Requests are checked against the state that has been replayed. While a change
of state is being written, its transactional id is `pending`, and any other request for this id gets
CONCURRENT_TRANSACTIONS. ApiError is raised before anything changes. Each method that returns an
outcome has made its ids pending. The caller appends the records and replays them, or calls
`withdraw` if they could not be written.

For each transaction that `is_preparing` the caller writes markers into all of its partitions and
then calls `complete`. After a load, the caller also does this for the transactions that `preparing`
returns. They were decided before a crash or a change of the leader.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from broker.coordinators.ages import Ages
from broker.coordinators.outcome import CoordinatorRecord, ShardOutcome
from broker.coordinators.txn_records import decode_key, decode_value, record_of
from broker.coordinators.txn_state import EXHAUSTED_EPOCH, Expected, Transaction, TxnState
from protocol.errors import ApiError, ErrorCode
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from protocol.wire.records import BatchHeader, Marker


class OpenTransaction(NamedTuple):
    """An open transaction, as the last check for overdue transactions saw it."""

    start_ms: int
    """The start of the transaction on the wall clock.

    It identifies the transaction among those of the same id.
    """
    earliest_ms: int
    """A monotonic time at which the transaction was not open yet."""
    seen_ms: int
    """A monotonic time at which the transaction was open."""

    def open_for_ms(self, now_ms: int, monotonic_ms: int) -> int:
        """Return the time for which the transaction has been open, by the wall clock.

        The bounds by the monotonic clock correct the result, because the wall clock can be set.
        """
        told_ms = max(now_ms - self.start_ms, monotonic_ms - self.seen_ms)
        return min(told_ms, monotonic_ms - self.earliest_ms)


def refuse_timeout(timeout_ms: int, timeout_ms_max: int) -> None:
    """Raise INVALID_TRANSACTION_TIMEOUT unless this broker allows the timeout."""
    if not 0 < timeout_ms <= timeout_ms_max:
        raise ApiError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"transaction.timeout.ms is {timeout_ms}, expected 1 to {timeout_ms_max}",
        )


class TxnShard:
    """The transactional ids that are stored in one partition of the transactions topic."""

    def __init__(
        self,
        timeout_ms_max: int,
        expiration_ms: int,
        id_count_max: int,
        ages: Ages | None = None,
    ) -> None:
        """Create an empty shard with these limits. Without `ages`, the wall clock is assumed never
        to have been set."""
        self._ages = ages or Ages()
        self.transactions: dict[str, Transaction] = {}
        """The committed state of each transactional id."""
        self._pending: dict[str, Transaction] = {}
        """The state of each transactional id after the change that is being written."""
        self._timeout_ms_max = timeout_ms_max
        self._expiration_ms = expiration_ms
        self._id_count_max = id_count_max
        self._inherited: dict[str, int] = {}
        """The start times of the transactions that were open when this shard was loaded, by
        transactional id."""
        self._loaded_ms = 0
        self._watched: dict[str, OpenTransaction] = {}
        """The transactions that were open at the last check."""
        self._looked_ms = 0

    # Replaying.

    def replay_batch(self, header: BatchHeader, records: Sequence[CoordinatorRecord]) -> None:
        """Replay one batch of the partition, in the order of the log."""
        for record in records:
            transactional_id = decode_key(record.key)
            if transactional_id is None:
                continue
            # A change that this shard decided has fields that its record lacks.
            moved = self._pending.pop(transactional_id, None)
            if record.value is None:
                self.transactions.pop(transactional_id, None)
            else:
                self.transactions[transactional_id] = moved or decode_value(
                    transactional_id, record.value
                )

    def begin(self, monotonic_ms: int) -> None:
        """Start to decide requests, because the log has been replayed completely."""
        self._loaded_ms = self._looked_ms = monotonic_ms
        self._inherited = {
            one.transactional_id: one.start_ms
            for one in self.transactions.values()
            if one.state is TxnState.ONGOING
        }

    def replay_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Do nothing, because this topic has no transactional records."""

    def withdraw(self, transactional_ids: Iterable[str]) -> None:
        """Drop the pending changes of these transactional ids, because their records could not be
        written."""
        for transactional_id in transactional_ids:
            self._pending.pop(transactional_id, None)

    def _move(self, *moved: Transaction) -> ShardOutcome[Sequence[Transaction]]:
        # Build the records first: if this fails, the id must not stay pending.
        outcome = ShardOutcome([record_of(one) for one in moved], moved)
        for one in moved:
            assert one.transactional_id not in self._pending, "two moves at once"
            self._pending[one.transactional_id] = one
        return outcome

    def _refuse_pending(self, transactional_id: str) -> None:
        if transactional_id in self._pending:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _refuse_one_more(self) -> None:
        known, pending = self.transactions, self._pending
        if len(known) + len(pending) < self._id_count_max:
            return
        # Most pending ids also have a committed state, and are already counted.
        if len(known) + sum(one not in known for one in pending) >= self._id_count_max:
            raise ApiError(
                ErrorCode.POLICY_VIOLATION,
                f"the limit of {self._id_count_max} transactional ids is reached: use fewer ids, "
                "or wait until unused ones expire",
            )

    # Start a producer.

    def wants_producer_id(self, transactional_id: str, expected: Expected) -> bool:
        """Return True if `init_producer_id` needs a new producer id."""
        known = self.transactions.get(transactional_id)
        if known is None:
            return True
        return known.state.is_at_rest and known.must_rotate(expected)

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Expected,
        new_producer_id: int,
        now_ms: int,
    ) -> ShardOutcome[Sequence[Transaction]]:
        """Handle InitProducerId. `expected` is the producer id and epoch in the request (KIP-360).

        An open transaction is aborted under a raised epoch. In this case the outcome is
        PREPARE_ABORT, and the producer must get CONCURRENT_TRANSACTIONS. Its next request raises
        the epoch again. `new_producer_id` is used only if `wants_producer_id` returns True.
        """
        refuse_timeout(timeout_ms, self._timeout_ms_max)
        self._refuse_pending(transactional_id)
        known = self.transactions.get(transactional_id)
        if known is None:
            self._refuse_one_more()
            known = Transaction(
                transactional_id,
                new_producer_id,
                NO_PRODUCER_EPOCH,
                timeout_ms,
                TxnState.EMPTY,
                now_ms,
            )
        known.refuse_stranger(expected)
        if known.state.is_preparing:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is TxnState.ONGOING:
            if expected is not None and expected[1] != known.producer_epoch:
                raise ApiError(ErrorCode.PRODUCER_FENCED)
            return self._move(known.fenced(now_ms, is_own_wish=expected is not None))
        if known.must_rotate(expected):
            assert new_producer_id != NO_PRODUCER_ID, "ask wants_producer_id first"
            return self._move(known.rotated(new_producer_id, expected, timeout_ms, now_ms))
        return self._move(known.begun_anew(expected, timeout_ms, now_ms))

    # Run a transaction.

    def _owned(self, transactional_id: str, producer_id: int, producer_epoch: int) -> Transaction:
        """Return the transaction of this producer.

        Raises ApiError with the reason if the producer has none.
        """
        if not transactional_id:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "the transactional id is empty: set transactional.id of the producer",
            )
        known = self.transactions.get(transactional_id)
        if known is None or known.producer_id != producer_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        # No producer gets the highest epoch, which only fences the producer before it, because a
        # producer with that epoch could not be fenced.
        if known.producer_epoch != producer_epoch or producer_epoch > EXHAUSTED_EPOCH:
            raise ApiError(ErrorCode.PRODUCER_FENCED)
        return known

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        now_ms: int,
    ) -> ShardOutcome[Sequence[Transaction]]:
        """Handle AddPartitionsToTxn, and AddOffsetsToTxn with the partition of the group's offsets.

        No record is written if the open transaction already has all these partitions.
        """
        known = self._owned(transactional_id, producer_id, producer_epoch)
        self._refuse_pending(transactional_id)
        if known.state.is_preparing:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is TxnState.ONGOING and known.partitions.issuperset(partitions):
            return ShardOutcome([], ())
        return self._move(known.joined(partitions, now_ms))

    def refuse_outsider(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
    ) -> None:
        """Refuse an append to a partition that is not in this producer's open transaction.

        Otherwise a batch that arrives after its transaction's marker, such as a late retry, would
        open a transaction that never ends (KIP-890).
        """
        known = self._owned(transactional_id, producer_id, producer_epoch)
        coming = self._pending.get(transactional_id)
        if known.state.is_preparing or (coming is not None and coming.state.is_preparing):
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if known.state is not TxnState.ONGOING or partition not in known.partitions:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"{partition} is not part of an open transaction: send AddPartitionsToTxn first",
            )

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        now_ms: int,
        *,
        is_commit: bool,
    ) -> ShardOutcome[Sequence[Transaction]]:
        """Handle EndTxn. A repeated request for a completed transaction writes no record."""
        known = self._owned(transactional_id, producer_id, producer_epoch)
        self._refuse_pending(transactional_id)
        if known.state is TxnState.ONGOING:
            return self._move(known.decided(now_ms, is_commit=is_commit))
        if known.state is (TxnState.COMPLETE_COMMIT if is_commit else TxnState.COMPLETE_ABORT):
            return ShardOutcome([], ())
        if known.state is (TxnState.PREPARE_COMMIT if is_commit else TxnState.PREPARE_ABORT):
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)
        raise ApiError(
            ErrorCode.INVALID_TXN_STATE,
            f"the transaction of producer {producer_id} cannot be "
            f"{'committed' if is_commit else 'aborted'}, because its state is "
            f"{known.state.title}",
        )

    # End a transaction.

    def preparing(self) -> list[Transaction]:
        """Return the transactions whose outcome is decided and not complete."""
        return [one for one in self.transactions.values() if one.state.is_preparing]

    def complete(self, transactional_id: str, now_ms: int) -> ShardOutcome[Sequence[Transaction]]:
        """Complete a decided transaction, because all its markers are written."""
        return self._move(self.transactions[transactional_id].completed(now_ms))

    def abort_overdue(
        self, now_ms: int, monotonic_ms: int
    ) -> list[ShardOutcome[Sequence[Transaction]]]:
        """Abort the transactions that have been open for too long, each under a raised epoch.

        The start time of a transaction that was open when the shard was loaded comes from another
        broker's wall clock, and clocks differ. So such a transaction is overdue only once this
        broker has seen it open for its whole timeout.
        """
        self._watch(monotonic_ms)
        return [
            self._move(one.fenced(now_ms))
            for one in list(self.transactions.values())
            if one.state is TxnState.ONGOING
            and self._is_overdue(one, now_ms, monotonic_ms)
            and one.transactional_id not in self._pending
        ]

    def _watch(self, monotonic_ms: int) -> None:
        """Record which transactions are open, and since when this broker has seen them open."""
        before, self._watched = self._watched, {}
        for one in self.transactions.values():
            if one.state is TxnState.ONGOING:
                known = before.get(one.transactional_id)
                if known is None or known.start_ms != one.start_ms:
                    known = OpenTransaction(one.start_ms, self._looked_ms, monotonic_ms)
                self._watched[one.transactional_id] = known
        self._looked_ms = monotonic_ms

    def _is_overdue(self, one: Transaction, now_ms: int, monotonic_ms: int) -> bool:
        if self._inherited.get(one.transactional_id) != one.start_ms:
            watched = self._watched[one.transactional_id]
            return watched.open_for_ms(now_ms, monotonic_ms) > one.timeout_ms
        return monotonic_ms - self._loaded_ms > one.timeout_ms

    def expired(self, now_ms: int) -> list[str]:
        """Return the transactional ids that have been unused for too long.

        Pass them to `expire`.
        """
        found = self.transactions.values()
        return [one.transactional_id for one in found if self._is_expired(one, now_ms)]

    def _is_expired(self, one: Transaction, now_ms: int) -> bool:
        return (
            one.state.is_at_rest
            and self._ages.of(one.last_update_ms, now_ms) >= self._expiration_ms
            and one.transactional_id not in self._pending
        )

    def expire(
        self, transactional_ids: Iterable[str], now_ms: int
    ) -> ShardOutcome[Sequence[Transaction]]:
        """Delete transactional ids, except for those that were used since `expired` returned
        them."""
        found = (self.transactions.get(one) for one in transactional_ids)
        old = [one for one in found if one is not None and self._is_expired(one, now_ms)]
        return self._move(*(one.to(TxnState.DEAD, now_ms) for one in old))

    # Answer administrators.

    def described(self, transactional_id: str) -> Transaction:
        """Return one transaction. Raises ApiError TRANSACTIONAL_ID_NOT_FOUND."""
        known = self.transactions.get(transactional_id)
        if known is None:
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return known

    def listed(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        duration_ms: int,
        now_ms: int,
    ) -> list[Transaction]:
        """Return the transactions that pass every filter. An empty filter, or -1, lets all
        transactions pass.

        `duration_ms`: select only transactions that have been open for longer.
        """
        # The lists in the request can be long and are searched for each transaction, so make sets
        # of them.
        titles, ids = frozenset(states), frozenset(producer_ids)
        return [
            one
            for one in self.transactions.values()
            if (not titles or one.state.title in titles)
            and (not ids or one.producer_id in ids)
            and (duration_ms < 0 or 0 <= one.start_ms < now_ms - duration_ms)
        ]
