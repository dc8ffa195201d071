"""Handles the administration of transactions: list and describe transactions and producers."""

from __future__ import annotations

from broker.coordinators.txn_state import Transaction, TxnState
from broker.metadata.names import check_topic_name
from broker.replicas.replicas import Replicas
from broker.sessions.call import Call
from broker.shards.transactions import TxnCoordinator
from broker.world import Clock
from protocol.errors import ApiError, ErrorCode
from protocol.messages.transactions import (
    ActiveProducerState,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsTransactionState,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ListTransactionsTransactionState,
    PartitionResponse,
    TopicData,
    TopicResponse,
)
from protocol.security.acl import AclOperation, AclResource

KNOWN_STATES = frozenset(state.title for state in TxnState) | {"PrepareEpochFence"}
"""Kafka's names of transaction states. The last one is a state of Kafka that is never in a log."""


class TransactionAdminHandlers:
    """Handles DescribeProducers, DescribeTransactions and ListTransactions."""

    def __init__(self, replicas: Replicas, transactions: TxnCoordinator, clock: Clock) -> None:
        self._replicas = replicas
        self._transactions = transactions
        self._clock = clock

    def describe_producers(
        self, call: Call, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        """Return the producers that each requested partition's log remembers.

        A repeated partition is answered once.
        """
        asked: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=name, partitions=[self._producers(call, name, index) for index in indexes]
                )
                for name, indexes in asked.items()
            ]
        )

    def _producers(self, call: Call, topic: str, index: int) -> PartitionResponse:
        answer = PartitionResponse(partition_index=index)
        try:
            if not call.may_read_topic(topic):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            check_topic_name(topic)
            log = self._replicas.find(topic, index).log
        except ApiError as error:
            answer.error_code = error.code
            answer.error_message = error.message
            return answer
        answer.active_producers = [
            ActiveProducerState(
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                last_sequence=one.last_sequence,
                last_timestamp=one.last_timestamp_ms,
                coordinator_epoch=one.coordinator_epoch,
                current_txn_start_offset=one.current_txn_start_offset,
            )
            for one in log.producer_state.active()
        ]
        return answer

    def describe_transactions(
        self, call: Call, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse:
        """Return the requested transactional ids, each once and with its own error.

        Topics that the client may not see are left out.
        """
        answers = []
        for transactional_id in dict.fromkeys(request.transactional_ids):
            try:
                if not transactional_id:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
                if not _may_describe_id(call, transactional_id):
                    raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                shard = self._transactions.readable(transactional_id)
                answers.append(_described(call, shard.described(transactional_id)))
            except ApiError as error:
                answers.append(
                    DescribeTransactionsTransactionState(
                        error_code=error.code, transactional_id=transactional_id
                    )
                )
        return DescribeTransactionsResponse(transaction_states=answers)

    def list_transactions(
        self, call: Call, request: ListTransactionsRequest
    ) -> ListTransactionsResponse:
        """Return the transactional ids that match the filters and that the client may see.

        The request is refused while a shard is loading.
        """
        if self._transactions.is_loading:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        now_ms = self._clock.now_ms()
        return ListTransactionsResponse(
            unknown_state_filters=[one for one in request.state_filters if one not in KNOWN_STATES],
            transaction_states=[
                ListTransactionsTransactionState(
                    transactional_id=one.transactional_id,
                    producer_id=one.producer_id,
                    transaction_state=one.state.title,
                )
                for shard in self._transactions.shards()
                for one in shard.listed(
                    request.state_filters,
                    request.producer_id_filters,
                    request.duration_filter,
                    now_ms,
                )
                if _may_describe_id(call, one.transactional_id, is_logged=False)
            ],
        )


def _may_describe_id(call: Call, transactional_id: str, *, is_logged: bool = True) -> bool:
    return call.may(
        AclOperation.DESCRIBE, AclResource.TRANSACTIONAL_ID, transactional_id, is_logged=is_logged
    )


def _described(call: Call, one: Transaction) -> DescribeTransactionsTransactionState:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(one.partitions):
        if call.may_describe_topic(topic, is_logged=False):
            topics.setdefault(topic, []).append(partition)
    return DescribeTransactionsTransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=one.transactional_id,
        transaction_state=one.state.title,
        transaction_timeout_ms=one.timeout_ms,
        transaction_start_time_ms=one.start_ms,
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=partitions) for topic, partitions in topics.items()
        ],
    )
