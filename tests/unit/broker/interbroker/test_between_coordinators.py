"""Responses that transaction coordinators and partition leaders send each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.interbroker.transactions import MARKERS_MS_MAX, transaction_handlers
from broker.sessions.call import Call
from broker.shards.markers import FENCED
from protocol.errors import ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from protocol.types import TopicPartition
from protocol.wire.schema import Message
from tests.unit.broker.replicas.test_leadership_moves import Controller
from tests.unit.broker.rig import Asked, FakeSession, Rig
from tests.unit.broker.txn_rig import A, B, Doubtful, TxnProducer, read_stable, settle, txn_rig


class Between:
    """The transaction handlers of the listener BROKER of a rig's broker."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        parts = rig.broker.parts
        self._handlers = transaction_handlers(
            parts.replicas, parts.markers, parts.transactions, rig.clock
        )

    def ask(self, message: Message, version: int, session: Any = None) -> Asked:
        """Send a request as broker 2, on a new connection if no session is given."""
        key = ApiKey(message.api_key)
        asked = Asked(message, version, "BROKER")
        asked.session = session or FakeSession("BROKER", 1)
        call = Call(asked.session, asked.slot, key, version, 1, "broker-2")
        answer = self._handlers[key](call, message)
        if answer is not None:
            call.answer(answer)
        return asked

    def verify(self, producer: TxnProducer, *partitions: TopicPartition, **changes: Any) -> Any:
        """Send AddPartitionsToTxn, which verifies the transaction of a producer. Return the error
        code of each partition."""
        values: dict[str, Any] = {
            "transactional_id": producer.transactional_id,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "verify_only": True,
        } | changes
        transaction = AddPartitionsToTxnTransaction(
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[index])
                for topic, index in partitions
            ],
            **values,
        )
        asked = self.ask(AddPartitionsToTxnRequest(transactions=[transaction]), 4)
        (result,) = asked.answer.results_by_transaction
        assert result.transactional_id == values["transactional_id"]
        return [
            ErrorCode(one.partition_error_code)
            for topic in result.topic_results
            for one in topic.results_by_partition
        ]

    def mark(self, producer: TxnProducer, session: Any = None, **changes: Any) -> Asked:
        """Send WriteTxnMarkers with an abort marker for partition A."""
        values = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "transaction_result": False,
            "coordinator_epoch": 5,
        } | changes
        topics = [WritableTxnMarkerTopic(name=A.topic, partition_indexes=[A.partition])]
        marker = WritableTxnMarker(topics=topics, **values)
        return self.ask(WriteTxnMarkersRequest(markers=[marker]), 1, session)


def marker_code(asked: Asked) -> ErrorCode:
    return ErrorCode(asked.answer.markers[0].topics[0].partitions[0].error_code)


@pytest.fixture
def rig() -> Iterator[Rig]:
    with txn_rig() as rig:
        yield rig


@pytest.fixture
def between(rig: Rig) -> Between:
    return Between(rig)


def end_of(rig: Rig) -> int:
    return rig.broker.parts.replicas.find(*A).log.log_end_offset


def test_a_leader_is_told_what_belongs_to_an_open_transaction(rig: Rig, between: Between) -> None:
    producer = TxnProducer(rig).ready()
    assert between.verify(producer, A) == [ErrorCode.INVALID_TXN_STATE]
    producer.add(A)
    assert between.verify(producer, A, B) == [ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE]
    assert between.verify(producer, A, producer_epoch=7) == [ErrorCode.PRODUCER_FENCED]
    assert between.verify(producer, A, producer_id=77) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    # The transaction counts as ended from the decision on, even if the decision is not committed
    # yet.
    rig.send(producer.end_request(is_commit=True), 3)
    assert between.verify(producer, A) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    settle(rig)
    assert between.verify(producer, A) == [ErrorCode.INVALID_TXN_STATE]


def test_verifying_adds_nothing_and_nothing_else_is_done(rig: Rig, between: Between) -> None:
    producer = TxnProducer(rig).ready()
    between.verify(producer, A)
    assert between.verify(producer, A, verify_only=False) == [ErrorCode.INVALID_REQUEST]
    assert not rig.broker.parts.transactions.shard("id").transactions["id"].partitions


def test_a_coordinator_that_may_be_deposed_confirms_no_transaction(
    rig: Rig, between: Between
) -> None:
    producer = TxnProducer(rig).ready()
    producer.add(A)
    rig.broker.parts.replicas.place = Doubtful(rig.clock)
    assert between.verify(producer, A) == [ErrorCode.NOT_COORDINATOR]


def test_who_is_not_the_coordinator_says_so(rig: Rig, between: Between) -> None:
    producer = TxnProducer(rig).ready()
    controller = Controller(rig)
    controller.take(rig.broker.parts.transactions.partition_of("id"))
    assert between.verify(producer, A) == [ErrorCode.NOT_COORDINATOR]


def test_a_marker_is_answered_when_it_is_committed(rig: Rig, between: Between) -> None:
    producer = TxnProducer(rig).ready()
    producer.add(A)
    producer.put(A, b"x")
    asked = between.mark(producer)
    assert not asked.is_answered()
    settle(rig)
    assert marker_code(asked) is ErrorCode.NONE
    assert read_stable(rig, "t") == []


def test_a_marker_that_stands_is_waited_for_and_not_written_again(
    rig: Rig, between: Between
) -> None:
    producer = TxnProducer(rig).ready()
    producer.add(A)
    producer.put(A, b"x")
    late = between.mark(producer)
    rig.advance(MARKERS_MS_MAX)
    assert marker_code(late) is ErrorCode.REQUEST_TIMED_OUT
    end = end_of(rig)
    again = between.mark(producer)
    assert end_of(rig) == end, "it was written a second time"
    assert not again.is_answered()
    settle(rig)
    assert marker_code(again) is ErrorCode.NONE
    assert marker_code(between.mark(producer)) is ErrorCode.NONE
    assert end_of(rig) == end


def test_what_is_written_behind_a_marker_does_not_hold_back_the_answer_to_it(
    rig: Rig, between: Between
) -> None:
    producer = TxnProducer(rig).ready()
    producer.add(A)
    producer.put(A, b"x")
    asked = between.mark(producer)
    settle(rig)
    assert marker_code(asked) is ErrorCode.NONE
    plain = TxnProducer(rig, "other").ready()
    plain.add(A)
    behind = plain.send(A, b"y")
    assert marker_code(between.mark(producer)) is ErrorCode.NONE
    assert not behind.is_answered()


def test_a_marker_of_newer_epochs_or_behind_another_batch_is_another_marker(
    rig: Rig, between: Between
) -> None:
    producer = TxnProducer(rig).ready()
    producer.add(A)
    for changes in ({}, {"coordinator_epoch": 6}, {"coordinator_epoch": 6, "producer_epoch": 1}):
        begin = end_of(rig)
        between.mark(producer, **changes)
        assert end_of(rig) == begin + 1
    settle(rig)
    assert marker_code(between.mark(producer)) is ErrorCode.INVALID_PRODUCER_EPOCH
    old = between.mark(producer, producer_epoch=1)
    assert marker_code(old) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


@pytest.mark.parametrize("newer", [{"coordinator_epoch": 6}, {"producer_epoch": 1}])
def test_a_marker_is_fenced_only_by_what_is_committed(
    rig: Rig, between: Between, newer: dict[str, int]
) -> None:
    """A fenced coordinator takes the transaction for ended in the partition. What fences it can
    still be lost with the leader of the partition, so the answer waits for the commit."""
    producer = TxnProducer(rig).ready()
    producer.add(A)
    between.mark(producer, **newer)
    lost = between.mark(producer)
    rig.advance(MARKERS_MS_MAX)
    assert marker_code(lost) is ErrorCode.REQUEST_TIMED_OUT
    old = between.mark(producer)
    assert not old.is_answered()
    settle(rig)
    assert marker_code(old) in FENCED
    assert marker_code(between.mark(producer)) in FENCED


def test_a_fenced_marker_is_written_by_the_next_leader(rig: Rig, between: Between) -> None:
    producer = TxnProducer(rig).ready()
    producer.add(A)
    between.mark(producer, coordinator_epoch=6)
    old = between.mark(producer)
    Controller(rig).take(A)
    assert marker_code(old) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_nothing_is_let_in_behind_the_marker_of_a_newer_coordinator(
    rig: Rig, between: Between
) -> None:
    """The deposed coordinator does not know its successor, so it confirms a transaction that has
    ended. The batch would open a transaction that no client ends, or that the end of the producer's
    next transaction includes (KIP-890)."""
    producer = TxnProducer(rig).ready()
    producer.add(A)
    producer.put(A, b"x")
    own_epoch = rig.broker.parts.transactions.find("id").leader_epoch
    between.mark(producer, coordinator_epoch=own_epoch + 1)
    settle(rig)
    end = end_of(rig)
    assert producer.put(A, b"late") is ErrorCode.NOT_ENOUGH_REPLICAS
    log = rig.broker.parts.replicas.find(*A).log
    assert log.last_stable_offset == log.log_end_offset == end


def test_a_marker_by_a_link_that_was_given_up_ends_nothing(rig: Rig, between: Between) -> None:
    """The sender repeated the marker on its next connection. So the transaction can be complete,
    and the late marker would end the producer's next one."""
    older, newer = FakeSession("BROKER", 1), FakeSession("BROKER", 2)
    epoch = rig.broker.parts.transactions.find("id").leader_epoch
    producer = TxnProducer(rig).ready()
    producer.add(A)
    producer.put(A, b"first")
    between.mark(producer, newer, coordinator_epoch=epoch)
    settle(rig)
    producer.put(A, b"second")
    end = end_of(rig)
    late = between.mark(producer, older, coordinator_epoch=epoch)
    assert end_of(rig) == end and not late.is_answered()
    assert late.session.closed_because
    between.mark(producer, newer, coordinator_epoch=epoch)
    assert end_of(rig) == end + 1
