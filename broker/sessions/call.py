"""A started request, as seen by the code that serves it.

Room: sessions. The code that serves a request answers it exactly once, at once or later. The
connection sends the answers in the order of the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from broker.sessions.login import Login
from broker.sessions.pipeline import Slot
from protocol.errors import EncodeError
from protocol.log import fields
from protocol.messages.api import ApiKey
from protocol.messages.headers import encode_response, encode_response_chunks
from protocol.wire.schema import Message

logger = logging.getLogger(__name__)

_FETCH = int(ApiKey.FETCH)

FAULT = "internal error of the broker"
"""The logged reason when an internal error closes a connection. The error has its own log entry."""


class WaitingFetch(Protocol):
    """A Fetch that waits for data."""

    def hasten(self, behind: Iterable[bytes]) -> None:
        """Inspect the frames that wait behind this fetch, and end its wait soon if one needs that.

        Each call passes the same frames as the last one, possibly followed by more.
        """

    def make_way(self) -> None:
        """End the wait soon, because nothing more is read from the connection before the answer."""

    def forget(self) -> None:
        """End the wait without an answer, because the connection is closed."""

    def drop(self) -> None:
        """End the wait without an answer, and free the request's place in the pipeline."""


class RequestingSession(Protocol):
    """A session, as seen by the code that serves its requests."""

    parked_fetch: WaitingFetch | None
    """The session's Fetch that waits for data."""
    template: Any
    """The last Produce, with which the next one is compared (`reception.RequestTemplate`)."""
    has_staged: bool
    """True if batches of this session are staged for the write at the end of its read."""

    number: int
    """Rises in the order in which connections were accepted."""

    login: Login | None
    """The client's login, on a listener that requires one."""

    @property
    def is_closed(self) -> bool:
        """True if answers can no longer be sent."""

    @property
    def listener_name(self) -> str:
        """The listener that the client connected to."""

    @property
    def peer(self) -> str:
        """`host:port` of the client, for logs."""

    @property
    def peer_host(self) -> str:
        """The client's address, without its port."""

    @property
    def has_ended(self) -> bool:
        """True if the peer has closed its side, or this side has closed the session."""

    def on_end(self, told: Callable[[], None]) -> None:
        """Call `told` once when either side ends the session. Requests received before may still
        follow.
        """

    def answered(self) -> None:
        """Report that one of the session's requests has its answer."""

    def hold(self, slot: Slot) -> None:
        """Start no later request until `let_go`."""

    def let_go(self, slot: Slot) -> None:
        """Let later requests start again."""

    def attempt(self, work: Callable[[], None]) -> None:
        """Do part of a request outside of a read. An exception closes only this session."""

    def close(self, reason: str, *, is_logged: bool = True) -> None:
        """Close the connection."""


class Call:
    """One started request: the session to answer, and the version to answer in."""

    __slots__ = ("api_key", "client_id", "correlation_id", "session", "slot", "version")

    def __init__(
        self,
        session: RequestingSession,
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
        """The client's listener. Answers name brokers by their addresses on this listener."""
        return self.session.listener_name

    def answer(self, response: Message) -> None:
        """Set the answer. It is sent after the answers of all earlier requests."""
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
            # The caller can be a timer or a sync that also serves others, so nothing is raised.
            logger.exception("no answer", extra=fields(peer=self.session.peer))
            self.session.close(FAULT, is_logged=False)
            return
        self.slot.answer = answer
        self.session.answered()

    def answer_nothing(self) -> None:
        """Finish the request without an answer (Produce with acks=0)."""
        self.slot.answer = ()
        self.session.answered()

    def hang_up(self, reason: str) -> None:
        """Close the connection: the only way to report an error to a client with acks=0."""
        self.session.close(reason)
