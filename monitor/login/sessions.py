"""The sessions of people who have logged in.

This module is pure. A session's key is only in the browser's cookie; memory has its SHA-256. So
the sessions end with the process, and each of them can be ended at any time, which a signed cookie
cannot.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from monitor.login.people import PageRole, Person

LIFE_MS_MAX = 7 * 24 * 3_600_000
IDLE_MS_MAX = 12 * 3_600_000
ORDERS_IDLE_MS_MAX = 30 * 60_000
SESSIONS_MAX = 1_000
SESSIONS_OF_ONE_MAX = 20


@dataclass(slots=True)
class PageSession:
    """The session of one person. `form_secret` is in its forms, so that another site cannot send
    them."""

    fingerprint: str
    form_secret: str
    person: Person
    opened_at_ms: int
    used_at_ms: int
    can_order: bool
    """True if the person may give orders. A session that was not used for half an hour loses it."""

    has_ended: bool = False


class PageSessions:
    """Opens, finds and ends sessions. `draw` returns a new random secret."""

    def __init__(self, draw: Callable[[], str]) -> None:
        self._draw = draw
        self._sessions: dict[str, PageSession] = {}

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def open(self, person: Person, now_ms: int) -> tuple[str, PageSession]:
        """Open a session for a person. Return its key, which only the browser keeps."""
        own = [one for one in self._sessions.values() if one.person.name == person.name]
        if len(own) >= SESSIONS_OF_ONE_MAX:
            self.end(min(own, key=_used_at))
        if len(self._sessions) >= SESSIONS_MAX:
            self.end(min(self._sessions.values(), key=_used_at))
        key = self._draw()
        session = PageSession(
            _fingerprint(key),
            self._draw(),
            person,
            now_ms,
            now_ms,
            can_order=person.role is PageRole.OPERATOR,
        )
        self._sessions[session.fingerprint] = session
        return key, session

    def find(
        self, key: str | None, people: Mapping[str, Person], now_ms: int, *, is_used: bool
    ) -> PageSession | None:
        """Return the session of a cookie; None if it has ended or never existed.

        `is_used` is False for the requests that a page sends automatically, which do not extend the
        session.
        """
        session = self._sessions.get(_fingerprint(key)) if key else None
        if session is None:
            return None
        if is_over(session, people, now_ms):
            self.end(session)
            return None
        if now_ms - session.used_at_ms > ORDERS_IDLE_MS_MAX:
            session.can_order = False
        if is_used:
            session.used_at_ms = now_ms
        return session

    def end(self, session: PageSession) -> None:
        """End a session."""
        session.has_ended = True
        self._sessions.pop(session.fingerprint, None)


def is_over(session: PageSession, people: Mapping[str, Person], now_ms: int) -> bool:
    """Return True if a session has ended, is too old, or belongs to a person who was removed or
    changed.

    A new password or role changes the person, so the person must log in again.
    """
    return (
        session.has_ended
        or now_ms - session.opened_at_ms > LIFE_MS_MAX
        or now_ms - session.used_at_ms > IDLE_MS_MAX
        or people.get(session.person.name) != session.person
    )


def _used_at(session: PageSession) -> int:
    return session.used_at_ms


def _fingerprint(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
