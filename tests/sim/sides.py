"""The ends of simulated links: what they receive, and how they answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from broker.config import Listener
from broker.sessions.peer_versions import VERSIONS_NAME
from broker.sessions.versions import OWN_VERSIONS, Versions, answer_with
from broker.world import End, Link, Receiver
from protocol.messages.api import DECLARED, ApiKey
from protocol.messages.cluster import ApiVersionsResponse
from protocol.messages.headers import RequestHeader, decode_request_header, encode_response
from tests.sim.world import SimWorld

PORT = 9095
VERSION = 3
"""The version of ApiVersions that `AnsweringSide` speaks."""
VERSIONS: Versions = {**OWN_VERSIONS, ApiKey.API_VERSIONS: range(VERSION, VERSION + 1)}
"""The versions of a broker that asks an `AnsweringSide`."""
LAST_VERSIONS: Versions = {int(key): key.valid_versions[-1:] for key in DECLARED} | {
    ApiKey.API_VERSIONS: range(1)
}
"""The versions of a client that speaks the last version of each API."""


def listen(world: SimWorld, host: str, take: Callable[[], Receiver], port: int = PORT) -> None:
    """Let a world accept connections to the BROKER listener of its host."""
    at = Listener(host=host, port=port, advertised_host=host, advertised_port=port)
    world.listen("BROKER", at, take).open()


class Side:
    """One end of a link. It expects no frames."""

    def __init__(self) -> None:
        self.link: Any = None
        self.ends: list[End] = []

    def linked(self, link: Link) -> None:
        assert self.link is None
        self.link = link

    def take(self, frames: Iterator[memoryview]) -> None:
        assert not list(frames)

    def drained(self) -> None:
        pass

    def ended(self, end: End, reason: str = "") -> None:
        assert not self.ends, "an end comes once"
        self.ends.append(end)


class AnsweringSide(Side):
    """The end of a link that receives ApiVersions requests. A subclass decides when to answer.

    The exchange of versions is answered at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.is_exchange = False
        """True if the other side has made this link to exchange versions."""

    def take(self, frames: Iterator[memoryview]) -> None:
        for frame in frames:
            header = decode_request_header(frame)[0]
            if (header.client_id or "").endswith(VERSIONS_NAME):
                self.is_exchange = True
                self._send(answer_with(VERSIONS), header.correlation_id)
            else:
                self.asked_for(header)

    def asked_for(self, header: RequestHeader) -> None:
        """Take one request."""
        raise NotImplementedError

    def answer(self, correlation_id: int, number: int = 0) -> None:
        """Answer a request. The throttle time of the response carries the test's number."""
        self._send(ApiVersionsResponse(throttle_time_ms=number), correlation_id)

    def _send(self, answer: ApiVersionsResponse, correlation_id: int) -> None:
        self.link.send([encode_response(answer, VERSION, correlation_id, ApiKey.API_VERSIONS)])
