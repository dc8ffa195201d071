"""Handles requests to create, delete and extend topics: it passes them to the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeGuard

from broker.cluster.metadata import Metadata
from broker.config import InForce
from broker.handlers.mutations import THROTTLED, MutationQuota
from broker.metadata.image import TopicImage
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.security.acl import AclOperation, AclResource
from protocol.types import ZERO_UUID, Uuid

DELETION_DISABLED_SINCE = 3
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
"""The error for a change that could not be written in time.

Every tool knows this error and can retry.
"""


CREATE_STRICT_SINCE, DELETE_STRICT_SINCE, EXTEND_STRICT_SINCE = 6, 5, 3
"""The first versions that know the error THROTTLING_QUOTA_EXCEEDED."""

TopicKey = tuple[str | None, Uuid]
"""The name and the id with which a request names a topic."""


class _PartitionAddition(NamedTuple):
    """One kind of request that adds partitions, and how its answer is built."""

    strict_since: int
    """The first version whose clients know the error for a quota (KIP-599)."""
    answer: Callable[[list[Any]], Any]
    """Makes the answer with these results."""
    results: Callable[[Any], list[Any]]
    """Returns the results of an answer."""
    refusal: Callable[[str, ErrorCode, str], Any]
    """Makes the result of a refused topic from its name, the code and the message."""


CREATED = _PartitionAddition(
    CREATE_STRICT_SINCE,
    lambda results: CreateTopicsResponse(topics=results),
    lambda response: response.topics,
    lambda name, code, message: CreatableTopicResult(
        name=name, error_code=code, error_message=message, configs=[]
    ),
)
EXTENDED = _PartitionAddition(
    EXTEND_STRICT_SINCE,
    lambda results: CreatePartitionsResponse(results=results),
    lambda response: response.results,
    lambda name, code, message: CreatePartitionsTopicResult(
        name=name, error_code=code, error_message=message
    ),
)


class TopicHandlers:
    """Handles CreateTopics, DeleteTopics and CreatePartitions."""

    def __init__(self, metadata: Metadata, settings: InForce) -> None:
        self._metadata = metadata
        self._settings = settings

    def create_topics(self, call: Call, request: CreateTopicsRequest) -> None:
        """Handle CreateTopics. The answer is sent when clients can write to the topics."""

        def counted(topic: CreatableTopic) -> int:
            if topic.assignments or topic.num_partitions > 0:
                return len(topic.assignments) or topic.num_partitions
            return self._settings.config.num_partitions

        self._add_partitions(call, request, CREATED, counted)

    def delete_topics(self, call: Call, request: DeleteTopicsRequest) -> None:
        """Handle DeleteTopics. The answer is sent when the deletion is committed.

        At that time the node of the controller no longer serves the topics. Other brokers stop to
        serve them when they have read the commit.
        """
        states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
        quota = MutationQuota(call, DELETE_STRICT_SINCE)
        image = self._metadata.image

        def counted(state: DeleteTopicState) -> int:
            found = image.topics.get(state.name or "") or image.topic_by_id(state.topic_id)
            return len(found.partitions) if _may_change(found, call, AclOperation.DELETE) else 0

        left, over = quota.allowed(states, lambda one: (one.name, one.topic_id), counted)

        def refused(keys: Iterable[TopicKey], code: ErrorCode, message: str) -> list[Any]:
            names = self._metadata.image.topic_names
            return [
                DeletableTopicResult(
                    # Look up the name by the id only if there is no name. An empty name was sent by
                    # the client.
                    name=names.get(topic_id) if name is None else name,
                    topic_id=topic_id,
                    error_code=code,
                    error_message=message,
                )
                for name, topic_id in dict.fromkeys(keys)
            ]

        def finish(response: DeleteTopicsResponse) -> None:
            response.responses.extend(refused(over, THROTTLED, THROTTLED.description))
            quota.settle(response)
            call.answer(response)

        def decided(response: DeleteTopicsResponse) -> None:
            for one in response.responses:
                if one.error_code:
                    quota.not_changed([(one.name, ZERO_UUID), (None, one.topic_id)])
                if (
                    call.version < DELETION_DISABLED_SINCE
                    and one.error_code == ErrorCode.TOPIC_DELETION_DISABLED
                ):
                    one.error_code = ErrorCode.INVALID_REQUEST
            finish(response)

        def failed(error: ApiError) -> None:
            keys = [(one.name, one.topic_id) for one in left]
            finish(DeleteTopicsResponse(responses=refused(keys, TIMED_OUT, error.message)))

        if over and not left:
            finish(DeleteTopicsResponse(responses=[]))
            return
        order = DeleteTopicsRequest(topics=left, timeout_ms=request.timeout_ms)
        self._metadata.submit(order, decided, failed, *call.asker)

    def create_partitions(self, call: Call, request: CreatePartitionsRequest) -> None:
        """Handle CreatePartitions. The answer is sent when clients can write to the partitions."""
        topics = self._metadata.image.topics

        def counted(topic: CreatePartitionsTopic) -> int:
            found = topics.get(topic.name)
            if not _may_change(found, call, AclOperation.ALTER):
                return 0
            return topic.count - len(found.partitions)

        self._add_partitions(call, request, EXTENDED, counted)

    def _add_partitions(
        self, call: Call, request: Any, kind: _PartitionAddition, counted: Callable[[Any], int]
    ) -> None:
        """Submit a request that adds partitions, without the topics above the client's quota.

        `counted` returns the number of partitions that a topic would get.
        """

        def refused(names: Iterable[str], code: ErrorCode, message: str) -> list[Any]:
            return [kind.refusal(name, code, message) for name in dict.fromkeys(names)]

        def late(error: ApiError) -> Any:
            names = [one.name for one in request.topics]
            return kind.answer(refused(names, TIMED_OUT, error.message))

        if call.slot.charge is None or request.validate_only:
            self._metadata.submit(
                request, call.answer, lambda error: call.answer(late(error)), *call.asker
            )
            return
        quota = MutationQuota(call, kind.strict_since)
        request.topics, over = quota.allowed(request.topics, lambda one: one.name, counted)

        def finish(response: Any) -> None:
            kind.results(response).extend(refused(over, THROTTLED, THROTTLED.description))
            quota.settle(response)
            call.answer(response)

        def decided(response: Any) -> None:
            quota.not_changed(one.name for one in kind.results(response) if one.error_code)
            finish(response)

        if over and not request.topics:
            finish(kind.answer([]))
            return
        self._metadata.submit(request, decided, lambda error: finish(late(error)), *call.asker)


def _may_change(
    topic: TopicImage | None, call: Call, operation: AclOperation
) -> TypeGuard[TopicImage]:
    """Return True if a topic exists and the client may change it.

    Only such a topic counts against a quota. Otherwise the error of the quota would reveal that a
    hidden topic exists.
    """
    return topic is not None and call.may(operation, AclResource.TOPIC, topic.name, is_logged=False)
