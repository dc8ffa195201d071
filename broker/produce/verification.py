"""Whether a transactional batch may be written: only into a partition that was added to the open
transaction of its producer.

Floor: produce. The coordinator is on this node, so the question costs two look-ups. Kafka asks
since 3.6 (KIP-890), and its refusal is the one given here: INVALID_TXN_STATE, after which every
client aborts the transaction and goes on. Without the question a batch that arrives late would open
a transaction that nobody ends, and hold back every read_committed reader of the partition.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.coordinators.txn import TxnShard
from broker.replicas.replica import Replica
from protocol.errors import ApiError, ErrorCode
from protocol.wire.records import BatchHeader

TRANSACTIONAL = 0x10

Verifier = Callable[[str], TxnShard]
"""The shard that knows a transactional id; refuses while that is loading, or is not here."""

NOT_YET = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)
"""What passes by itself. A producer does not know these codes in an answer to Produce, so it is
told NOT_ENOUGH_REPLICAS, as Kafka does: retry, without new metadata."""


def refuse_outsider(
    verifier: Verifier, transactional_id: str | None, header: BatchHeader, partition: Replica
) -> None:
    """Refuse a transactional batch that has no place in this partition."""
    if transactional_id is None:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transactional batch in a request without a transactional id",
        )
    try:
        verifier(transactional_id).refuse_outsider(
            transactional_id, header.producer_id, header.producer_epoch, partition.topic_partition
        )
    except ApiError as error:
        if error.code is ErrorCode.PRODUCER_FENCED:
            raise ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message) from error
        if error.code in NOT_YET:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message) from error
        raise
