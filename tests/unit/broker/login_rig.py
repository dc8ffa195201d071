"""A broker whose listener NET requires a login, and a client whose login steps the test
controls."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from protocol.messages.api import response_class
from protocol.messages.cluster import ApiVersionsRequest
from protocol.messages.headers import decode_response_header, encode_request
from protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.security.scram import ClientExchange, Mechanism, salted_password
from protocol.wire.frame import FrameBuffer
from protocol.wire.schema import Message
from tests.unit.broker.rig import LISTENERS, Rig
from tests.unit.broker.walks import MemoryLink

SALT = b"a salt of the usual size"
ITERATIONS = 8_192
REQUEST_BYTES_MAX = 100 << 20

NET = {**LISTENERS["HOST"], "host": "net", "security_protocol": "SASL_SSL"}


class LoginRig(Rig):
    """A broker with the listener NET. Its connections have no socket and no TLS."""

    raw = MappingProxyType(
        {
            "listeners": {**LISTENERS, "NET": NET},
            "tls": {"certificate": "c", "key": "k"},
            "login_secret": "secret of the cluster",
        }
    )

    def __init__(self, **settings: Any) -> None:
        """By default, the users `shop` and `root` are super users and need no ACLs. The listener is
        open, because `root` has a password."""
        super().__init__(**{"super_users": "User:shop;User:root", **settings})
        self.set_password("root", "password of root")

    def set_password(
        self, user: str, password: str, mechanism: Mechanism = Mechanism.SHA_512
    ) -> None:
        """Set a user's password by AlterUserScramCredentials, as a tool does."""
        salted = salted_password(password, SALT, ITERATIONS, mechanism.digest)
        upsertion = ScramCredentialUpsertion(
            name=user,
            mechanism=mechanism,
            iterations=ITERATIONS,
            salt=SALT,
            salted_password=salted,
        )
        answer = self.ask(AlterUserScramCredentialsRequest(upsertions=[upsertion]), 0)
        assert answer.results[0].error_code == 0, answer

    def remove(self, user: str, mechanism: Mechanism = Mechanism.SHA_512) -> None:
        deletion = ScramCredentialDeletion(name=user, mechanism=mechanism)
        answer = self.ask(AlterUserScramCredentialsRequest(deletions=[deletion]), 0)
        assert answer.results[0].error_code == 0, answer

    def connect(self, listener: str = "NET") -> LoginClient:
        return LoginClient(self, listener)

    def let_time_pass(self, by_ms: int) -> None:
        """Advance the time, with the world's timers and the sweep of the sessions."""
        self.world.run_for(by_ms)
        self.broker.listeners.sessions.sweep(self.clock.monotonic_ms())


class FramedLink(MemoryLink):
    """A connection whose bytes become frames in a real buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.frames = FrameBuffer(REQUEST_BYTES_MAX)
        self.is_closed = False

    @property
    def is_in_frame(self) -> bool:  # type: ignore[override]  # a constant there
        return self.frames.pending_bytes > 0

    def limit_frames(self, bytes_max: int) -> None:
        self.frames.frame_bytes_max = bytes_max

    def left(self) -> Iterator[memoryview]:
        return self.frames.received(0)

    def close(self) -> None:
        self.is_closed = True


class LoginClient:
    """A client's connection on which the test performs each step."""

    def __init__(self, rig: LoginRig, listener: str) -> None:
        self._rig = rig
        self.link = FramedLink()
        self.session: Any = rig.world.listening[listener].accept()
        self.session.linked(self.link)
        self._number = 0
        self._taken = 0

    @property
    def is_closed(self) -> bool:
        return self.link.is_closed

    def send_bytes(self, data: bytes) -> None:
        """Deliver bytes in reads that are as large as the free part of the buffer."""
        while data and not self.is_closed:
            room = self.link.frames.get_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            self.session.take(self.link.frames.received(count))
        self._rig.world.settle()

    def encoded(self, message: Message, version: int) -> bytes:
        self._number += 1
        return encode_request(message, version, self._number, "client")

    def send(self, message: Message, version: int) -> None:
        self.send_bytes(self.encoded(message, version))

    def answer(self, to: type[Message], version: int) -> Any:
        """Return the next response, or None if none has arrived."""
        sent = self.link.sent[self._taken :]
        if not sent:
            return None
        size = int.from_bytes(sent[:4], "big")
        frame = sent[4 : 4 + size]
        self._taken += 4 + size
        _, position = decode_response_header(frame, to.api_key, version)
        return response_class(to.api_key).decode(frame, version, position)[0]

    def ask(self, message: Message, version: int) -> Any:
        self.send(message, version)
        return self.answer(type(message), version)

    def choose(self, mechanism: str = "SCRAM-SHA-512", version: int = 1) -> Any:
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def authenticate(self, message: bytes, version: int = 2) -> Any:
        return self.ask(SaslAuthenticateRequest(auth_bytes=message), version)

    def log_in(
        self,
        user: str = "shop",
        password: str = "secret",
        mechanism: Mechanism = Mechanism.SHA_512,
        *,
        version: int = 2,
        begins: bool = True,
    ) -> Any:
        """Log in. Return the last response after its delay."""
        if begins:
            self.ask(ApiVersionsRequest(client_software_name="c", client_software_version="1"), 3)
        chosen = self.choose(mechanism.sasl_name)
        assert chosen.error_code == 0, chosen
        exchange = ClientExchange(user, mechanism.digest, bytes(24))
        told = self.authenticate(exchange.first(), version)
        if told is None or told.error_code:
            return told
        challenge = exchange.challenged(told.auth_bytes)
        salted = salted_password(password, challenge.salt, challenge.iterations, mechanism.digest)
        last = self.authenticate(exchange.final(challenge, salted), version)
        if last is None:
            self._rig.let_time_pass(250)
            last = self.answer(SaslAuthenticateRequest, version)
        elif not last.error_code:
            exchange.verify(last.auth_bytes)
        return last
