"""The quorum's messages over links: requests to other nodes, and answers to theirs.

Floor: cluster. What the core sends comes back once, answered or failed: an answer that cannot be
understood counts as none. What other nodes ask is answered on the connection on which it came, if
that still stands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import count

from broker.cluster import quorum_wire
from broker.quorum.events import Answered, Failed, Fetch, FetchSnapshot, Received
from broker.quorum.ready import Reply, Send
from broker.sessions.call import Call
from broker.sessions.peers import LinkKind, Peers
from broker.world import Clock, End
from protocol.errors import WireError
from protocol.log import fields
from protocol.wire.schema import Message

logger = logging.getLogger(__name__)


class LinkMessenger:
    """Between one node's `QuorumDriver` and all others."""

    def __init__(self, peers: Peers, clock: Clock) -> None:
        self.heard: Callable[[Received | Answered | Failed], None] = lambda event: None
        """The driver's `handle`."""
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

        def answered(answer: Message) -> None:
            try:
                self.heard(Answered(send.request_id, quorum_wire.decode_answer(answer)))
            except WireError as error:
                logger.warning(
                    "answer of another voter is of no use",
                    extra=fields(node_id=send.node_id, reason=error),
                )
                self.heard(Failed(send.request_id))

        def failed(end: End) -> None:
            self.heard(Failed(send.request_id))

        self._peers.ask(
            send.node_id,
            kind_of(send),
            message,
            version,
            self._clock.monotonic_ms() + send.timeout_ms,
            answered,
            failed,
        )

    def received(self, call: Call, message: Message) -> None:
        """Another node asks; it is answered by `reply`. ApiError for what is not the quorum's."""
        request = quorum_wire.decode_request(message)
        number = next(self._numbers)
        self._calls[number] = call
        self.heard(Received(number, request))

    def reply(self, reply: Reply) -> None:
        """Answer what was received under `call_id`."""
        self._calls.pop(reply.call_id).answer(quorum_wire.encode_answer(reply.answer))


def kind_of(send: Send) -> LinkKind:
    """On which link a request goes: a Fetch may wait, and a vote must not stand behind it."""
    is_read = isinstance(send.request, Fetch | FetchSnapshot)
    return LinkKind.METADATA if is_read else LinkKind.QUICK
