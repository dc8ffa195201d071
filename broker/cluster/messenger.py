"""The quorum's messages over links: requests to other nodes, and answers to theirs.

Floor: cluster. What the core sends comes back once, answered or failed: an answer that cannot be
understood counts as none. What other nodes ask is answered on the connection on which it came, if
that still stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count
from typing import Any

from broker.cluster import quorum_wire
from broker.quorum.events import (
    Answered,
    Failed,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
    Received,
)
from broker.quorum.ready import Reply, Send
from broker.sessions.call import Call
from broker.sessions.peers import LinkKind, Peers
from broker.world import Clock, End
from protocol.errors import ApiError, ErrorCode, WireError
from protocol.log import fields
from protocol.wire.schema import Message

logger = logging.getLogger(__name__)


class LinkMessenger:
    """Between one node's `QuorumDriver` and all others."""

    def __init__(self, peers: Peers, clock: Clock) -> None:
        self.heard: Callable[[Received | Answered | Failed], None] | None = None
        """The driver's `handle`; None as long as this broker is no replica of the metadata."""
        self.leader_answered: Callable[[int, int], None] = lambda leader_id, leader_epoch: None
        """Hears whenever a leader gives what it was asked for, and in which epoch it leads."""
        self._peers = peers
        self._clock = clock
        self._numbers = count()
        self._calls: dict[int, Call] = {}

    @property
    def unanswered_count(self) -> int:
        """How many requests of other nodes wait for their answers."""
        return len(self._calls)

    def send(self, send: Send) -> None:
        """Ask another node."""
        message, version = quorum_wire.encode_request(send.request)

        def answered(answer: Any) -> None:
            self._answered(send, answer)

        def failed(end: End) -> None:
            self._tell(Failed(send.request_id))

        self._peers.ask(
            send.node_id,
            kind_of(send),
            message,
            version,
            self._clock.monotonic_ms() + send.timeout_ms,
            answered,
            failed,
        )

    def _answered(self, send: Send, message: Any) -> None:
        if message.error_code == ErrorCode.BROKER_NOT_AVAILABLE:
            self._tell(Failed(send.request_id))
            return
        try:
            answer = quorum_wire.decode_answer(message)
        except WireError as error:
            logger.warning(
                "answer of another voter is of no use",
                extra=fields(node_id=send.node_id, reason=error),
            )
            self._tell(Failed(send.request_id))
            return
        if isinstance(answer, FetchAnswer | FetchSnapshotAnswer) and (
            answer.leader_id == send.node_id
        ):
            self.leader_answered(answer.leader_id, answer.leader_epoch)
        self._tell(Answered(send.request_id, answer))

    def _tell(self, event: Received | Answered | Failed) -> None:
        assert self.heard is not None, "nothing is asked before somebody hears of the answer"
        self.heard(event)

    def received(self, call: Call, message: Message) -> None:
        """Another node asks; it is answered by `reply`.

        Raises ApiError for what is not the quorum's, and BROKER_NOT_AVAILABLE before this broker is
        a replica of the metadata.
        """
        if self.heard is None:
            raise ApiError(
                ErrorCode.BROKER_NOT_AVAILABLE, "this broker is no part of a cluster yet"
            )
        request = quorum_wire.decode_request(message)
        number = next(self._numbers)
        self._calls[number] = call
        self._tell(Received(number, request))

    def reply(self, reply: Reply) -> None:
        """Answer what was received under `call_id`."""
        self._calls.pop(reply.call_id).answer(quorum_wire.encode_answer(reply.answer))


def kind_of(send: Send) -> LinkKind:
    """On which link a request goes: a Fetch may wait, and a vote must not stand behind it."""
    is_read = isinstance(send.request, Fetch | FetchSnapshot)
    return LinkKind.METADATA if is_read else LinkKind.QUICK
