"""A request that has been started, as those who serve it see it.

Floor: sessions. Whoever serves a request answers it once, at once or later; the connection sends
the answers in the order of the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from protocol.errors import EncodeError
from protocol.log import fields
from protocol.messages.api import ApiKey
from protocol.messages.headers import encode_response, encode_response_chunks
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.sessions.connection import Connection
    from broker.sessions.pipeline import Slot

logger = logging.getLogger(__name__)

_FETCH = int(ApiKey.FETCH)

FAULT = "a fault of the broker"
"""What is logged of a connection that ends by one; the fault itself is logged with its trace."""


class Call:
    """One started request: whom to answer, and in which version."""

    __slots__ = ("api_key", "client_id", "connection", "correlation_id", "slot", "version")

    def __init__(
        self,
        connection: Connection,
        slot: Slot,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.connection = connection
        self.slot = slot
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id

    @property
    def listener_name(self) -> str:
        """The listener the client came in on: answers name brokers as they are known there."""
        return self.connection.listener.name

    def answer(self, response: Message) -> None:
        """Give the answer; it leaves when all before it have."""
        if self.connection.is_closed:
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
            logger.exception("no answer", extra=fields(peer=self.connection.peer))
            self.connection.close(FAULT, is_logged=False)
            return
        self.slot.answer = answer
        self.connection.answered()

    def answer_nothing(self) -> None:
        """The request is done and gets no answer (Produce with acks=0)."""
        self.slot.answer = ()
        self.connection.answered()

    def hang_up(self, reason: str) -> None:
        """The only way to tell a client of acks=0 that something went wrong."""
        self.connection.close(reason)
