"""Logs our client in with SCRAM, and again before its session ends (KIP-368).

The key that is derived from the password is kept, so connecting again costs no derivation. The
derivation runs in a thread, because a server can ask for half a second of it.
"""

import asyncio
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from protocol.client.errors import ClientError, ConnectionLost, EntryRefused
from protocol.errors import ApiError, ErrorCode
from protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from protocol.security.scram import (
    NONCE_BYTES,
    Challenge,
    ClientExchange,
    Mechanism,
    ScramError,
    salted_password,
)
from protocol.wire.schema import Message

RENEWAL = (0.8, 0.9)
"""The share of the session lifetime after which the client logs in again."""

PASSWORD_CHARS_MAX = 64 * 1024
"""The most characters that are read from a file with a password."""


class LoginConnection(Protocol):
    """The methods of `connection.Connection` that a login uses."""

    @property
    def peer(self) -> str:
        """The address of the broker."""

    async def request(self, request: Message, *, timeout_ms: int) -> Any:
        """Send a request and return the response."""

    async def wait_closed(self) -> None:
        """Return when the connection has ended."""

    def close(self, error: ClientError | None = None) -> None:
        """Close the connection with this reason."""


@dataclass(frozen=True, slots=True, repr=False)
class LoginSettings:
    """The user of a client, and how it logs in."""

    user: str
    password: str
    mechanism: Mechanism = Mechanism.SHA_512
    password_file: str | None = None
    """A file whose only line is the password. If it is set, each login reads it, and `password` is
    not used."""

    def current_password(self) -> str:
        """Return the password to use now. Raises OSError and UnicodeDecodeError."""
        if self.password_file is None:
            return self.password
        with Path(self.password_file).open(encoding="utf-8") as file:
            return file.read(PASSWORD_CHARS_MAX).removesuffix("\n").removesuffix("\r")


class LoginRefused(EntryRefused):
    """The broker refuses the login, or cannot prove that it knows the user's keys."""


class ClientLogin:
    """Logs the connections of one client in."""

    def __init__(self, settings: LoginSettings, rng: random.Random) -> None:
        self._settings = settings
        self._rng = rng
        self._salted: tuple[bytes, int, str, bytes] | None = None
        """Salt, iterations, password and the salted password of the last login."""
        self._renewals: set[asyncio.Task[None]] = set()

    async def log_in(self, connection: LoginConnection, timeout_ms: int) -> None:
        """Log a new connection in, and keep its session alive until it is closed.

        Raises LoginRefused, ConnectionLost, and ApiError.
        """
        life_ms = await self._log_in(connection, timeout_ms)
        if life_ms:
            task = asyncio.create_task(self._renew(connection, timeout_ms, life_ms))
            self._renewals.add(task)
            task.add_done_callback(self._renewals.discard)

    async def _renew(self, connection: LoginConnection, timeout_ms: int, life_ms: int) -> None:
        while life_ms:
            try:
                async with asyncio.timeout(life_ms * self._rng.uniform(*RENEWAL) / 1000):
                    await connection.wait_closed()
                return
            except TimeoutError:
                pass
            try:
                life_ms = await self._log_in(connection, timeout_ms)
            except (ClientError, ApiError) as error:
                connection.close(
                    ConnectionLost(f"{connection.peer} did not extend the session: {error}")
                )
                return

    async def _log_in(self, connection: LoginConnection, timeout_ms: int) -> int:
        """Log in. Return the session lifetime in milliseconds; 0 for a session without an end."""
        mechanism = self._settings.mechanism
        try:
            password = self._settings.current_password()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise LoginRefused(
                f"the password of user {self._settings.user} (cluster.security.password) cannot be"
                f" read from {self._settings.password_file}: {reason}"
            ) from error
        chosen: SaslHandshakeResponse = await connection.request(
            SaslHandshakeRequest(mechanism=mechanism.sasl_name), timeout_ms=timeout_ms
        )
        if chosen.error_code:
            raise LoginRefused(_choice_text(connection.peer, mechanism, chosen))
        exchange = ClientExchange(self._settings.user, mechanism.digest, os.urandom(NONCE_BYTES))
        try:
            told = await _authenticate(connection, exchange.first(), timeout_ms)
            challenge = exchange.challenged(bytes(told.auth_bytes))
            proof = exchange.final(challenge, await self._salt(challenge, password))
            last = await _authenticate(connection, proof, timeout_ms)
            exchange.verify(bytes(last.auth_bytes))
        except ScramError as error:
            raise LoginRefused(
                f"{connection.peer} and user {self._settings.user} could not log in: {error}"
            ) from error
        return last.session_lifetime_ms

    async def _salt(self, challenge: Challenge, password: str) -> bytes:
        asked = challenge.salt, challenge.iterations, password
        if self._salted is None or self._salted[:3] != asked:
            derived = await asyncio.to_thread(
                salted_password,
                password,
                challenge.salt,
                challenge.iterations,
                self._settings.mechanism.digest,
            )
            self._salted = (*asked, derived)
        return self._salted[3]


async def _authenticate(
    connection: LoginConnection, message: bytes, timeout_ms: int
) -> SaslAuthenticateResponse:
    answer: SaslAuthenticateResponse = await connection.request(
        SaslAuthenticateRequest(auth_bytes=message), timeout_ms=timeout_ms
    )
    if answer.error_code:
        reason = answer.error_message or ErrorCode.of(answer.error_code).name
        raise LoginRefused(
            f"{connection.peer} refused the login: {reason}; compare cluster.security.user and"
            " cluster.security.password with the user in the cluster"
        )
    return answer


def _choice_text(peer: str, mechanism: Mechanism, chosen: SaslHandshakeResponse) -> str:
    if chosen.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(chosen.mechanisms) or "none"
        return (
            f"{peer} does not offer {mechanism.sasl_name}, only {offered}; change"
            " cluster.security.mechanism"
        )
    return f"{peer} accepts no login: {ErrorCode.of(chosen.error_code).name}"
