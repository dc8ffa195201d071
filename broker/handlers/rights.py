"""What handlers ask about the rights of a client, and the answers that several of them give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from broker.sessions.call import Call
from protocol.errors import ApiError, ErrorCode
from protocol.security.acl import AclOperation, AclResource
from protocol.types import Uuid

TopicWith = Callable[[str, int], Uuid | None]
"""Returns the id of a topic that has this partition; None if there is none."""


class AnsweredPartition(Protocol):
    """One partition in an answer."""

    error_code: int


class AnsweredTopic(Protocol):
    """One topic in an answer."""

    name: str

    @property
    def partitions(self) -> Sequence[Any]:
        """The answers for its partitions, each an `AnsweredPartition`."""


def may_describe(call: Call, topic: str, *, is_logged: bool = True) -> bool:
    """Return True if the client may see the topic. `is_logged` is as in `Asker.may`."""
    return call.may(AclOperation.DESCRIBE, AclResource.TOPIC, topic, is_logged=is_logged)


def may_read(call: Call, topic: str) -> bool:
    """Return True if the client may read the topic, and commit offsets for it."""
    return call.may(AclOperation.READ, AclResource.TOPIC, topic)


def may_use_group(call: Call, group_id: str) -> bool:
    """Return True if the client may be a member of the group, and commit offsets for it."""
    return call.may(AclOperation.READ, AclResource.GROUP, group_id)


def may_use_transactional_id(call: Call, transactional_id: str) -> bool:
    """Return True if the client may write under the transactional id."""
    return call.may(AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, transactional_id)


def readable_only(call: Call, topic_with: TopicWith) -> TopicWith:
    """Return a function that knows only the topics that the client may read.

    So nothing is written for the others. `refuse_unreadable` gives them their error.
    """

    def found(topic: str, index: int) -> Uuid | None:
        return topic_with(topic, index) if may_read(call, topic) else None

    return found


def refuse_unreadable(call: Call, topics: Iterable[AnsweredTopic]) -> None:
    """Give each topic that the client may not read its error, whatever its answer is."""
    for topic in topics:
        if not may_read(call, topic.name):
            for partition in topic.partitions:
                partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED


_FINAL = (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.UNSUPPORTED_VERSION)


def order_code(error: ApiError) -> ErrorCode:
    """Return the error code for an order that the controller has not carried out.

    REQUEST_TIMED_OUT tells every tool to try again. A missing right and a missing level keep their
    own codes, because no retry helps.
    """
    return error.code if error.code in _FINAL else ErrorCode.REQUEST_TIMED_OUT
