"""Recognises the person or program behind a request, and logs people in and out."""

import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from starlette.requests import HTTPConnection

from monitor.config.settings import PageLogin
from monitor.login.checking import PasswordChecker, TooManyLogins
from monitor.login.passwords import UNKNOWN
from monitor.login.people import PageRole, Person, fingerprint_of
from monitor.login.proxies import Proxies, person_of
from monitor.login.register import Register
from monitor.login.sessions import SESSIONS_MAX, PageSession, PageSessions, is_over
from monitor.login.throttle import RequestAllowance, WrongLogins, network_of
from protocol.log import fields

COOKIE, SECURE_COOKIE = "mill", "__Host-mill"
SECRET_BYTES = 32
REQUESTS_PER_S, REQUESTS_BURST = 20, 60
STREAMS_MAX = 10
USES_MAX = 10_000
EVENTS = "/events"
AUTOMATIC_HEADER = "millrace-refresh"
"""The header of requests that an open page sends automatically. They do not extend a session."""

OWN_KEY = "millrace.own"
"""The key in the scope of a request that came over the monitor's own socket."""

IDENTITY_KEY = "millrace.identity"
TRUSTED_KEY = "millrace.proxy-headers"
"""The key in the scope for the headers of a request that came from a proxy of `monitor.proxies`."""

logger = logging.getLogger(__name__)


class PageLoginRefused(Exception):
    """The error for a login that is refused. `wait_ms` says when to try again."""

    def __init__(self, text: str, wait_ms: int = 0) -> None:
        super().__init__(text)
        self.wait_ms = wait_ms


class VisitorKind(StrEnum):
    """The ways in which a request can be recognised."""

    MILL = "mill"
    PERSON = "person"
    PROXIED = "proxied"
    TOKEN = "token"


@dataclass(frozen=True, slots=True)
class Visitor:
    """The person or program behind a request. A program has no session, so it gives no orders."""

    name: str
    role: PageRole
    kind: VisitorKind
    is_valid: Callable[[], bool]
    session: PageSession | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The key under which requests and streams are counted."""
        return self.kind, self.name if self.session is None else self.session.fingerprint


@dataclass(slots=True)
class Use:
    """The requests and open streams of one identity."""

    bucket: RequestAllowance
    streams: int = 0


def identity_of(request: HTTPConnection) -> Visitor | None:
    """Return the identity behind a request; None if the page needs no login."""
    found: Visitor | None = request.scope.get(IDENTITY_KEY)
    return found


def is_stranger(request: HTTPConnection) -> bool:
    """Return whether the page needs a login and the request has none."""
    return IDENTITY_KEY in request.scope and request.scope[IDENTITY_KEY] is None


def address_of(request: HTTPConnection) -> str:
    """Return the address of a request's client."""
    return request.client.host if request.client is not None else "unknown"


class Logins:
    """The logins of one page: its people and tokens, and their sessions."""

    def __init__(self, settings: PageLogin, clock_ms: Callable[[], int]) -> None:
        self.settings = settings
        self.proxies = Proxies.of(settings.proxies)
        self._roles = {group: PageRole(role) for group, role in settings.roles.items()}
        self._clock_ms = clock_ms
        self._register = Register(settings.folder)
        self._sessions = PageSessions(_draw)
        self._proxied: dict[tuple[str, PageRole], PageSession] = {}
        self._wrong = WrongLogins()
        self._checker = PasswordChecker(clock_ms)
        self._uses: dict[tuple[str, str], Use] = {}

    @property
    def has_form(self) -> bool:
        """True if people log in on the page itself."""
        return self.settings.mode == "users"

    def identify(self, request: HTTPConnection) -> Visitor | None:
        """Return the identity behind a request; None if it is not known.

        If a request has a bearer token, its cookie does not count.
        """
        if request.scope.get(OWN_KEY):
            return Visitor("mill", PageRole.VIEWER, VisitorKind.MILL, lambda: True)
        credentials = request.headers.getlist("authorization")
        if len(credentials) > 1:
            return None
        scheme, _, token = "".join(credentials).partition(" ")
        if scheme.lower() == "bearer":
            return self._of_token(token.strip())
        if not self.has_form:
            return self._of_proxy(request)
        session = self._sessions.find(
            request.cookies.get(cookie_name(request)),
            self._register.people,
            self._clock_ms(),
            is_used=not _is_automatic(request),
        )
        if session is None:
            return None
        return Visitor(
            session.person.name,
            session.person.role,
            VisitorKind.PERSON,
            lambda: not is_over(session, self._register.people, self._clock_ms()),
            session,
        )

    def use_of(self, identity: Visitor) -> Use:
        """Return the requests and streams of an identity."""
        found = self._uses.get(identity.key)
        if found is None:
            if len(self._uses) >= USES_MAX:
                self._uses = {key: one for key, one in self._uses.items() if one.streams}
            now_ms = self._clock_ms()
            bucket = RequestAllowance(REQUESTS_PER_S, REQUESTS_BURST, REQUESTS_BURST, now_ms)
            found = self._uses[identity.key] = Use(bucket)
        return found

    def may_ask(self, identity: Visitor) -> bool:
        """Count a request. Return False if the identity sends too many."""
        if identity.kind is VisitorKind.MILL:
            return True
        return self.use_of(identity).bucket.take(self._clock_ms())

    async def log_in(self, request: HTTPConnection, name: str, password: str) -> str:
        """Open a session for a person, and end the one of the request. Return the session's key.

        Raise PageLoginRefused for a wrong name or password, and TooManyLogins.
        """
        network = network_of(address_of(request))
        keys = (network, (name, network))
        if wait_ms := self._wrong.wait_ms(keys, self._clock_ms()):
            seconds = -(-wait_ms // 1_000)
            raise PageLoginRefused(f"Too many wrong logins: try again in {seconds} s.", wait_ms)
        person = self._register.people.get(name)
        # The attempt counts as wrong until the check has ended, so attempts at the same time wait.
        self._wrong.begin(keys, self._clock_ms())
        try:
            is_right = await self._checker.check(password, person.password if person else None)
        except TooManyLogins:
            self._wrong.take_back(keys)
            raise
        if not is_right or person is None or self._register.people.get(name) != person:
            known = {"who": name} if person is not None else {}
            # Do not log an unknown name, because people type passwords into the wrong field.
            logger.warning(
                "login on the page refused", extra=fields(address=address_of(request), **known)
            )
            raise PageLoginRefused("The name or the password is wrong.")
        self._wrong.succeed(keys)
        self.log_out(request)
        key, _ = self._sessions.open(person, self._clock_ms())
        logger.warning("login on the page", extra=fields(who=name, address=address_of(request)))
        return key

    def log_out(self, request: HTTPConnection) -> None:
        """End the session of a request, if it has one."""
        key = request.cookies.get(cookie_name(request))
        found = self._sessions.find(key, self._register.people, self._clock_ms(), is_used=False)
        if found is not None:
            self._sessions.end(found)

    def _of_token(self, text: str) -> Visitor | None:
        fingerprint = fingerprint_of(text)
        if fingerprint is None:
            return None

        def is_valid() -> bool:
            token = self._register.token(fingerprint)
            return token is not None and not token.has_ended(self._clock_ms())

        token = self._register.token(fingerprint)
        if token is None or not is_valid():
            return None
        return Visitor(token.name, token.role, VisitorKind.TOKEN, is_valid)

    def _of_proxy(self, request: HTTPConnection) -> Visitor | None:
        secret = self.settings.proxy_secret
        if not request.scope.get(TRUSTED_KEY) or secret is None:
            return None
        headers = request.scope[TRUSTED_KEY]
        found = person_of(headers, secret.get_secret_value(), self._roles)
        if isinstance(found, str):
            logger.warning(
                "a request of the proxy is refused",
                extra=fields(address=address_of(request), why=found),
            )
            return None
        session = self._proxied.get((found.name, found.role))
        if session is None:
            if len(self._proxied) >= SESSIONS_MAX:
                self._proxied.clear()
            # No cookie leads to this session. It has the secret of the person's forms.
            now_ms, person = self._clock_ms(), Person(found.name, found.role, UNKNOWN)
            session = PageSession(
                f"{found.role} {found.name}", _draw(), person, now_ms, now_ms,
                can_order=found.role is PageRole.OPERATOR,
            )  # fmt: skip
            self._proxied[found.name, found.role] = session
        return Visitor(found.name, found.role, VisitorKind.PROXIED, lambda: True, session)


def _is_automatic(request: HTTPConnection) -> bool:
    """Return whether an open page sent a request without its user. Browsers open the stream again
    each time that the connection breaks, and cannot send a header with that."""
    return AUTOMATIC_HEADER in request.headers or request.scope["path"] == EVENTS


def _draw() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def cookie_name(request: HTTPConnection) -> str:
    """Return the name of the session's cookie.

    Browsers accept the prefix `__Host-` only over HTTPS and for the whole host.
    """
    return SECURE_COOKIE if request.url.scheme == "https" else COOKIE
