"""Requests between transaction coordinators and partition leaders (KIP-98, KIP-890).

A coordinator sends WriteTxnMarkers to have its markers written. A leader sends AddPartitionsToTxn
with `verify_only` to ask if a producer may write in a transaction.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.purgatory import WaitingOperation
from broker.replicas.replica import Replica
from broker.replicas.replicas import Replicas
from broker.sessions.call import Call
from broker.sessions.dispatch import Handler
from broker.shards.markers import Markers, TxnMarker
from broker.shards.transactions import TxnCoordinator
from broker.world import Clock
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.security.acl import AclOperation
from protocol.types import TopicPartition

MARKERS_MS_MAX = 1_000
"""The longest wait in milliseconds for the commit of markers. A marker that is not committed by
then gets REQUEST_TIMED_OUT, because one partition must not delay the answers of all others."""

Write = Callable[[Replica, TxnMarker, WaitingOperation, int], None]
"""A function that writes one marker and waits for its commit until a deadline."""


class MarkerAnswer:
    """The part of an answer for one marker, which waits until the marker is committed."""

    def __init__(self, part: WritableTxnMarkerPartitionResult, done: Callable[[], None]) -> None:
        self._part = part
        self._done = done

    def reached(self) -> None:
        self._done()

    def lost(self, code: ErrorCode) -> None:
        self._part.error_code = code
        self._done()


class MarkerHandler:
    """Handles WriteTxnMarkers from other brokers, and from kafka-transactions, which aborts a
    transaction with it."""

    def __init__(self, replicas: Replicas, clock: Clock, write: Write) -> None:
        self._replicas = replicas
        self._clock = clock
        self._write = write

    def write_txn_markers(self, call: Call, request: WriteTxnMarkersRequest) -> None:
        """Write the markers of a request. The answer is sent when every marker is committed, or
        after `MARKERS_MS_MAX`."""
        is_allowed = call.may_with_cluster(
            AclOperation.ALTER, is_logged=False
        ) or call.may_with_cluster(AclOperation.CLUSTER_ACTION)
        response = WriteTxnMarkersResponse()
        deadline_ms = self._clock.monotonic_ms() + MARKERS_MS_MAX
        left = 1

        def one_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                call.answer(response)

        for asked in request.markers:
            marker = TxnMarker(
                asked.producer_id,
                asked.producer_epoch,
                asked.transaction_result,
                asked.coordinator_epoch,
            )
            result = WritableTxnMarkerResult(producer_id=asked.producer_id)
            for topic in asked.topics:
                of_topic = WritableTxnMarkerTopicResult(name=topic.name)
                # Each marker is an append, so write only one per partition even if the request
                # names a partition repeatedly.
                for index in dict.fromkeys(topic.partition_indexes):
                    one = WritableTxnMarkerPartitionResult(partition_index=index)
                    left += 1
                    try:
                        if not is_allowed:
                            raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                        replica = self._replicas.find(topic.name, index)
                        self._write(replica, marker, MarkerAnswer(one, one_done), deadline_ms)
                    except ApiError as error:
                        left -= 1
                        one.error_code = error.code
                    of_topic.partitions.append(one)
                result.topics.append(of_topic)
            response.markers.append(result)
        one_done()


class NewestLinks:
    """Refuses markers that arrive on a link that their coordinator has abandoned.

    The coordinator sends unanswered markers again on its next link. If this broker read the old
    markers after the new ones, their transaction could be complete, and they would end the
    producer's next transaction.
    """

    def __init__(self) -> None:
        self._numbers: dict[str | None, int] = {}
        """The number of the newest connection of each broker on which markers have arrived, by
        broker."""

    def admits(self, call: Call) -> bool:
        """Return True if no newer connection of this broker is known."""
        number = call.session.number
        newest = self._numbers.get(call.client_id, number)
        if number < newest:
            return False
        self._numbers[call.client_id] = number
        return True


class VerificationHandler:
    """Verifies writes against the open transactions of which this broker is the coordinator."""

    def __init__(self, transactions: TxnCoordinator) -> None:
        self._transactions = transactions

    def verify(self, call: Call, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        """Answer the AddPartitionsToTxn of another broker, which only asks whether partitions are
        in a transaction."""
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=asked.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=self._refusal(
                                        asked, TopicPartition(topic.name, index)
                                    ),
                                )
                                for index in topic.partitions
                            ],
                        )
                        for topic in asked.topics
                    ],
                )
                for asked in request.transactions
            ]
        )

    def _refusal(
        self, asked: AddPartitionsToTxnTransaction, partition: TopicPartition
    ) -> ErrorCode:
        if not asked.verify_only:
            return ErrorCode.INVALID_REQUEST
        try:
            # `readable` refuses if this coordinator was possibly replaced. Otherwise it could
            # confirm a transaction that its successor has ended.
            self._transactions.readable(asked.transactional_id).refuse_outsider(
                asked.transactional_id, asked.producer_id, asked.producer_epoch, partition
            )
        except ApiError as error:
            return error.code
        return ErrorCode.NONE


def transaction_handlers(
    replicas: Replicas,
    markers: Markers,
    transactions: TxnCoordinator,
    clock: Clock,
) -> dict[ApiKey, Handler]:
    """Return the handlers for the BROKER listener."""
    once = MarkerHandler(replicas, clock, markers.write_once)
    newest = NewestLinks()

    def write_txn_markers(call: Call, request: WriteTxnMarkersRequest) -> None:
        if newest.admits(call):
            once.write_txn_markers(call, request)
        else:
            call.hang_up("a newer link of this broker carries its markers")

    return {
        ApiKey.ADD_PARTITIONS_TO_TXN: VerificationHandler(transactions).verify,
        ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
    }
