"""Sessions of users who gave the token, and the plans that each session was shown.

This module is pure. The key of a session is only in its cookie. The session's forms have another
secret, so that a page of another site cannot send a form with the browser's cookie. Each plan has a
ticket, which can be used once. Sessions and plans are only in memory, so they end with the process.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field

from monitor.admin.operations import Plan
from monitor.login.throttle import WrongLogins, network_of

IDLE_MS_MAX = 30 * 60_000
SESSIONS_MAX = 20
TICKETS_MAX = 20
TICKET_MS_MAX = 10 * 60_000
WHO_CHARS_MAX = 60


class Refused(Exception):
    """The error for a login or a form that is refused. Its text says why."""


@dataclass(slots=True)
class Session:
    """The session of one user.

    `who` is the user's name, and `form_secret` is in the session's forms.
    """

    key: str
    form_secret: str
    who: str
    seen_at_ms: int
    tickets: dict[str, tuple[Plan, int]] = field(default_factory=dict)


class Door:
    """Opens sessions for users who give the right token, or who have logged in to the page.

    `draw` returns a new random secret. If `token` is None, only people who have logged in can give
    orders.
    """

    def __init__(self, token: str | None, draw: Callable[[], str]) -> None:
        self._token = None if token is None else token.encode()
        self._draw = draw
        self._sessions: dict[str, Session] = {}
        self._wrong = WrongLogins()

    def enter(self, token: str, who: str, address: str, now_ms: int) -> Session:
        """Open a session for a user at an address.

        Raise Refused for a wrong token. After it, further tokens from the same address must wait.
        """
        network = (network_of(address),)
        if wait_ms := self._wrong.wait_ms(network, now_ms):
            seconds = -(-wait_ms // 1_000)
            raise Refused(f"your address has sent wrong tokens: try again in {seconds} s")
        # Compare in constant time, so that the duration of the comparison reveals nothing about the
        # token.
        if self._token is None or not hmac.compare_digest(token.strip().encode(), self._token):
            self._wrong.begin(network, now_ms)
            raise Refused("the text you gave is not the token")
        self._wrong.forget(network)
        name = who.strip()
        if not name or len(name) > WHO_CHARS_MAX or not name.isprintable():
            raise Refused(f"give a name of at most {WHO_CHARS_MAX} characters, for the log")
        return self._keep(Session(self._draw(), self._draw(), name, now_ms), now_ms)

    def admit(self, key: str, form_secret: str, who: str, now_ms: int) -> Session:
        """Return the session for orders of a person who has logged in to the page.

        `key` and `form_secret` are those of the person's session on the page.
        """
        found = self.find(key, now_ms)
        if found is not None and found.who == who and found.form_secret == form_secret:
            return found
        return self._keep(Session(key, form_secret, who, now_ms), now_ms)

    def _keep(self, session: Session, now_ms: int) -> Session:
        self._forget_idle(now_ms)
        while len(self._sessions) >= SESSIONS_MAX:
            oldest = min(self._sessions.values(), key=lambda one: one.seen_at_ms)
            del self._sessions[oldest.key]
        self._sessions[session.key] = session
        return session

    def find(self, key: str | None, now_ms: int) -> Session | None:
        """Return the session of a cookie and extend it; None if the session has expired or never
        existed.
        """
        self._forget_idle(now_ms)
        session = self._sessions.get(key or "")
        if session is not None:
            session.seen_at_ms = now_ms
        return session

    def leave(self, session: Session) -> None:
        """End a session and its tickets."""
        self._sessions.pop(session.key, None)

    def check(self, session: Session, form_secret: str) -> None:
        """Raise Refused for a form that does not belong to this session."""
        if not hmac.compare_digest(form_secret.encode(), session.form_secret.encode()):
            raise Refused("the form belongs to another session: open the page again")

    def show(self, session: Session, plan: Plan, now_ms: int) -> str:
        """Keep a plan and return its ticket, which the user needs to confirm the plan; drop the
        oldest plans.
        """
        while len(session.tickets) >= TICKETS_MAX:
            del session.tickets[next(iter(session.tickets))]
        ticket = self._draw()
        session.tickets[ticket] = (plan, now_ms)
        return ticket

    def take(self, session: Session, ticket: str, name: str, now_ms: int) -> Plan:
        """Return a ticket's plan and delete the ticket, if the user typed the plan's subject.
        Otherwise raise Refused.
        """
        plan, shown_at_ms = session.tickets.get(ticket, (None, 0))
        if plan is None or now_ms - shown_at_ms > TICKET_MS_MAX:
            raise Refused("the plan was carried out already or is too old: submit the form again")
        if name.strip() != plan.subject.strip():
            raise Refused(f"found the name {name!r}, expected {plan.subject!r}: nothing was done")
        del session.tickets[ticket]
        return plan

    def _forget_idle(self, now_ms: int) -> None:
        for key, session in list(self._sessions.items()):
            if now_ms - session.seen_at_ms > IDLE_MS_MAX:
                del self._sessions[key]
