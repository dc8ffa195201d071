"""A transaction shard and its log: outcomes are written, replayed, and read again after a crash."""

from collections.abc import Callable

import pytest

from broker.coordinators.outcome import CoordinatorRecord, ShardOutcome
from broker.coordinators.txn import TxnShard
from broker.coordinators.txn_state import Expected, Transaction, TxnState
from broker.shards.loaded_shard import ProducerEpoch
from broker.shards.replaying import marker_header
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition

ID = "orders"
TIMEOUT_MS = 60_000
TIMEOUT_MS_MAX = 900_000
EXPIRATION_MS = 1_000_000
ID_COUNT_MAX = 20
A, B, C = (TopicPartition("t", number) for number in range(3))

HEADER = marker_header(0, ProducerEpoch(-1, -1), 0)


class Ledger:
    """One shard. The time is `now_ms`, and new producer ids start at 100."""

    def __init__(self) -> None:
        self.log: list[CoordinatorRecord] = []
        self.now_ms = 1_000
        self._next_producer_id = 100
        self.reload()

    def reload(self) -> None:
        """Restart the coordinator with the content of the log."""
        self.shard = TxnShard(TIMEOUT_MS_MAX, EXPIRATION_MS, ID_COUNT_MAX)
        self.shard.replay_batch(HEADER, self.log)

    def write(self, outcome: ShardOutcome[object]) -> None:
        """Make an outcome durable and replay it."""
        self.log.extend(outcome.records)
        self.shard.replay_batch(HEADER, outcome.records)

    def begin(
        self,
        expected: Expected = None,
        *,
        transactional_id: str = ID,
        timeout_ms: int = TIMEOUT_MS,
    ) -> Transaction:
        """Send InitProducerId as the driver does."""
        new_producer_id = -1
        if self.shard.wants_producer_id(transactional_id, expected):
            new_producer_id = self._next_producer_id
            self._next_producer_id += 1
        self.write(
            self.shard.init_producer_id(
                transactional_id, timeout_ms, expected, new_producer_id, self.now_ms
            )
        )
        return self[transactional_id]

    def add(self, owner: Transaction, *partitions: TopicPartition) -> Transaction:
        """Send AddPartitionsToTxn as the producer `owner`."""
        self.write(self.shard.add_partitions(*identity(owner), partitions, self.now_ms))
        return self[owner.transactional_id]

    def end(self, owner: Transaction, *, is_commit: bool = True) -> Transaction:
        """Send EndTxn."""
        self.write(self.shard.end(*identity(owner), self.now_ms, is_commit=is_commit))
        return self[owner.transactional_id]

    def complete(self, transactional_id: str = ID) -> Transaction:
        """Record that all markers are written."""
        self.write(self.shard.complete(transactional_id, self.now_ms))
        return self[transactional_id]

    def in_state(self, state: TxnState) -> Transaction:
        """Bring a transaction to a state by the shortest way."""
        one = self.begin()
        if state is TxnState.EMPTY:
            return one
        one = self.add(one, A)
        if state is TxnState.ONGOING:
            return one
        is_commit = state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)
        one = self.end(one, is_commit=is_commit)
        return one if one.state is state else self.complete()

    def __getitem__(self, transactional_id: str) -> Transaction:
        return self.shard.transactions[transactional_id]


def identity(owner: Transaction) -> tuple[str, int, int]:
    """Return the fields that identify a producer in its requests."""
    return owner.transactional_id, owner.producer_id, owner.producer_epoch


def refused(action: Callable[[], object]) -> ErrorCode:
    """Return the error code of a refused action. Fail if it is not refused."""
    with pytest.raises(ApiError) as caught:
        action()
    return ErrorCode(caught.value.code)
