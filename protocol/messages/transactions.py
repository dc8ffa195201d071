"""The messages of transactions: requests of producers, markers, and queries of administrators.

This module has only data classes.
"""

from protocol.messages.api import ApiKey
from protocol.wire.schema import Message, Struct, array, boolean, int16, int32, int64, string


class AddPartitionsToTxnTopic(Struct):
    """The partitions of one topic that the transaction will write to."""

    name: str = string()
    partitions: list[int] = array(int32)


class AddPartitionsToTxnTransaction(Struct):
    """One transaction. `verify_only` asks whether the partitions are already in the transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    verify_only: bool = boolean()
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic)


class AddPartitionsToTxnRequest(
    Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 4), flexible=3
):
    """Partitions that join the transaction. Version 4 is used between brokers only (KIP-890)."""

    transactions: list[AddPartitionsToTxnTransaction] = array(
        AddPartitionsToTxnTransaction, since=4
    )
    v3_and_below_transactional_id: str = string(until=3)
    v3_and_below_producer_id: int = int64(until=3)
    v3_and_below_producer_epoch: int = int16(until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, until=3)


class AddPartitionsToTxnPartitionResult(Struct):
    """The result for one partition of an AddPartitionsToTxn request."""

    partition_index: int = int32()
    partition_error_code: int = int16()


class AddPartitionsToTxnTopicResult(Struct):
    """One topic of an AddPartitionsToTxnResponse."""

    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


class AddPartitionsToTxnResult(Struct):
    """The result for one transaction of an AddPartitionsToTxn request."""

    transactional_id: str = string()
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult)


class AddPartitionsToTxnResponse(
    Message, api_key=ApiKey.ADD_PARTITIONS_TO_TXN, versions=(0, 4), flexible=3
):
    """The result of an AddPartitionsToTxn request by partition; none is added unless all are."""

    throttle_time_ms: int = int32()
    error_code: int = int16(since=4, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = array(
        AddPartitionsToTxnResult, since=4
    )
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, until=3
    )


class AddOffsetsToTxnRequest(
    Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 3), flexible=3
):
    """A group whose offsets will be committed in the transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(
    Message, api_key=ApiKey.ADD_OFFSETS_TO_TXN, versions=(0, 3), flexible=3
):
    """The error code that tells whether the group's partition of the offsets topic joined the
    transaction."""

    throttle_time_ms: int = int32()
    error_code: int = int16()


class EndTxnRequest(Message, api_key=ApiKey.END_TXN, versions=(0, 3), flexible=3):
    """Commit or abort a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, api_key=ApiKey.END_TXN, versions=(0, 3), flexible=3):
    """The error code that tells whether the outcome is decided.

    The markers follow automatically.
    """

    throttle_time_ms: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopic(Struct):
    """The partitions of one topic that get the marker."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class WritableTxnMarker(Struct):
    """The marker of one transaction. `transaction_result` True commits."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()


class WriteTxnMarkersRequest(
    Message, api_key=ApiKey.WRITE_TXN_MARKERS, versions=(1, 1), flexible=1
):
    """Markers to write into partitions that the receiver leads."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """The result for one partition of a WriteTxnMarkers request."""

    partition_index: int = int32()
    error_code: int = int16()


class WritableTxnMarkerTopicResult(Struct):
    """One topic of a WriteTxnMarkersResponse."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """The results for the markers of one producer."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


class WriteTxnMarkersResponse(
    Message, api_key=ApiKey.WRITE_TXN_MARKERS, versions=(1, 1), flexible=1
):
    """The result of a WriteTxnMarkers request by producer and partition."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)


class TxnOffsetCommitRequestPartition(Struct):
    """The offset to commit for one partition: the next offset to read."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32(since=2, default=-1, ignorable=True)
    committed_metadata: str | None = string(nullable=0)


class TxnOffsetCommitRequestTopic(Struct):
    """One topic of a TxnOffsetCommitRequest."""

    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


class TxnOffsetCommitRequest(
    Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 3), flexible=3
):
    """Offsets to commit with the transaction. Version 3 adds the member, to fence a zombie."""

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32(since=3, default=-1)
    member_id: str = string(since=3)
    group_instance_id: str | None = string(since=3, nullable=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponsePartition(Struct):
    """The result for one partition of a TxnOffsetCommit request."""

    partition_index: int = int32()
    error_code: int = int16()


class TxnOffsetCommitResponseTopic(Struct):
    """One topic of a TxnOffsetCommitResponse."""

    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


class TxnOffsetCommitResponse(
    Message, api_key=ApiKey.TXN_OFFSET_COMMIT, versions=(0, 3), flexible=3
):
    """The result of a TxnOffsetCommit request by partition."""

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


class ProducersTopicRequest(Struct):
    """One topic of a DescribeProducersRequest. Kafka's name is TopicRequest."""

    name: str = string()
    partition_indexes: list[int] = array(int32)


class DescribeProducersRequest(
    Message, api_key=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0
):
    """Partitions whose producers are requested."""

    topics: list[ProducersTopicRequest] = array(ProducersTopicRequest)


class ActiveProducerState(Struct):
    """One producer; -1 for no sequence, time or open transaction. Kafka's name is ProducerState."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


class PartitionResponse(Struct):
    """The producers of one partition."""

    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=0, default=None)
    active_producers: list[ActiveProducerState] = array(ActiveProducerState)


class TopicResponse(Struct):
    """One topic of a DescribeProducersResponse."""

    name: str = string()
    partitions: list[PartitionResponse] = array(PartitionResponse)


class DescribeProducersResponse(
    Message, api_key=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), flexible=0
):
    """The producers by partition."""

    throttle_time_ms: int = int32()
    topics: list[TopicResponse] = array(TopicResponse)


class DescribeTransactionsRequest(
    Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible=0
):
    """Transactional ids to describe."""

    transactional_ids: list[str] = array(string)


class TopicData(Struct):
    """The partitions of one topic in the transaction."""

    topic: str = string()
    partitions: list[int] = array(int32)


class DescribeTransactionsTransactionState(Struct):
    """One transactional id. The start time is -1 if no transaction is open.

    Kafka's name is TransactionState, which ListTransactionsResponse has too.
    """

    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TopicData] = array(TopicData)


class DescribeTransactionsResponse(
    Message, api_key=ApiKey.DESCRIBE_TRANSACTIONS, versions=(0, 0), flexible=0
):
    """The details of the transactional ids."""

    throttle_time_ms: int = int32()
    transaction_states: list[DescribeTransactionsTransactionState] = array(
        DescribeTransactionsTransactionState
    )


class ListTransactionsRequest(
    Message, api_key=ApiKey.LIST_TRANSACTIONS, versions=(0, 1), flexible=0
):
    """Ask for transactional ids.

    Version 1 adds the least duration in milliseconds; -1 means any.
    """

    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64(since=1, default=-1)


class ListTransactionsTransactionState(Struct):
    """One transactional id with its state.

    Kafka's name is TransactionState, which DescribeTransactionsResponse has too.
    """

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(
    Message, api_key=ApiKey.LIST_TRANSACTIONS, versions=(0, 1), flexible=0
):
    """The transactional ids of this coordinator."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[ListTransactionsTransactionState] = array(
        ListTransactionsTransactionState
    )
