"""Records of the transaction log, compared with bytes that were written by hand from Kafka's
definitions."""

import pytest

from broker.coordinators.txn_records import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    record_of,
)
from broker.coordinators.txn_state import Transaction, TxnState
from protocol.errors import CorruptBatch
from protocol.types import TopicPartition

PARTITIONS = frozenset({TopicPartition("u", 0), TopicPartition("t", 2), TopicPartition("t", 1)})
ONE = Transaction("id", 7, 3, 60_000, TxnState.ONGOING, 0x0102, 0x0101, PARTITIONS)

KEY = bytes.fromhex("0000 0002 6964")
VALUE = bytes.fromhex(
    "0000"  # version
    "0000000000000007 0003"  # producer id and epoch
    "0000ea60 01"  # timeout, Ongoing
    "00000002"  # topics
    "0001 74 00000002 00000001 00000002"  # t: 1, 2
    "0001 75 00000001 00000000"  # u: 0
    "0000000000000102 0000000000000101"  # last update, start
)


def test_keys_and_values_are_kafkas_bytes() -> None:
    assert encode_key("id") == KEY
    assert encode_value(ONE) == VALUE
    assert decode_key(KEY) == "id"
    assert decode_value("id", VALUE) == ONE


def test_an_empty_transaction_has_null_for_partitions() -> None:
    empty = Transaction("id", 7, 0, 1, TxnState.EMPTY, 5)
    value = encode_value(empty)
    assert value[17:21] == b"\xff\xff\xff\xff"
    assert decode_value("id", value) == empty


def test_the_flexible_version_with_tags_we_do_not_know_is_read() -> None:
    value = bytes.fromhex(
        "0001 0000000000000007 0003 0000ea60 01"
        "03 0274 03 00000001 00000002 00 0275 02 00000000 00"
        "0000000000000102 0000000000000101"
        "01 00 08 0000000000000009"  # one tagged field: the producer id before
    )
    assert decode_value("id", value) == ONE


def test_a_dead_transaction_is_a_tombstone() -> None:
    dead = Transaction("id", 7, 0, 1, TxnState.EMPTY, 5).to(TxnState.DEAD, 6)
    assert record_of(dead) == (KEY, None)


def test_a_key_of_another_kind_is_skipped() -> None:
    assert decode_key(b"\x00\x09whatever") is None


@pytest.mark.parametrize(
    "value", [b"", VALUE[:20], b"\x00\x07" + VALUE[2:], VALUE[:16] + b"\x63" + VALUE[17:]]
)
def test_damage_is_reported(value: bytes) -> None:
    with pytest.raises(CorruptBatch):
        decode_value("id", value)


@pytest.mark.parametrize("state", [state for state in TxnState if state is not TxnState.DEAD])
def test_every_state_comes_back(state: TxnState) -> None:
    one = Transaction("äö", 1, 2, 3, state, 4, 5)
    assert decode_value("äö", encode_value(one)) == one
