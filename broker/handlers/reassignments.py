"""Handles AlterPartitionReassignments and ListPartitionReassignments (KIP-455).

The controller decides reassignments. A large request is sent to the controller in slices, one after
the other, because one decision is one batch of the metadata log, and the size of a batch is
limited. The reassignments in progress are listed from the image.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from broker.cluster.metadata import Metadata
from broker.controller.active import BATCH_BYTES_MAX
from broker.metadata.image import MetadataImage
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.elections import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from protocol.security.acl import AclOperation

SLICE_BYTES_MAX = BATCH_BYTES_MAX // 8
"""The largest size in bytes of the records of one slice, by the estimates below.

The controller decides a slice in one turn of its loop. A slice has some 300 partitions, so the loop
stays responsive.
"""

RECORD_BYTES, REPLICA_BYTES = 128, 48
"""The largest number of bytes of a partition's record without its replicas, and the number for each
replica: 16 bytes for its directory, and its id in up to six lists."""


class ReassignmentHandlers:
    """Handles requests that move replicas or list the moves."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def alter_partition_reassignments(
        self, call: Call, request: AlterPartitionReassignmentsRequest
    ) -> None:
        """Start, replace or cancel reassignments. Each partition has its own answer."""
        slices = deque(sliced(request, self._metadata.image))
        answers: list[ReassignableTopicResponse] = []
        code = ErrorCode.NONE

        def submit_next() -> None:
            if slices:
                self._metadata.submit(slices[0], answered, refused, *call.asker)
                return
            call.answer(
                AlterPartitionReassignmentsResponse(
                    allow_replication_factor_change=request.allow_replication_factor_change,
                    error_code=code,
                    responses=list(_joined(answers)),
                )
            )

        def answered(response: AlterPartitionReassignmentsResponse) -> None:
            if response.error_code:
                # Another node refused the whole slice.
                refused(ApiError(ErrorCode.of(response.error_code), response.error_message or ""))
                return
            slices.popleft()
            answers.extend(response.responses)
            submit_next()

        def refused(error: ApiError) -> None:
            nonlocal code
            if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                code = error.code
            # The controller would refuse the other slices too, after as long a wait for each.
            for one in slices:
                answers.extend(_refused(one, error))
            slices.clear()
            submit_next()

        submit_next()

    def list_partition_reassignments(
        self, call: Call, request: ListPartitionReassignmentsRequest
    ) -> ListPartitionReassignmentsResponse:
        """Return the reassignments in progress: all, or those of the named partitions."""
        call.need_of_cluster(AclOperation.DESCRIBE)
        return ListPartitionReassignmentsResponse(
            topics=list(_under_way(request, self._metadata.image))
        )


def sliced(
    request: AlterPartitionReassignmentsRequest, image: MetadataImage
) -> Iterator[AlterPartitionReassignmentsRequest]:
    """Yield the request in slices whose records fit into one batch each."""
    topics: list[ReassignableTopic] = []
    size_bytes = 0
    for topic in request.topics:
        topics.append(ReassignableTopic(name=topic.name))
        for asked in topic.partitions:
            needed_bytes = _record_bytes(topic.name, asked, image)
            if size_bytes and size_bytes + needed_bytes > SLICE_BYTES_MAX:
                yield _slice(request, topics)
                topics, size_bytes = [ReassignableTopic(name=topic.name)], 0
            topics[-1].partitions.append(asked)
            size_bytes += needed_bytes
    yield _slice(request, topics)


def _slice(
    request: AlterPartitionReassignmentsRequest, topics: list[ReassignableTopic]
) -> AlterPartitionReassignmentsRequest:
    return AlterPartitionReassignmentsRequest(
        timeout_ms=request.timeout_ms,
        allow_replication_factor_change=request.allow_replication_factor_change,
        topics=topics,
    )


def _record_bytes(name: str, asked: ReassignablePartition, image: MetadataImage) -> int:
    """Return an upper bound of the size of the record that one partition of a request causes."""
    topic = image.topics.get(name)
    count = len(asked.replicas or ())
    if topic is not None and 0 <= asked.partition_index < len(topic.partitions):
        count += len(topic.partitions[asked.partition_index].replicas)
    return RECORD_BYTES + REPLICA_BYTES * count


def _refused(
    request: AlterPartitionReassignmentsRequest, error: ApiError
) -> Iterator[ReassignableTopicResponse]:
    for topic in request.topics:
        yield ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=one.partition_index,
                    error_code=error.code,
                    error_message=error.message,
                )
                for one in topic.partitions
            ],
        )


def _joined(answers: Iterable[ReassignableTopicResponse]) -> Iterator[ReassignableTopicResponse]:
    """Yield the answers of slices. A topic that two slices have in common is yielded once."""
    last: ReassignableTopicResponse | None = None
    for one in answers:
        if last is not None and last.name == one.name:
            last.partitions.extend(one.partitions)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last


def _under_way(
    request: ListPartitionReassignmentsRequest, image: MetadataImage
) -> Iterator[OngoingTopicReassignment]:
    named = None
    if request.topics is not None:
        named = {(one.name, number) for one in request.topics for number in one.partition_indexes}
    for topic_id, numbers in image.moving.items():
        topic = image.topic_by_id(topic_id)
        assert topic is not None, "a deleted topic has no reassignments"
        found = [
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(topic.partitions[number].replicas),
                adding_replicas=list(topic.partitions[number].adding_replicas),
                removing_replicas=list(topic.partitions[number].removing_replicas),
            )
            for number in numbers
            if named is None or (topic.name, number) in named
        ]
        if found:
            yield OngoingTopicReassignment(name=topic.name, partitions=found)
