"""Handles TxnOffsetCommit: the offsets that a producer commits with its transaction."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.handlers.rights import readable_only, refuse_unreadable
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
from broker.world import Clock
from protocol.errors import ApiError, ErrorCode
from protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_SINCE = 2
"""The first version of TxnOffsetCommit whose clients know COORDINATOR_LOAD_IN_PROGRESS."""


class TxnOffsetHandlers:
    """Handles TxnOffsetCommit."""

    def __init__(self, groups: GroupCoordinator, verifier: Verifier, clock: Clock) -> None:
        self._groups = groups
        self._verifier = verifier
        self._clock = clock

    def txn_offset_commit(self, call: Call, request: TxnOffsetCommitRequest) -> None:
        """Handle TxnOffsetCommit.

        The offsets are written now, and take effect when the transaction commits.
        """

        def refused(error: ApiError) -> None:
            code = self._groups.told(_offsets_code(call, error))
            if code in OF_A_PRODUCER and not self._groups.may_tell:
                code = ErrorCode.NOT_COORDINATOR
            response = _offsets_refused(request, code)
            refuse_unreadable(call, response.topics)
            call.answer(response)

        if not call.may_use_transactional_id(request.transactional_id):
            denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            call.answer(_offsets_refused(request, denied))
            return
        if not call.may_use_group(request.group_id):
            call.answer(_offsets_refused(request, ErrorCode.GROUP_AUTHORIZATION_FAILED))
            return
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
        outcome = loaded.state.commit_in_transaction(
            request, self._clock.now_ms(), readable_only(call, self._groups.topic_with)
        )
        refuse_unreadable(call, outcome.reply.topics)
        producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        self._groups.submit(loaded, outcome, call.answer, refused, producer)


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
