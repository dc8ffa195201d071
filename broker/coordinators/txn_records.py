"""Keys and values of `__transaction_state`, in Kafka's own encoding.

This module is pure. Key and value both start with their version as int16. Both are written in
version 0, which every Kafka reads. Version 1 of the value, which Kafka 4 can write, can be read.
Unknown kinds of records are skipped, as in Kafka.
"""

from __future__ import annotations

from struct import Struct as Packed
from struct import error as StructError

from broker.coordinators.outcome import CoordinatorRecord
from broker.coordinators.txn_state import Transaction, TxnState
from protocol.errors import CorruptBatch, WireError
from protocol.types import TopicPartition
from protocol.wire.primitives import Buffer
from protocol.wire.schema import (
    NEVER_FLEXIBLE,
    Message,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    string,
)

VERSION = 0

_VERSION = Packed(">h")


class TransactionLogKey(Message, api_key=0, versions=(0, 0), flexible=NEVER_FLEXIBLE):
    """The key of a transaction: the transactional id."""

    transactional_id: str = string()


class PartitionsSchema(Struct):
    """One topic's partitions in a transaction."""

    topic: str = string()
    partition_ids: list[int] = array(int32)


class TransactionLogValue(Message, api_key=0, versions=(0, 1), flexible=1):
    """The value of a transaction: its state.

    Version 1 adds tagged fields, which are not needed here.
    """

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, nullable=0)
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transaction."""
    return _VERSION.pack(VERSION) + TransactionLogKey(transactional_id=transactional_id).encode(
        VERSION
    )


def encode_value(transaction: Transaction) -> bytes:
    """Return the value of a transaction.

    As in Kafka, an Empty transaction has null for its partitions.
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(partition)
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=(
            None
            if transaction.state is TxnState.EMPTY
            else [
                PartitionsSchema(topic=topic, partition_ids=partitions)
                for topic, partitions in topics.items()
            ]
        ),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    return _VERSION.pack(VERSION) + value.encode(VERSION)


def record_of(transaction: Transaction) -> CoordinatorRecord:
    """Return the record of a transaction; a tombstone for a transaction in state DEAD."""
    key = encode_key(transaction.transactional_id)
    if transaction.state is TxnState.DEAD:
        return CoordinatorRecord(key, None)
    return CoordinatorRecord(key, encode_value(transaction))


def decode_key(key: Buffer) -> str | None:
    """Return the transactional id in a key; None for other kinds of keys."""
    try:
        (version,) = _VERSION.unpack_from(key)
        if version not in TransactionLogKey.valid_versions:
            return None
        return TransactionLogKey.decode(key, version, _VERSION.size)[0].transactional_id
    except (StructError, WireError) as error:
        raise CorruptBatch(f"cannot decode the key of a transaction record: {error}") from error


def decode_value(transactional_id: str, value: Buffer) -> Transaction:
    """Return the transaction in a value. Raises CorruptBatch if it is invalid."""
    try:
        (version,) = _VERSION.unpack_from(value)
        found, _ = TransactionLogValue.decode(value, version, _VERSION.size)
        state = TxnState(found.transaction_status)
    except (StructError, WireError, ValueError) as error:
        raise CorruptBatch(f"cannot decode the value of a transaction record: {error}") from error
    return Transaction(
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        state=state,
        last_update_ms=found.transaction_last_update_timestamp_ms,
        start_ms=found.transaction_start_timestamp_ms,
        partitions=frozenset(
            TopicPartition(one.topic, partition)
            for one in found.transaction_partitions or []
            for partition in one.partition_ids
        ),
    )
