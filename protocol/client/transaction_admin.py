"""Administration of transactions: list and describe them, and abort a hanging transaction."""

import asyncio
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from protocol.client.cluster import CoordinatorType
from protocol.client.errors import ClientError, raise_for
from protocol.errors import ApiError, ErrorCode
from protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducersTopicRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from protocol.types import TopicPartition

if TYPE_CHECKING:
    from protocol.client.cluster import Cluster


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """One transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDetails:
    """One transactional id. `start_time_ms` is None if no transaction is open."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerDetails:
    """One producer that a partition remembers.

    `transaction_start_offset` is None if it has no open transaction.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


async def list_transactions(
    cluster: "Cluster",
    *,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    timeout_ms: int | None = None,
) -> tuple[list[TransactionListing], dict[int, ApiError | ClientError]]:
    """Return the transactional ids of all coordinators, and the errors of brokers without an
    answer."""
    current = await cluster.metadata((), refresh=True, timeout_ms=timeout_ms)
    request = ListTransactionsRequest(
        state_filters=list(states), producer_id_filters=list(producer_ids)
    )

    async def ask(node_id: int) -> list[TransactionListing] | ApiError | ClientError:
        async def attempt(left_ms: int) -> list[TransactionListing]:
            response: ListTransactionsResponse = await cluster.request(
                node_id, request, timeout_ms=left_ms
            )
            raise_for(response.error_code)
            return [
                TransactionListing(
                    one.transactional_id, node_id, one.producer_id, one.transaction_state
                )
                for one in response.transaction_states
            ]

        try:
            return await cluster.repeat(attempt, timeout_ms)
        except (ApiError, ClientError) as error:
            return error

    answers = await asyncio.gather(*map(ask, current.brokers))
    found: list[TransactionListing] = []
    failures: dict[int, ApiError | ClientError] = {}
    for node_id, answer in zip(current.brokers, answers, strict=True):
        if isinstance(answer, list):
            found.extend(answer)
        else:
            failures[node_id] = answer
    return sorted(found, key=lambda one: one.transactional_id), failures


async def describe_transaction(
    cluster: "Cluster", transactional_id: str, *, timeout_ms: int | None = None
) -> TransactionDetails:
    """Describe one transactional id. Raises ApiError TRANSACTIONAL_ID_NOT_FOUND if
    it is unknown.
    """

    async def attempt(left_ms: int) -> TransactionDetails:
        node_id = await cluster.coordinator(
            transactional_id, key_type=CoordinatorType.TRANSACTION, timeout_ms=left_ms
        )
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        response: DescribeTransactionsResponse = await cluster.request(
            node_id, request, timeout_ms=left_ms
        )
        one = response.transaction_states[0]
        if ErrorCode.of(one.error_code).retriable:
            cluster.forget_coordinator(transactional_id, CoordinatorType.TRANSACTION)
        raise_for(one.error_code)
        return TransactionDetails(
            one.transactional_id,
            node_id,
            one.producer_id,
            one.producer_epoch,
            one.transaction_state,
            one.transaction_timeout_ms,
            None if one.transaction_start_time_ms < 0 else one.transaction_start_time_ms,
            tuple(
                TopicPartition(topic.topic, partition)
                for topic in one.topics
                for partition in topic.partitions
            ),
        )

    return await cluster.repeat(attempt, timeout_ms)


async def describe_producers(
    cluster: "Cluster",
    tps: Collection[TopicPartition],
    *,
    node_id: int | None = None,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, list[ProducerDetails] | ApiError | ClientError]:
    """Return the producers that partitions remember. Ask the partitions' leaders, or one broker."""
    results: dict[TopicPartition, list[ProducerDetails] | ApiError | ClientError] = {}
    by_node: dict[int, list[TopicPartition]] = defaultdict(list)
    for tp in tps:
        try:
            at = node_id if node_id is not None else await cluster.leader(tp, timeout_ms=timeout_ms)
            by_node[at].append(tp)
        except (ApiError, ClientError) as error:
            results[tp] = error
    for at, own in by_node.items():
        results.update(await _producers_at(cluster, at, own, timeout_ms))
    return results


async def _producers_at(
    cluster: "Cluster", node_id: int, tps: list[TopicPartition], timeout_ms: int | None
) -> dict[TopicPartition, list[ProducerDetails] | ApiError | ClientError]:
    by_topic: dict[str, list[int]] = defaultdict(list)
    for tp in tps:
        by_topic[tp.topic].append(tp.partition)
    request = DescribeProducersRequest(
        topics=[
            ProducersTopicRequest(name=name, partition_indexes=ps) for name, ps in by_topic.items()
        ]
    )
    try:
        response: DescribeProducersResponse = await cluster.request(
            node_id, request, timeout_ms=timeout_ms
        )
    except ClientError as error:
        return dict.fromkeys(tps, error)
    found: dict[TopicPartition, list[ProducerDetails] | ApiError | ClientError] = {}
    for topic in response.topics:
        for one in topic.partitions:
            code = ErrorCode.of(one.error_code)
            found[TopicPartition(topic.name, one.partition_index)] = (
                ApiError(code, one.error_message or code.description)
                if code
                else [
                    ProducerDetails(
                        state.producer_id,
                        state.producer_epoch,
                        state.coordinator_epoch,
                        state.last_sequence,
                        state.last_timestamp,
                        None
                        if state.current_txn_start_offset < 0
                        else state.current_txn_start_offset,
                    )
                    for state in one.active_producers
                ]
            )
    return found


async def abort_transaction(
    cluster: "Cluster",
    tp: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timeout_ms: int | None = None,
) -> None:
    """Write an abort marker into one partition, for a transaction that its coordinator has lost.

    The partition's leader does not check the marker, so it would split a live transaction in two.
    Raises ApiError.
    """

    async def attempt(left_ms: int) -> None:
        node_id = await cluster.leader(tp, timeout_ms=left_ms)
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    transaction_result=False,
                    topics=[
                        WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])
                    ],
                    coordinator_epoch=coordinator_epoch,
                )
            ]
        )
        response: WriteTxnMarkersResponse = await cluster.request(
            node_id, request, timeout_ms=left_ms
        )
        code = response.markers[0].topics[0].partitions[0].error_code
        if ErrorCode.of(code).refreshes_metadata:
            cluster.forget_leader(tp)
        raise_for(code)

    await cluster.repeat(attempt, timeout_ms)
