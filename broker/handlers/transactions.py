"""Handles the transactional requests of producers for their coordinator."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from broker.cluster.metadata import Metadata
from broker.controller.outcome import CreateOwnTopic
from broker.coordinators.txn_state import Expected, Transaction, TxnState
from broker.metadata.image import OFFSETS_TOPIC
from broker.produce.batch_validator import OF_A_PRODUCER
from broker.produce.verification import (
    NO_PROOFS,
    Owner,
    Proofs,
    Verifier,
    needs_proof,
    prove,
    refuse_outsider,
)
from broker.sessions.call import Call
from broker.shards.groups import GroupCoordinator
from broker.shards.loaded_shard import ProducerEpoch
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
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from protocol.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

FENCED_SINCE = 2
INIT_FENCED_SINCE = 4
"""The first version of each API whose clients know PRODUCER_FENCED.

Older clients get INVALID_PRODUCER_EPOCH.
"""

LOADING_SINCE = 2
"""The first version of TxnOffsetCommit whose clients know COORDINATOR_LOAD_IN_PROGRESS."""


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
        verifier: Verifier,
    ) -> None:
        self._producer_ids = producer_ids
        self._transactions = transactions
        self._clock = clock
        self._metadata = metadata
        self._groups = groups
        self._verifier = verifier

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
        bad = {one: code for one in wanted if (code := self._refusal(one))}
        if bad:
            return _added(request, lambda one: bad.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED))
        self._add(
            request.v3_and_below_transactional_id,
            request.v3_and_below_producer_id,
            request.v3_and_below_producer_epoch,
            wanted,
            lambda error: call.answer(
                _added(request, lambda _: ErrorCode.NONE if error is None else _code(call, error))
            ),
        )
        return None

    def _refusal(self, wanted: TopicPartition) -> ErrorCode:
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

    def txn_offset_commit(self, call: Call, request: TxnOffsetCommitRequest) -> None:
        """Handle TxnOffsetCommit.

        The offsets are written now, and count once the transaction commits.
        """

        def refused(error: ApiError) -> None:
            code = self._groups.told(_offsets_code(call, error))
            if code in OF_A_PRODUCER and not self._groups.may_tell:
                code = ErrorCode.NOT_COORDINATOR
            call.answer(_offsets_refused(request, code))

        owner = Owner(request.transactional_id, request.producer_id, request.producer_epoch)

        def commit(proofs: Proofs) -> None:
            try:
                self._commit_offsets(call, request, owner, proofs, refused)
            except ApiError as error:
                refused(error)

        def proven(proofs: Proofs) -> None:
            call.session.attempt(partial(commit, proofs))

        try:
            replica = self._groups.find(request.group_id).replica
        except ApiError as error:
            refused(error)
            return
        if needs_proof(self._verifier, owner, replica):
            prove(self._verifier, owner, [replica], proven)
        else:
            commit(NO_PROOFS)

    def _commit_offsets(
        self,
        call: Call,
        request: TxnOffsetCommitRequest,
        owner: Owner,
        proofs: Proofs,
        refused: Callable[[ApiError], None],
    ) -> None:
        """Write the offsets of a TxnOffsetCommit if the transaction is open.

        Raises ApiError if nothing was written.
        """
        loaded = self._groups.find(request.group_id)
        refuse_outsider(self._verifier, owner, loaded.replica, proofs)
        outcome = self._groups.shard(request.group_id).commit_in_transaction(
            request, self._clock.now_ms(), self._groups.topic_with
        )
        producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        self._groups.submit(loaded, outcome, call.answer, refused, producer)


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


def with_topic(metadata: Metadata, call: Call, name: str, then: Callable[[], None]) -> None:
    """Call `then` once an internal topic exists. A missing topic is created."""
    if name in metadata.image.topics:
        then()
    else:
        metadata.submit(
            CreateOwnTopic(name),
            lambda _: then(),
            lambda _: then(),
            call.session.peer_host,
        )


def _offsets_code(call: Call, error: ApiError) -> ErrorCode:
    """Convert an error to a code that a producer expects from the group coordinator."""
    code = error.code
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
        # Kafka's own producer stops at this error code if the code comes from a coordinator.
        return ErrorCode.NOT_COORDINATOR
    if code is ErrorCode.CONCURRENT_TRANSACTIONS:
        # This transaction itself is ending. The producer's next request will get the result.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and call.version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


def _offsets_refused(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index, error_code=code
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
