"""Sends the requests of a transactional producer: for its id, partitions, offsets and outcome.

`transaction_core` decides what is legal and what an answer means. `producer_core` has the batches.
Only one request of a transactional id is under way at a time.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from protocol.client.backoff import Backoff
from protocol.client.cluster import Cluster, CoordinatorType
from protocol.client.connection import ByVersion
from protocol.client.errors import (
    ClientError,
    ConnectionLost,
    ProducerFenced,
    TransactionFailed,
    is_transient,
)
from protocol.client.group import NO_MEMBERSHIP, OffsetAndMetadata
from protocol.client.group_steps import GroupMembership
from protocol.client.producer_core import ProducerCore
from protocol.client.transaction_core import CodeMeaning, TransactionCore, judge
from protocol.errors import ApiError, ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from protocol.types import TopicPartition
from protocol.wire.schema import Message

CONCURRENT_RETRY_MS = (2, 50)
"""The first and longest wait while the markers of the previous transaction are being written.

Usually this takes only a moment, and a producer that commits often waits for it each time.
"""

_FIRST_VERSION_TO_RESUME = 3
_FIRST_VERSION_WITH_MEMBER = 3

Codes = Mapping[TopicPartition | None, ErrorCode]


class TransactionRequests:
    """The requests of one transactional id to its coordinator."""

    def __init__(self, cluster: Cluster, producer: ProducerCore, core: TransactionCore) -> None:
        assert producer.settings.transactional_id is not None
        self.core = core
        self._cluster = cluster
        self._producer = producer
        self._id = producer.settings.transactional_id
        self._turn = asyncio.Lock()

    async def initialize(self, timeout_ms: int | None) -> None:
        """Get the producer id and epoch. This fences every older producer with this transactional
        id.

        If an older producer has an open transaction, it is completed or aborted before this
        returns.
        """
        async with self._turn:
            if self._producer.needs_producer_id:
                await self._init_producer_id(timeout_ms, resume=False)
            self.core.initialized()

    async def join_partitions(self) -> None:
        """Ask the coordinator to add the partitions that have queued records."""
        async with self._turn:
            tps = self.core.joining
            if not tps:
                return
            by_topic: dict[str, list[int]] = defaultdict(list)
            for tp in sorted(tps):
                by_topic[tp.topic].append(tp.partition)
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._id,
                v3_and_below_producer_id=self._producer.producer_id,
                v3_and_below_producer_epoch=self._producer.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=partitions)
                    for name, partitions in by_topic.items()
                ],
            )
            self.core.is_asked = True
            await self._ask(request, _codes_by_partition, None, self.core.on_joined)

    async def add_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_id: str,
        membership: GroupMembership | None,
        timeout_ms: int | None,
    ) -> None:
        """Commit the offsets of a group with the transaction."""
        async with self._turn:
            self.core.check_open()
            if not offsets:
                return
            request = AddOffsetsToTxnRequest(
                transactional_id=self._id,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.producer_epoch,
                group_id=group_id,
            )
            self.core.is_asked = True
            await self._ask(request, _only_code, timeout_ms)
            self.core.is_open_there = True
            await self._ask(
                self._offset_commit(offsets, group_id, membership or NO_MEMBERSHIP),
                _codes_of_offsets,
                timeout_ms,
                coordinator=(group_id, CoordinatorType.GROUP),
            )

    async def end(self, is_commit: bool, timeout_ms: int | None) -> None:
        """End the transaction. All of its records must have a result already.

        If the outcome is unknown, the last error is raised. Then the same end can be requested
        again.
        """
        async with self._turn:
            is_to_be_ended = self.core.is_asked and self.core.is_known_to_coordinator
            if is_to_be_ended and not self.core.is_decided:
                request = EndTxnRequest(
                    transactional_id=self._id,
                    producer_id=self._producer.producer_id,
                    producer_epoch=self._producer.producer_epoch,
                    committed=is_commit,
                )
                may_be_none = not is_commit and not self.core.is_open_there

                def judged(codes: Codes) -> CodeMeaning:
                    if may_be_none and codes[None] == ErrorCode.INVALID_TXN_STATE:
                        return CodeMeaning.DONE
                    return judge(codes[None])

                await self._ask(request, _only_code, timeout_ms, judged)
                self.core.is_decided = True
            if self.core.needs_new_epoch:
                await self._init_producer_id(timeout_ms, resume=True)
            self.core.ended()

    # --- inside -------------------------------------------------------------------------------

    async def _init_producer_id(self, timeout_ms: int | None, *, resume: bool) -> None:
        producer = self._producer
        request = ByVersion(
            ApiKey.INIT_PRODUCER_ID,
            lambda version: (
                InitProducerIdRequest(
                    transactional_id=self._id,
                    transaction_timeout_ms=producer.settings.transaction_timeout_ms,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.producer_epoch,
                )
                if resume and version >= _FIRST_VERSION_TO_RESUME
                else InitProducerIdRequest(
                    transactional_id=self._id,
                    transaction_timeout_ms=producer.settings.transaction_timeout_ms,
                )
            ),
        )
        response: InitProducerIdResponse = await self._ask(request, _only_code, timeout_ms)
        producer.set_producer_id(response.producer_id, response.producer_epoch)

    def _offset_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_id: str,
        membership: GroupMembership,
    ) -> ByVersion:
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
        for tp, at in offsets.items():
            by_topic[tp.topic].append(
                TxnOffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=at.offset,
                    committed_leader_epoch=at.leader_epoch,
                    committed_metadata=at.metadata,
                )
            )

        def build(version: int) -> Message:
            request = TxnOffsetCommitRequest(
                transactional_id=self._id,
                group_id=group_id,
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.producer_epoch,
                topics=[
                    TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                    for name, partitions in by_topic.items()
                ],
            )
            if version >= _FIRST_VERSION_WITH_MEMBER:
                request.generation_id = membership.generation_id
                request.member_id = membership.member_id
                request.group_instance_id = membership.group_instance_id
            return request

        return ByVersion(ApiKey.TXN_OFFSET_COMMIT, build)

    async def _ask(
        self,
        request: Message | ByVersion,
        codes_of: "Callable[[Any], Codes]",
        timeout_ms: int | None,
        judged: "Callable[[Any], CodeMeaning] | None" = None,
        coordinator: tuple[str, CoordinatorType] | None = None,
    ) -> Any:
        """Send a request until the answer is a success, and return it. All these requests can be
        repeated.

        An error changes the state of the core, and raises the exception for that state.
        """
        key, key_type = coordinator or (self._id, CoordinatorType.TRANSACTION)
        wait_ms = self._cluster.request_timeout_ms if timeout_ms is None else timeout_ms
        deadline = self._cluster.now_ms() + wait_ms
        backoff = self._cluster.new_backoff()
        concurrent = Backoff(*CONCURRENT_RETRY_MS, self._cluster.rng)
        while True:
            left_ms = max(1, deadline - self._cluster.now_ms())
            retry_ms = 0
            try:
                node_id = await self._cluster.coordinator(
                    key, key_type=key_type, timeout_ms=left_ms
                )
                response = await self._cluster.request(node_id, request, timeout_ms=left_ms)
            except (ClientError, ApiError) as error:
                self._cluster.forget_coordinator(key, key_type)
                if isinstance(error, ConnectionLost):
                    self.core.unanswered()
                if not is_transient(error):
                    self.core.die(error)
                    raise
                last: Exception = error
            else:
                codes = codes_of(response)
                verdict = (judged or _worst)(codes)
                if verdict is CodeMeaning.DONE:
                    return response
                code = max(codes.values(), key=lambda code: judge(code).value)
                last = ApiError(code)
                if verdict is CodeMeaning.FIND_COORDINATOR:
                    self._cluster.forget_coordinator(key, key_type)
                elif verdict is not CodeMeaning.AGAIN:
                    raise self._refused(verdict, last)
                if code == ErrorCode.CONCURRENT_TRANSACTIONS:
                    retry_ms = concurrent.next_ms()
            retry_ms = retry_ms or backoff.next_ms()
            if self._cluster.now_ms() + retry_ms >= deadline:
                raise last
            await asyncio.sleep(retry_ms / 1000)

    def _refused(self, verdict: CodeMeaning, error: ApiError) -> Exception:
        if verdict is CodeMeaning.ABORT:
            self.core.fail(error)
            return TransactionFailed(f"the transaction can only be aborted: {error}")
        if verdict is CodeMeaning.FENCED:
            fenced = ProducerFenced(f"another producer uses {self._id!r}: {error}")
            self.core.die(fenced)
            return fenced
        self.core.die(error)
        return error


def _worst(codes: Codes) -> CodeMeaning:
    return max((judge(code) for code in codes.values()), key=lambda verdict: verdict.value)


def _only_code(response: Any) -> Codes:
    return {None: ErrorCode.of(response.error_code)}


def _codes_by_partition(response: AddPartitionsToTxnResponse) -> Codes:
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode.of(
            partition.partition_error_code
        )
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    }


def _codes_of_offsets(response: TxnOffsetCommitResponse) -> Codes:
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
        for topic in response.topics
        for partition in topic.partitions
    }
