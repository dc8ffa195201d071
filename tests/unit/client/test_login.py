"""Our client accepts only a server that proves its identity, and reauthenticates before its session
ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from protocol.client import login
from protocol.client.backoff import Backoff
from protocol.client.cluster import Cluster
from protocol.client.connection import Connection
from protocol.client.errors import BrokerUnreachable, ConnectionLost, EntryRefused
from protocol.client.login import ClientLogin, LoginRefused, LoginSettings
from protocol.client.nodes import LinkSettings, NodeLink
from protocol.errors import ErrorCode
from protocol.messages.api import ApiKey
from protocol.messages.metadata import MetadataRequest
from protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from protocol.security.scram import (
    Mechanism,
    ScramCredential,
    ScramError,
    ServerExchange,
    credential_of,
    salted_password,
)
from tests.unit.client.scripted_server import Answer, Received, ScriptedServer, metadata

SALT = b"some salt"
REFUSED = SaslAuthenticateResponse(
    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="invalid credentials"
)


def credential(iterations: int = 4_096) -> ScramCredential:
    salted = salted_password("secret", SALT, iterations, "sha512")
    return credential_of(salted, SALT, iterations, "sha512")


class LoginServer:
    """The script of a server that lets one user log in and then answers every request."""

    def __init__(self) -> None:
        self.life_ms = 0
        self.iterations = 4_096
        self.knows_the_user = True
        self.refuses_choice: ErrorCode | None = None
        self.login_count = 0
        self._exchange: ServerExchange | None = None
        self._number = 0

    def answer(self, received: Received) -> Answer:
        if received.api_key == ApiKey.SASL_HANDSHAKE:
            if self.refuses_choice is not None:
                return SaslHandshakeResponse(error_code=self.refuses_choice, mechanisms=["GSSAPI"])
            self._exchange = ServerExchange("sha512")
            return SaslHandshakeResponse(mechanisms=["SCRAM-SHA-512"])
        if isinstance(received.message, SaslAuthenticateRequest):
            return self._step(bytes(received.message.auth_bytes))
        assert self.login_count, "asked before the login"
        return metadata({1: 1})

    def _step(self, message: bytes) -> Answer:
        exchange = self._exchange
        assert exchange is not None
        if not exchange.user:
            exchange.first(message)
            self._number += 1
            told = exchange.challenge(credential(self.iterations), self._number.to_bytes(24, "big"))
            return SaslAuthenticateResponse(auth_bytes=told)
        if not self.knows_the_user:
            return SaslAuthenticateResponse(auth_bytes=b"v=AAAA")
        try:
            last = exchange.final(message)
        except ScramError:
            return REFUSED
        self.login_count += 1
        return SaslAuthenticateResponse(auth_bytes=last, session_lifetime_ms=self.life_ms)


Talk = Callable[[Callable[[], Awaitable[Connection]]], Awaitable[None]]


def run(
    server: LoginServer, talk: Talk, password: str = "secret", password_file: str | None = None
) -> None:
    """Run a test with a client whose connections all share the same login."""

    async def main() -> None:
        settings = LoginSettings("shop", password, password_file=password_file)
        one = ClientLogin(settings, random.Random(1))
        async with ScriptedServer(server.answer) as scripted:
            opened: list[Connection] = []

            async def connect() -> Connection:
                made = await Connection.open(
                    "127.0.0.1", scripted.port, client_id="test", timeout_ms=5_000, login=one
                )
                opened.append(made)
                return made

            await talk(connect)
            for connection in opened:
                connection.close()

    asyncio.run(main())


def refusal(server: LoginServer, password: str = "secret") -> str:
    """Return the error text of a connection whose login is refused."""

    async def talk(connect: Callable[[], Awaitable[Connection]]) -> None:
        with pytest.raises(LoginRefused) as caught:
            await connect()
        assert isinstance(caught.value, BrokerUnreachable), "callers try again, with a back-off"
        told.append(str(caught.value))

    told: list[str] = []
    run(server, talk, password)
    return told[0]


def test_connections_log_in_and_derive_the_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[int] = []

    def counted(password: str, salt: bytes, iterations: int, digest: str) -> bytes:
        derived.append(iterations)
        return salted_password(password, salt, iterations, digest)

    monkeypatch.setattr(login, "salted_password", counted)
    server = LoginServer()

    async def talk(connect: Callable[[], Awaitable[Connection]]) -> None:
        for _ in range(3):
            connection = await connect()
            await connection.request(MetadataRequest(), timeout_ms=5_000)
        server.iterations = 8_192
        await connect()

    run(server, talk)
    assert derived == [4_096, 8_192]
    assert server.login_count == 4


def test_each_login_reads_the_file_of_the_password(tmp_path: Path) -> None:
    """After a password was changed, a client needs no restart."""
    server, file = LoginServer(), tmp_path / "password"

    async def talk(connect: Callable[[], Awaitable[Connection]]) -> None:
        with pytest.raises(LoginRefused, match=f"cannot be read from {file}: No such file"):
            await connect()
        file.write_text("of before\n")
        with pytest.raises(LoginRefused, match="refused the login"):
            await connect()
        file.write_text("secret\n")
        await connect()

    run(server, talk, "", str(file))
    assert server.login_count == 1


def test_what_a_broker_refuses_is_told() -> None:
    server = LoginServer()
    assert refusal(server, "wrong").endswith(
        "refused the login: invalid credentials; compare cluster.security.user and"
        " cluster.security.password with the user in the cluster"
    )
    server.refuses_choice = ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert refusal(server).endswith(
        "does not offer SCRAM-SHA-512, only GSSAPI; change cluster.security.mechanism"
    )
    server.refuses_choice = ErrorCode.ILLEGAL_SASL_STATE
    assert refusal(server).endswith("accepts no login: ILLEGAL_SASL_STATE")


def test_pitfall_36_a_refused_client_waits_longer_each_time() -> None:
    """A wrong password makes no storm of logins (kafka-python #1892)."""
    server, now_ms = LoginServer(), [0]
    waits: list[int] = []

    async def main() -> None:
        one = ClientLogin(LoginSettings("shop", "wrong"), random.Random(1))
        backoff = Backoff(1, 2, random.Random(1))
        async with ScriptedServer(server.answer) as scripted:
            settings = LinkSettings("test", login=one)
            link = NodeLink("127.0.0.1", scripted.port, settings, backoff, lambda: now_ms[0])
            for _ in range(8):
                with pytest.raises(EntryRefused):
                    await link.get()
                assert link.is_backing_off
                assert isinstance(link.refusal, LoginRefused)
                waits.append(link.retry_at_ms - now_ms[0])
                now_ms[0] = link.retry_at_ms
            await link.close()

    asyncio.run(main())
    assert all(400 <= wait <= 36_000 for wait in waits), waits
    assert waits == sorted(waits[:6]) + waits[6:], waits
    assert waits[-1] > 24_000


def test_a_cluster_says_at_once_that_it_cannot_be_entered() -> None:
    server = LoginServer()

    async def main() -> str:
        async with ScriptedServer(server.answer) as scripted:
            login = LoginSettings("shop", "wrong")
            cluster = Cluster(f"127.0.0.1:{scripted.port}", client_id="test", login=login)
            try:
                with pytest.raises(EntryRefused) as caught:
                    await cluster.start()
                return str(caught.value)
            finally:
                await cluster.close()

    assert "refused the login" in asyncio.run(main())


def test_a_server_that_cannot_prove_itself_is_not_believed() -> None:
    server = LoginServer()
    server.knows_the_user = False
    assert refusal(server).endswith("the server does not know the keys of this user")


def test_pitfall_10_a_million_iterations_are_the_most() -> None:
    server = LoginServer()
    server.iterations = 1_000_001
    assert "asks for 1000001 iterations" in refusal(server)


def test_a_session_is_extended_before_its_end() -> None:
    server = LoginServer()
    server.life_ms = 100

    async def talk(connect: Callable[[], Awaitable[Connection]]) -> None:
        connection = await connect()
        async with asyncio.timeout(10):
            while server.login_count < 3:
                await connection.request(MetadataRequest(), timeout_ms=5_000)
        assert not connection.is_closed

    run(server, talk)


def test_a_session_that_cannot_be_extended_ends_with_the_reason() -> None:
    server = LoginServer()
    server.life_ms = 100

    async def talk(connect: Callable[[], Awaitable[Connection]]) -> None:
        connection = await connect()
        server.refuses_choice = ErrorCode.ILLEGAL_SASL_STATE
        async with asyncio.timeout(10):
            await connection.wait_closed()
        with pytest.raises(
            ConnectionLost, match=r"did not extend the session: .* accepts no login"
        ):
            await connection.request(MetadataRequest(), timeout_ms=5_000)

    run(server, talk)


def test_a_password_is_not_printed() -> None:
    assert "canary" not in repr(LoginSettings("shop", "canary", Mechanism.SHA_256))
