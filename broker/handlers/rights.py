"""What several handlers answer to a client that lacks a right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.types import Uuid

TopicWith = Callable[[str, int], Uuid | None]
"""A function that returns the id of a topic that has this partition; None if there is none."""


class AnsweredPartition(Protocol):
    """One partition in an answer."""

    error_code: int


class AnsweredTopic(Protocol):
    """One topic in an answer."""

    name: str

    @property
    def partitions(self) -> Sequence[Any]:
        """The answers for its partitions, each an `AnsweredPartition`."""


def readable_only(call: Call, topic_with: TopicWith) -> TopicWith:
    """Return a function that knows only the topics that the client may read.

    So no offsets are written for other topics. `refuse_unreadable` gives these topics their error.
    """

    def found(topic: str, index: int) -> Uuid | None:
        return topic_with(topic, index) if call.may_read_topic(topic) else None

    return found


def refuse_unreadable(call: Call, topics: Iterable[AnsweredTopic]) -> None:
    """Write the error into each topic of an answer that the client may not read."""
    for topic in topics:
        if not call.may_read_topic(topic.name):
            for partition in topic.partitions:
                partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


_FINAL = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


def order_code(error: ApiError) -> ErrorCode:
    """Return the error code for a request that the controller has not carried out.

    REQUEST_TIMED_OUT tells every tool to try again. A missing right and a missing level keep their
    own codes, because no retry helps.
    """
    return error.code if error.code in _FINAL else ErrorCode.REQUEST_TIMED_OUT
