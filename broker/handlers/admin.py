"""Handles requests to create, delete and extend topics: it passes them to the controller."""

from __future__ import annotations

from typing import Any

from broker.cluster.metadata import Metadata
from broker.controller.controller import ControllerInput
from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.messages.topics import (
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from protocol.wire.schema import Message

DELETION_DISABLED_SINCE = 3
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
"""The error for a change that could not be written in time.

Every tool knows this error and can retry.
"""


class TopicHandlers:
    """Handles CreateTopics, DeleteTopics and CreatePartitions."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def create_topics(self, call: Call, request: CreateTopicsRequest) -> None:
        """Handle CreateTopics. The answer is sent when clients can write to the topics."""

        def refused(error: ApiError) -> Message:
            return CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(
                        name=name, error_code=TIMED_OUT, error_message=error.message, configs=[]
                    )
                    for name in dict.fromkeys(topic.name for topic in request.topics)
                ]
            )

        self._submit(call, request, refused)

    def delete_topics(self, call: Call, request: DeleteTopicsRequest) -> None:
        """Handle DeleteTopics. The answer is sent when the deletion is committed.

        At that time the node of the controller no longer serves the topics. Other brokers stop to
        serve them when they have read the commit.
        """

        def refused(error: ApiError) -> Message:
            states = request.topics or [DeleteTopicState(name=name) for name in request.topic_names]
            asked = dict.fromkeys((state.name, state.topic_id) for state in states)
            names = self._metadata.image.topic_names
            return DeleteTopicsResponse(
                responses=[
                    DeletableTopicResult(
                        # Look up the name by the id only if there is no name. An empty name was
                        # sent by the client.
                        name=names.get(topic_id) if name is None else name,
                        topic_id=topic_id,
                        error_code=TIMED_OUT,
                        error_message=error.message,
                    )
                    for name, topic_id in asked
                ]
            )

        def adapt(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
            if call.version < DELETION_DISABLED_SINCE:
                for one in response.responses:
                    if one.error_code == ErrorCode.TOPIC_DELETION_DISABLED:
                        one.error_code = ErrorCode.INVALID_REQUEST
            return response

        self._metadata.submit(
            request,
            lambda response: call.answer(adapt(response)),
            lambda error: call.answer(refused(error)),
            *call.asker,
        )

    def create_partitions(self, call: Call, request: CreatePartitionsRequest) -> None:
        """Handle CreatePartitions. The answer is sent when clients can write to the partitions."""

        def refused(error: ApiError) -> Message:
            return CreatePartitionsResponse(
                results=[
                    CreatePartitionsTopicResult(
                        name=name, error_code=TIMED_OUT, error_message=error.message
                    )
                    for name in dict.fromkeys(topic.name for topic in request.topics)
                ]
            )

        self._submit(call, request, refused)

    def _submit(self, call: Call, order: ControllerInput, refused: Any) -> None:
        self._metadata.submit(
            order,
            call.answer,
            lambda error: call.answer(refused(error)),
            *call.asker,
        )
