"""Handles SaslHandshake and SaslAuthenticate: one step of a login per request.

A wrong password, an unknown user and a message that breaks the protocol get the same answer after
the same delay. Then the connection ends. Only this broker's log shows which of the three it was.
"""

from __future__ import annotations

import logging
from functools import partial

from broker.cluster.metadata import Metadata
from broker.config import InForce
from broker.metrics.warnings import Warnings
from broker.security.denials import NotesDenials
from broker.security.rights import NOTHING, EnrolmentRights, Rights, UserRights
from broker.sessions.call import Call
from broker.sessions.login import Login, LoginFailed, LoginRules, WrongLoginStep
from broker.world import World
from protocol.errors import ErrorCode
from protocol.log import escape
from protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from protocol.security.scram import MECHANISMS, NONCE_BYTES, Mechanism

logger = logging.getLogger(__name__)

FAILURE_DELAY_MS = 100
"""The milliseconds before the answer to a wrong proof, as
`connection.failed.authentication.delay.ms` in Kafka."""

CLOSE_DELAY_MS = 100
"""The milliseconds between the answer to a failed login and the end of the connection. If both come
together, kafka-python 3.0 drops the answer."""

USER_SHOWN_MAX = 64

REAUTH_SPREAD = 0.1
"""The largest share by which the lifetime of a session is shortened at random, so that clients do
not all log in again at once."""

OFFERED = list(MECHANISMS)
NO_LOGIN = "this listener requires no login"


class LoginHandlers:
    """Handles the requests of a login."""

    def __init__(
        self,
        metadata: Metadata,
        settings: InForce,
        world: World,
        warnings: Warnings,
        denials: NotesDenials,
    ) -> None:
        self._denials = denials
        self._metadata = metadata
        self._settings = settings
        self._world = world
        self._warnings = warnings

    def handshake(self, call: Call, request: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
        """Handle SaslHandshake.

        Version 0 is offered because librdkafka before 2.0 otherwise sends no handshake. No client
        sends version 0 itself. After it, messages without headers would follow, which this broker
        does not serve.
        """
        login = call.session.login
        if login is None:
            return _refused(ErrorCode.ILLEGAL_SASL_STATE)
        if call.version == 0:
            call.hang_up("a login with SaslHandshake version 0, expected version 1")
            return None
        try:
            is_offered = login.choose(request.mechanism, self._world.clock.monotonic_ms())
        except WrongLoginStep as error:
            self._note(call, str(error))
            self._end_if_failed(login)
            return _refused(ErrorCode.ILLEGAL_SASL_STATE)
        if not is_offered:
            name = escape(request.mechanism[:USER_SHOWN_MAX])
            reason = f"found {name}, expected {' or '.join(OFFERED)}"
            peer = call.session.peer
            self._warnings.warn(logger, "mechanism is not offered", peer=peer, reason=reason)
            self._end_if_failed(login)
            return _refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        return SaslHandshakeResponse(mechanisms=OFFERED)

    def authenticate(
        self, call: Call, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse | None:
        """Handle SaslAuthenticate."""
        login = call.session.login
        if login is None:
            return _illegal(NO_LOGIN)
        world = self._world
        try:
            answer = login.step(
                bytes(request.auth_bytes),
                self._rules(),
                world.secret_bytes(NONCE_BYTES),
                world.clock.monotonic_ms(),
            )
        except WrongLoginStep as error:
            self._note(call, str(error))
            self._end_if_failed(login)
            return _illegal(str(error))
        except LoginFailed as error:
            self._note(call, str(error), user=escape(error.user[:USER_SHOWN_MAX]))
            failed = partial(self._fail, call, login, error.mechanism)
            world.later(FAILURE_DELAY_MS, failed)
            return None
        session = call.session
        if login.is_complete and session.rights is NOTHING:
            session.rights = self._rights_of(login, session.peer_host)
        return SaslAuthenticateResponse(
            auth_bytes=answer.message, session_lifetime_ms=answer.session_ms
        )

    def _rights_of(self, login: Login, host: str) -> Rights:
        """Return the rights of a client that has just logged in."""
        if login.credential is not None and login.credential.is_enrolment:
            return EnrolmentRights(login.user, host, self._denials)
        return UserRights(
            login.user,
            host,
            lambda: self._metadata.image.acls,
            self._settings.config.super_user_names,
            self._denials,
        )

    def _rules(self) -> LoginRules:
        config = self._settings.config
        spread = self._world.chance.uniform(1 - REAUTH_SPREAD, 1)
        return LoginRules(
            self._metadata.image.credentials,
            config.login_secret,
            round(config.connections_max_reauth_ms * spread),
            self._world.clock.now_ms(),
        )

    def _fail(self, call: Call, login: Login, mechanism: Mechanism) -> None:
        call.answer(
            SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED,
                # Kafka's words, which users search for.
                error_message="Authentication failed during authentication due to invalid"
                f" credentials with SASL mechanism {mechanism.sasl_name}",
            )
        )
        self._end_if_failed(login)

    def _end_if_failed(self, login: Login) -> None:
        if login.has_failed:
            self._world.later(CLOSE_DELAY_MS, login.end)

    def _note(self, call: Call, reason: str, **more: str) -> None:
        self._warnings.warn(logger, "login failed", peer=call.session.peer, reason=reason, **more)


def _refused(code: ErrorCode) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=code, mechanisms=OFFERED)


def _illegal(reason: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=reason)
