"""Carries the quorum's messages over links: requests to other nodes and answers to theirs.

Each request of the quorum's core ends once, as answered or failed. A request whose answer cannot be
decoded has failed. A request of another node is answered on the connection on which it came, if
that connection is still open.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import Any, Protocol

from broker.cluster import quorum_wire
from broker.quorum.events import (
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    Received,
    RequestAnswered,
    RequestFailed,
)
from broker.quorum.ready import Reply, Send
from broker.sessions.call import Call
from broker.sessions.peers import LinkKind, Peers
from broker.world import Clock, End
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.log import fields
from protocol.wire.schema import Message

logger = logging.getLogger(__name__)


class QuorumInbox(Protocol):
    """The interface to the quorum of this node (`quorum_driver`)."""

    def handle(self, event: Received | RequestAnswered | RequestFailed) -> None:
        """Handle a request of another node, or the answer or failure of an own request."""


class LeaderListener(Protocol):
    """The interface to the object that is notified of the leader's answers (`leader_watcher`)."""

    def answered(self, leader_id: int, leader_epoch: int) -> None:
        """Handle an answer to a fetch, which the leader of an epoch has sent."""


class LinkMessenger:
    """Carries messages between one node's `QuorumDriver` and all other nodes."""

    def __init__(self, peers: Peers, clock: Clock) -> None:
        self._replica: QuorumInbox | None = None
        """The quorum of this node; None while this broker is no replica of the metadata log."""
        self._watcher: LeaderListener | None = None
        self._peers = peers
        self._clock = clock
        self._numbers = count()
        self._calls: dict[int, Call] = {}

    def serve(self, replica: QuorumInbox, watcher: LeaderListener | None = None) -> None:
        """Pass messages to this replica, and report the leader's answers to `watcher`."""
        self._replica = replica
        self._watcher = watcher

    @property
    def unanswered_count(self) -> int:
        """The number of requests of other nodes that are not answered yet."""
        return len(self._calls)

    def send(self, send: Send) -> None:
        """Send a request to another node."""
        message = quorum_wire.encode_request(send.request)

        def answered(answer: Any) -> None:
            self._answered(send, answer)

        def failed(end: End) -> None:
            self._tell(RequestFailed(send.request_id))

        self._peers.ask(
            send.node_id,
            kind_of(send),
            message,
            self._clock.monotonic_ms() + send.timeout_ms,
            answered,
            failed,
        )

    def _answered(self, send: Send, message: Any) -> None:
        if message.error_code == ErrorCode.BROKER_NOT_AVAILABLE:
            self._tell(RequestFailed(send.request_id))
            return
        try:
            answer = quorum_wire.decode_answer(message)
        except WireError as error:
            logger.warning(
                "cannot decode the answer of another voter; the request is treated as failed",
                extra=fields(node_id=send.node_id, reason=error),
            )
            self._tell(RequestFailed(send.request_id))
            return
        is_read = isinstance(answer, FetchAnswer | FetchSnapshotAnswer)
        if self._watcher is not None and is_read and answer.leader_id == send.node_id:
            self._watcher.answered(answer.leader_id, answer.leader_epoch)
        self._tell(RequestAnswered(send.request_id, answer))

    def _tell(self, event: Received | RequestAnswered | RequestFailed) -> None:
        assert self._replica is not None, "a request was sent before `serve` was called"
        self._replica.handle(event)

    def received(self, call: Call, message: Message) -> None:
        """Handle a request of another node. `reply` answers it later.

        Raises ApiError if the request does not concern the quorum, and BROKER_NOT_AVAILABLE while
        this broker is not a replica of the metadata log.
        """
        if self._replica is None:
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                (
                    "this broker has no replica of the metadata log yet: send the request "
                    "again later"
                ),
            )
        request = quorum_wire.decode_request(message)
        number = next(self._numbers)
        self._calls[number] = call
        self._tell(Received(number, request))

    def reply(self, reply: Reply) -> None:
        """Send the answer to the request that was received with `call_id`."""
        self._calls.pop(reply.call_id).answer(quorum_wire.encode_answer(reply.answer))


def kind_of(send: Send) -> LinkKind:
    """Return the link for a request.

    Reads have their own link: a Fetch can wait at the leader, and no vote may wait behind it.
    """
    is_read = isinstance(send.request, Fetch | FetchSnapshot)
    return LinkKind.METADATA if is_read else LinkKind.QUICK
