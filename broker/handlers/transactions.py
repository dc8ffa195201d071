"""Handles the transactional requests of producers for their coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from broker.cluster.metadata import Metadata
from broker.coordinators.txn_state import Expected, Transaction, TxnState
from broker.handlers.internal_topics import with_topic
from broker.metadata.image import OFFSETS_TOPIC
from broker.sessions.call import Call
from broker.shards.groups import GroupCoordinator
from broker.shards.producer_ids import ProducerIds
from broker.shards.transactions import TxnCoordinator
from broker.world import Clock
from protocol.errors import ApiError, ErrorCode
from protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
)
from protocol.security.acl import AclOperation, AclResource
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

FENCED_SINCE = 2
INIT_FENCED_SINCE = 4
"""The first version of each API whose clients know PRODUCER_FENCED.

Older clients get INVALID_PRODUCER_EPOCH.
"""


def _code(call: Call, error: ApiError, fenced_since: int = FENCED_SINCE) -> ErrorCode:
    if error.code is ErrorCode.PRODUCER_FENCED and call.version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


class TransactionHandlers:
    """Handles the requests that begin, extend and end transactions."""

    def __init__(
        self,
        producer_ids: ProducerIds,
        transactions: TxnCoordinator,
        clock: Clock,
        metadata: Metadata,
        groups: GroupCoordinator,
    ) -> None:
        self._producer_ids = producer_ids
        self._transactions = transactions
        self._clock = clock
        self._metadata = metadata
        self._groups = groups

    def init_producer_id(
        self, call: Call, request: InitProducerIdRequest
    ) -> InitProducerIdResponse | None:
        """Return a producer id and an epoch.

        Without a transactional id the producer id is always new, because the producer's old id has
        no state.
        """

        def refused(error: ApiError) -> None:
            call.answer(
                InitProducerIdResponse(
                    error_code=_code(call, error, INIT_FENCED_SINCE),
                    producer_id=NO_PRODUCER_ID,
                    producer_epoch=NO_PRODUCER_EPOCH,
                )
            )

        def given(producer_id: int) -> None:
            call.answer(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))

        try:
            _refuse_unauthorised(call, request.transactional_id)
            if (request.producer_id == NO_PRODUCER_ID) != (
                request.producer_epoch == NO_PRODUCER_EPOCH
            ):
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    "the request has only one of producer id and producer epoch: send both or "
                    "neither",
                )
            if request.transactional_id is None:
                self._producer_ids.take(given, refused)
            else:
                self._begin(call, request, request.transactional_id, refused)
        except ApiError as error:
            refused(error)
        return None

    def _begin(
        self,
        call: Call,
        request: InitProducerIdRequest,
        transactional_id: str,
        refused: Callable[[ApiError], None],
    ) -> None:
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        expected: Expected = (request.producer_id, request.producer_epoch)
        if expected == (NO_PRODUCER_ID, NO_PRODUCER_EPOCH):
            expected = None
        elif min(request.producer_id, request.producer_epoch) < 0:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"found producer id {request.producer_id} and producer epoch "
                f"{request.producer_epoch}, expected both to be at least 0, or both to be -1",
            )

        def moved(transactions: Sequence[Transaction]) -> None:
            (one,) = transactions
            if one.state is not TxnState.EMPTY:
                # The open transaction is being aborted. The producer must try again.
                refused(ApiError(ErrorCode.CONCURRENT_TRANSACTIONS))
                return
            call.answer(
                InitProducerIdResponse(
                    producer_id=one.producer_id, producer_epoch=one.producer_epoch
                )
            )

        def decide(new_producer_id: int = NO_PRODUCER_ID) -> None:
            self._transactions.decide(
                transactional_id,
                lambda shard: shard.init_producer_id(
                    transactional_id,
                    request.transaction_timeout_ms,
                    expected,
                    new_producer_id,
                    self._clock.now_ms(),
                ),
                moved,
                refused,
            )

        # Check the timeout before the coordinator is located, because every coordinator would
        # refuse it.
        self._transactions.refuse_timeout(request.transaction_timeout_ms)
        shard = self._transactions.shard(transactional_id)
        if shard.wants_producer_id(transactional_id, expected):
            self._producer_ids.take(decide, refused)
        else:
            decide()

    def add_partitions_to_txn(
        self, call: Call, request: AddPartitionsToTxnRequest
    ) -> AddPartitionsToTxnResponse | None:
        """Handle AddPartitionsToTxn: add all of the partitions, or none of them."""
        wanted = [
            TopicPartition(topic.name, index)
            for topic in request.v3_and_below_topics
            for index in topic.partitions
        ]
        transactional_id = request.v3_and_below_transactional_id
        if not call.may_use_transactional_id(transactional_id):
            return _added(request, lambda _: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        bad = {one: code for one in wanted if (code := self._refusal(call, one))}
        if bad:
            return _added(request, lambda one: bad.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED))
        self._add(
            transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            wanted,
            lambda error: call.answer(
                _added(request, lambda _: ErrorCode.NONE if error is None else _code(call, error))
            ),
        )
        return None

    def _refusal(self, call: Call, wanted: TopicPartition) -> ErrorCode:
        if not call.may(AclOperation.WRITE, AclResource.TOPIC, wanted.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        topic = self._metadata.image.topics.get(wanted.topic)
        if topic is None or not 0 <= wanted.partition < len(topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # As in Kafka, only the coordinators write to the internal topics.
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if topic.is_internal else ErrorCode.NONE

    def _add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        answer: Callable[[ApiError | None], None],
    ) -> None:
        self._transactions.decide(
            transactional_id,
            lambda shard: shard.add_partitions(
                transactional_id, producer_id, producer_epoch, partitions, self._clock.now_ms()
            ),
            lambda _: answer(None),
            answer,
        )

    def add_offsets_to_txn(
        self, call: Call, request: AddOffsetsToTxnRequest
    ) -> AddOffsetsToTxnResponse | None:
        """Handle AddOffsetsToTxn: add the group's partition of the offsets topic to the
        transaction."""

        def answer(error: ApiError | None) -> None:
            code = ErrorCode.NONE if error is None else _code(call, error)
            call.answer(AddOffsetsToTxnResponse(error_code=code))

        def add() -> None:
            try:
                # Another broker can be the group's coordinator. It asks this broker before it
                # writes to its partition.
                partition = self._groups.partition_of(request.group_id)
            except ApiError as error:
                answer(error)
                return
            self._add(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                [partition],
                answer,
            )

        if not call.may_use_transactional_id(request.transactional_id):
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not call.may_use_group(request.group_id):
            raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        # The offsets topic does not exist if no group has ever committed.
        with_topic(self._metadata, call, OFFSETS_TOPIC, add)
        return None

    def end_txn(self, call: Call, request: EndTxnRequest) -> None:
        """Handle EndTxn.

        The answer is sent when the outcome is durable. The markers are written afterwards.
        """

        def answer(error: ApiError | None) -> None:
            code = ErrorCode.NONE if error is None else _code(call, error)
            call.answer(EndTxnResponse(error_code=code))

        if not call.may_use_transactional_id(request.transactional_id):
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        self._transactions.decide(
            request.transactional_id,
            lambda shard: shard.end(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                self._clock.now_ms(),
                is_commit=request.committed,
            ),
            lambda _: answer(None),
            answer,
        )


def _refuse_unauthorised(call: Call, transactional_id: str | None) -> None:
    """Raise ApiError if the client may not get a producer id.

    Without a transactional id it needs IDEMPOTENT_WRITE, or WRITE on any topic (KIP-679).
    """
    if transactional_id is not None:
        if not call.may_use_transactional_id(transactional_id):
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not (
        call.may_with_cluster(AclOperation.IDEMPOTENT_WRITE, is_logged=False)
        or call.session.rights.allows_any(AclOperation.WRITE, AclResource.TOPIC)
    ):
        call.need_of_cluster(AclOperation.IDEMPOTENT_WRITE)


def _added(
    request: AddPartitionsToTxnRequest, code_of: Callable[[TopicPartition], ErrorCode]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index,
                        partition_error_code=code_of(TopicPartition(topic.name, index)),
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )
