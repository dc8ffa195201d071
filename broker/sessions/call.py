"""A request that has been started, as those who serve it see it.

Floor: sessions. Whoever serves a request answers it once, at once or later; the connection sends
the answers in the order of the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from broker.sessions.pipeline import Slot
from protocol.errors import EncodeError
from protocol.log import fields
from protocol.messages.api import ApiKey
from protocol.messages.headers import encode_response, encode_response_chunks
from protocol.wire.schema import Message

logger = logging.getLogger(__name__)

_FETCH = int(ApiKey.FETCH)

FAULT = "a fault of the broker"
"""What is logged of a connection that ends by one; the fault itself is logged with its trace."""


class Parked(Protocol):
    """A Fetch that waits for data."""

    def hasten(self, behind: Iterable[bytes]) -> None:
        """These frames wait behind it: end its wait soon if one of them needs that.

        Each time they are those of the last time, and maybe more.
        """

    def make_way(self) -> None:
        """Nothing more is read from its connection until it is answered: end its wait soon."""

    def forget(self) -> None:
        """Its connection is gone: it waits no more, and is not answered."""

    def drop(self) -> None:
        """Nobody waits for its answer: it waits no more, and its place in the line is free."""


class Asking(Protocol):
    """A session as those see it who serve its requests."""

    parked_fetch: Parked | None
    """The Fetch of it that waits for data."""
    lane: Any
    """What the next Produce is compared with (`reception.Lane`)."""
    has_staged: bool
    """Whether something it has appended waits for the write at the end of its read."""

    number: int
    """Rises in the order in which connections were taken in."""

    @property
    def is_closed(self) -> bool:
        """Whether answers are of no use any more."""

    @property
    def listener_name(self) -> str:
        """The listener the client came in on."""

    @property
    def peer(self) -> str:
        """`host:port` of the client, for logs."""

    @property
    def peer_host(self) -> str:
        """The client's address, without its port."""

    @property
    def has_ended(self) -> bool:
        """Whether its peer has said its last word, or it was closed from this side."""

    def on_end(self, told: Callable[[], None]) -> None:
        """Call once when it ends, from either side; the peer's last requests may come after it."""

    def answered(self) -> None:
        """One of its requests has its answer."""

    def hold(self, slot: Slot) -> None:
        """Start nothing behind this request until `let_go`."""

    def let_go(self, slot: Slot) -> None:
        """What waited behind it may start."""

    def attempt(self, work: Callable[[], None]) -> None:
        """Do a part of a request outside of a read: a fault there closes this session alone."""

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        """End the connection."""


class Call:
    """One started request: whom to answer, and in which version."""

    __slots__ = ("api_key", "client_id", "correlation_id", "session", "slot", "version")

    def __init__(
        self,
        session: Asking,
        slot: Slot,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.session = session
        self.slot = slot
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def listener_name(self) -> str:
        """The listener the client came in on: answers name brokers as they are known there."""
        return self.session.listener_name

    def answer(self, response: Message) -> None:
        """Give the answer; it leaves when all before it have."""
        if self.session.is_closed:
            return
        version, correlation_id, api_key = self.version, self.correlation_id, self.api_key
        if self.slot.timing is not None:
            self.slot.timing.ready()
        answer: Sequence[object]
        try:
            if api_key == _FETCH:
                answer = encode_response_chunks(response, version, correlation_id, api_key)
            else:
                answer = (encode_response(response, version, correlation_id, api_key),)
        except EncodeError:
            # Whoever answers may be a timer or a sync, which serve others as well.
            logger.exception("no answer", extra=fields(peer=self.session.peer))
            self.session.close(FAULT, is_logged=False)
            return
        self.slot.answer = answer
        self.session.answered()

    def answer_nothing(self) -> None:
        """The request is done and gets no answer (Produce with acks=0)."""
        self.slot.answer = ()
        self.session.answered()

    def hang_up(self, reason: str) -> None:
        """The only way to tell a client of acks=0 that something went wrong."""
        self.session.close(reason)
