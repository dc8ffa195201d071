"""Asks the coordinator of a transaction whether the transaction contains a partition.

The coordinator is this broker or another one. The classes implement
`produce/verification.Verifier`. Another broker gets an AddPartitionsToTxn that adds nothing
(KIP-890), over the connection QUICK.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.produce.verification import Codes, Owner
from broker.sessions.peers import LinkKind, Peers
from broker.shards.transactions import TxnCoordinator
from broker.world import Clock, End
from protocol.errors import ApiError, ErrorCode
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.types import TopicPartition

VERIFY_MS_MAX = 1_000
"""The longest wait for a coordinator's answer. After this time the client must try again.

A coordinator answers from memory. The end of the connection reveals a dead coordinator sooner.
"""


class LocalVerifier:
    """The verifier of a broker without a cluster: this broker coordinates every transaction."""

    def __init__(self, transactions: TxnCoordinator) -> None:
        self._transactions = transactions

    def is_elsewhere(self, transactional_id: str) -> bool:
        return False

    def refuse_outsider(
        self, owner: Owner, partition: TopicPartition, coordinator_epoch: int
    ) -> None:
        transactions = self._transactions
        try:
            loaded = transactions.find(owner.transactional_id)
            if coordinator_epoch > loaded.leader_epoch:
                raise ApiError(
                    ErrorCode.NOT_COORDINATOR,
                    (
                        "another coordinator has already written a marker for this producer: "
                        "find the coordinator again"
                    ),
                )
            loaded.state.refuse_outsider(*owner, partition)
        except ApiError as error:
            raise ApiError(transactions.told(error.code), error.message) from error

    def ask(
        self,
        owner: Owner,
        partitions: Iterable[TopicPartition],
        answered: Callable[[Codes], None],
    ) -> None:
        raise AssertionError("a broker without a cluster has no other broker to ask")


class ClusterVerifier(LocalVerifier):
    """The verifier of a broker in a cluster."""

    def __init__(
        self, transactions: TxnCoordinator, node_id: int, peers: Peers, clock: Clock
    ) -> None:
        super().__init__(transactions)
        self._node_id = node_id
        self._peers = peers
        self._clock = clock

    def is_elsewhere(self, transactional_id: str) -> bool:
        # Ask even if no coordinator is known now, because a transaction that is open in the log can
        # continue.
        return self._transactions.coordinator_id(transactional_id) != self._node_id

    def ask(
        self,
        owner: Owner,
        partitions: Iterable[TopicPartition],
        answered: Callable[[Codes], None],
    ) -> None:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=owner.transactional_id,
            producer_id=owner.producer_id,
            producer_epoch=owner.producer_epoch,
            verify_only=True,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )

        def failed(end: End) -> None:
            answered({})

        self._peers.ask(
            self._transactions.coordinator_id(owner.transactional_id),
            LinkKind.QUICK,
            AddPartitionsToTxnRequest(transactions=[transaction]),
            self._clock.monotonic_ms() + VERIFY_MS_MAX,
            lambda answer: answered(_codes(answer)),
            failed,
        )


def _codes(answer: AddPartitionsToTxnResponse) -> Codes:
    return {
        TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.partition_error_code)
        for transaction in answer.results_by_transaction
        for topic in transaction.topic_results
        for one in topic.results_by_partition
    }
