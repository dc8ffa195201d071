"""Finds and ends hanging transactions, which are open in a partition but unknown to their
coordinator."""

from collections.abc import Collection
from dataclasses import dataclass

from protocol.client.cluster import Cluster
from protocol.client.errors import ClientError
from protocol.client.producer import Producer
from protocol.client.topic_details import describe_topics, list_topics
from protocol.client.transaction_admin import (
    ProducerDetails,
    TransactionDetails,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from protocol.errors import ApiError, ErrorCode
from protocol.types import TopicPartition

TRANSACTION_STATES_OF_ITS_OWN = ("Empty", "Dead", "CompleteAbort", "CompleteCommit")


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """One open transaction of a partition that no coordinator will end."""

    tp: TopicPartition
    producer: ProducerDetails


async def partitions_at(
    cluster: Cluster, node_id: int | None, topic: str | None, partition: int | None
) -> list[TopicPartition]:
    """Return the partitions of one topic or all of which this broker has a replica."""
    topics = await (list_topics(cluster) if topic is None else describe_topics(cluster, [topic]))
    return sorted(
        TopicPartition(name, one.partition)
        for name, details in topics.items()
        for one in details.partitions
        if (node_id is None or node_id in one.replicas) and partition in (None, one.partition)
    )


async def find_hanging(
    cluster: Cluster,
    tps: Collection[TopicPartition],
    *,
    open_since_ms: int,
    node_id: int | None = None,
) -> list[HangingTransaction]:
    """Return the transactions that have had no write since a time and that their coordinator does
    not know."""
    answers = await describe_producers(cluster, tps, node_id=node_id)
    candidates = [
        HangingTransaction(tp, producer)
        for tp, answer in sorted(answers.items())
        if isinstance(answer, list)
        for producer in answer
        if producer.transaction_start_offset is not None
        and producer.last_timestamp_ms < open_since_ms
    ]
    if not candidates:
        return []
    ids = {one.producer.producer_id for one in candidates}
    listed, _ = await list_transactions(cluster, producer_ids=sorted(ids))
    known: dict[int, TransactionDetails] = {}
    for one in listed:
        try:
            details = await describe_transaction(cluster, one.transactional_id)
        except ApiError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            continue
        known[details.producer_id] = details
    return [one for one in candidates if _is_forgotten(one, known.get(one.producer.producer_id))]


def _is_forgotten(one: HangingTransaction, details: TransactionDetails | None) -> bool:
    """Return whether the coordinator has forgotten this transaction and so will not end it."""
    if details is None or details.state in TRANSACTION_STATES_OF_ITS_OWN:
        return True
    return one.tp not in details.partitions


async def force_terminate(cluster: Cluster, transactional_id: str) -> None:
    """Fence the producer of a transactional id, which aborts its open transaction. Raises
    ApiError.
    """
    producer = Producer(cluster, transactional_id=transactional_id)
    await producer.start()
    try:
        await producer.init_transactions(cluster.request_timeout_ms)
    finally:
        await producer.close()


def words_of(error: ApiError | ClientError) -> str:
    """Return the text of an error, as the broker has sent it."""
    return error.message if isinstance(error, ApiError) else str(error)
