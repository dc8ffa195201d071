"""The login of one client connection: SASL with SCRAM, as a state machine.

This module is pure: time, random bytes and credentials come in as arguments. The states are:
nothing chosen, a mechanism chosen (after SaslHandshake), challenged (after the first
SaslAuthenticate), logged in, and failed. A client that is logged in can log in again to extend its
session (KIP-368), as the same user with the same mechanism. A failed login ends the connection.

A user that does not exist gets a challenge like every other user, with a salt that stays the same.
The login then fails in its last step. So the answers do not show which users exist, provided that
all credentials have the default iterations and a salt of `SALT_BYTES`, as `millrace user` writes
them.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from protocol.errors import WireError
from protocol.messages.api import ApiKey
from protocol.security.scram import (
    ITERATIONS_DEFAULT,
    MECHANISMS,
    SALT_BYTES,
    Mechanism,
    ScramCredential,
    ScramError,
    ServerExchange,
)

LOGIN_MS_MAX = 10_000
"""The longest time in milliseconds for the TLS handshake and the login together."""

LOGIN_FRAME_BYTES_MAX = 64 << 10
"""The largest number of bytes of a request before the login, because anyone can send it."""

API_VERSIONS_MAX = 3
"""The largest number of ApiVersions requests before the login. A client sends one, or two if its
version is new."""

RELOGIN_MS_MIN = 1_000
"""The shortest time in milliseconds between two logins of one connection, as in Kafka."""

CredentialKey = tuple[str, Mechanism]

_SASL = frozenset({int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE)})
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class NotLoggedIn(WireError):
    """Raised for a request that the connection may not send in this state. The connection is
    closed."""


class LoginFailed(Exception):
    """The login has failed. The text is only for this side's log."""

    def __init__(self, reason: str, user: str, mechanism: Mechanism) -> None:
        super().__init__(reason)
        self.user = user
        """The user name that the client has sent; empty if it has sent none."""
        self.mechanism = mechanism


class WrongLoginStep(Exception):
    """Raised for a request of the login that does not fit the state of the login."""


@dataclass(slots=True)
class LoginAttempt:
    """A login in progress."""

    mechanism: Mechanism
    exchange: ServerExchange
    credential: ScramCredential | None = None
    """The credential for which the challenge was made; None before the challenge."""


@dataclass(frozen=True, slots=True)
class LoginAnswer:
    """The server's message in one step of the login."""

    message: bytes
    session_ms: int = 0
    """The lifetime of the session in milliseconds, in the answer that completes a login; 0 without
    an end."""


@dataclass(frozen=True, slots=True)
class LoginRules:
    """The data of the broker that a step of a login needs."""

    credentials: Mapping[CredentialKey, ScramCredential]
    salt_secret: bytes = field(repr=False)
    """The secret from which the salts of unknown users are made."""
    session_ms: int
    """The lifetime of a session in milliseconds; 0 without an end."""
    now_ms: int
    """The wall time, with which the ends of credentials are compared."""


class Login:
    """The login of one connection."""

    def __init__(
        self, began_ms: int, on_complete: Callable[[], None], end: Callable[[], None]
    ) -> None:
        """`began_ms` is the monotonic time at which the client connected. `on_complete` is called
        after the first login. `end` closes the connection when its answers have been sent."""
        self.user = ""
        """The user that has logged in; empty before the login."""
        self.mechanism: Mechanism | None = None
        self.credential: ScramCredential | None = None
        """The credential with which the user has logged in; None before the login."""
        self.end = end
        self.has_failed = False
        self._began_ms = began_ms
        self._on_complete = on_complete
        self._ends_ms = 0
        self._attempt: LoginAttempt | None = None
        self._attempt_ms: int | None = None
        self._api_versions = 0

    @property
    def is_complete(self) -> bool:
        """True if the client has logged in."""
        return bool(self.user)

    def uses(self, keys: set[CredentialKey]) -> bool:
        """Return True if the session depends on one of these credentials."""
        return self.mechanism is not None and (self.user, self.mechanism) in keys

    def overdue(self, now_ms: int) -> str:
        """Return the reason to close the connection at this time; empty if it may stay open."""
        if not self.is_complete and now_ms - self._began_ms > LOGIN_MS_MAX:
            return f"no login within {LOGIN_MS_MAX} ms"
        if self._ends_ms and now_ms >= self._ends_ms:
            return "the session ended, because the client did not log in again"
        return ""

    def extend(self, pause_ms: int) -> None:
        """Extend the session by a pause, in which the client could not log in again."""
        if self._ends_ms:
            self._ends_ms += pause_ms

    def allows_all(self, now_ms: int) -> bool:
        """Return True if the client has logged in and may send every request at this time."""
        return self.is_complete and not self.has_failed and not self.overdue(now_ms)

    def check_request(self, api_key: int, now_ms: int) -> None:
        """Raise NotLoggedIn if a request may not be served. Call this before its body is
        decoded."""
        if self.has_failed:
            raise NotLoggedIn("the client sent a request although its login had failed")
        if api_key in _SASL:
            return
        if self.is_complete:
            if reason := self.overdue(now_ms):
                raise NotLoggedIn(reason)
            return
        if api_key != _API_VERSIONS:
            raise NotLoggedIn(
                f"the client sent a request with API key {api_key} before its login;"
                " set security.protocol=SASL_SSL in the client"
            )
        self._api_versions += 1
        if self._api_versions > API_VERSIONS_MAX:
            raise NotLoggedIn(
                f"the client sent more than {API_VERSIONS_MAX} ApiVersions requests before its "
                "login"
            )

    def choose(self, name: str, now_ms: int) -> bool:
        """Choose the mechanism. Return False if the mechanism is not offered, which fails the
        login.

        Raises WrongLoginStep if the client may not choose one in this state.
        """
        if self.is_complete:
            last_ms = self._attempt_ms
            if not self._ends_ms or (last_ms is not None and now_ms - last_ms < RELOGIN_MS_MIN):
                raise WrongLoginStep(
                    "the client has already logged in, and must not log in again at this time"
                )
        elif self._attempt is not None:
            self.has_failed = True
            raise WrongLoginStep("the client has already chosen a mechanism")
        mechanism = MECHANISMS.get(name)
        if mechanism is None:
            self.has_failed = True
            return False
        if self.is_complete and mechanism is not self.mechanism:
            self.has_failed = True
            raise WrongLoginStep("a client must log in again with the mechanism of its first login")
        self._attempt = LoginAttempt(mechanism, ServerExchange(mechanism.digest))
        self._attempt_ms = now_ms
        return True

    def step(self, message: bytes, rules: LoginRules, random: bytes, now_ms: int) -> LoginAnswer:
        """Handle the client's next message and return the server's. The nonce is made of `random`.

        Raises WrongLoginStep if no mechanism is chosen, and LoginFailed if the message is wrong.
        """
        attempt = self._attempt
        if attempt is None:
            self.has_failed = not self.is_complete
            raise WrongLoginStep("the client must send SaslHandshake before SaslAuthenticate")
        try:
            return self._step(attempt, message, rules, random, now_ms)
        except ScramError as error:
            self.has_failed = True
            raise LoginFailed(str(error), attempt.exchange.user, attempt.mechanism) from error

    def _step(
        self,
        attempt: LoginAttempt,
        message: bytes,
        rules: LoginRules,
        random: bytes,
        now_ms: int,
    ) -> LoginAnswer:
        if attempt.credential is None:
            user = attempt.exchange.first(message)
            attempt.credential = _credential(user, attempt.mechanism, rules)
            return LoginAnswer(attempt.exchange.challenge(attempt.credential, random))
        user = attempt.exchange.user
        last = attempt.exchange.final(message)
        # The credential can have changed since the challenge.
        if rules.credentials.get((user, attempt.mechanism)) != attempt.credential:
            raise ScramError("the credential was changed during the login")
        if attempt.credential.has_expired(rules.now_ms):
            raise ScramError("the join file of the user has expired")
        if self.is_complete and user != self.user:
            raise ScramError("a client must log in again as the same user")
        is_first = not self.is_complete
        self._attempt = None
        self.user, self.mechanism = user, attempt.mechanism
        self.credential = attempt.credential
        session_ms = _session_ms(attempt.credential, rules)
        self._ends_ms = now_ms + session_ms if session_ms else 0
        if is_first:
            self._on_complete()
        return LoginAnswer(last, session_ms)


def _session_ms(credential: ScramCredential, rules: LoginRules) -> int:
    """Return the lifetime of a session in milliseconds; 0 without an end."""
    if not credential.expires_at_ms:
        return rules.session_ms
    rest_ms = credential.expires_at_ms - rules.now_ms
    return min(rest_ms, rules.session_ms) if rules.session_ms else rest_ms


def _credential(user: str, mechanism: Mechanism, rules: LoginRules) -> ScramCredential:
    """Return the user's credential. If there is none, return a dummy credential that fits no
    password.

    The dummy is computed in all cases, so that the time does not show which of the two is returned.
    """
    seed = hmac.digest(rules.salt_secret, f"{mechanism.sasl_name}:{user}".encode(), "sha512")
    # The keys of the dummy are made of secret bytes too, so no client can compute a proof for them.
    keys = hmac.digest(rules.salt_secret, seed, mechanism.digest)
    dummy = ScramCredential(seed[:SALT_BYTES], keys, keys, ITERATIONS_DEFAULT)
    return rules.credentials.get((user, mechanism), dummy)
