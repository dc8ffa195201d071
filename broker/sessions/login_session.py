"""A client connection that must log in first, and the check of its requests.

Until the login is complete, requests must be small, few APIs are served, and the limit on silent
connections includes the connection. The check looks at the API key before the request is decoded.
"""

from __future__ import annotations

from typing import Any

from broker.security.rights import NOTHING
from broker.sessions.call import RequestingSession
from broker.sessions.login import LOGIN_FRAME_BYTES_MAX, Login, NotLoggedIn
from broker.sessions.pipeline import Slot
from broker.sessions.reception import FastPath, Reception, Starts
from broker.sessions.session import Session
from broker.world import Clock, End, Link
from protocol.security.acl import AclOperation, AclResource

_KEY_BYTES = 2


class LoginSession(Session):
    """A connection on a listener that requires a login."""

    def __init__(self, reception: Reception) -> None:
        super().__init__(reception)
        self.rights = NOTHING
        began_ms = reception.clock.monotonic_ms()
        self.login = Login(began_ms, self._logged_in, self._end_after_answers)

    def linked(self, link: Link) -> None:
        """Admit the new connection, with small requests only."""
        link.limit_frames(LOGIN_FRAME_BYTES_MAX)
        super().linked(link)

    def _logged_in(self) -> None:
        """Lift the limits, because the client has logged in."""
        self.has_spoken = True
        self.reception.sessions.spoke(self)
        self.link.limit_frames(self.reception.settings.config.socket_request_max_bytes)

    def _end_after_answers(self) -> None:
        """Read nothing more, and close the connection when its answers have been sent."""
        if not self.is_closed:
            self.link.pause()
            self.ended(End.EOF)


class LoginGuard:
    """Passes on the requests of clients that have logged in."""

    def __init__(self, dispatcher: Starts, clock: Clock) -> None:
        self._dispatcher = dispatcher
        self._clock = clock

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, waited_ns: int = 0
    ) -> None:
        """Serve one request. Raises WireError if the connection must be closed."""
        login = session.login
        if login is None or len(frame) < _KEY_BYTES:
            raise NotLoggedIn("the client sent a request that is too short to have an API key")
        login.check_request(int.from_bytes(frame[:_KEY_BYTES], "big"), self._clock.monotonic_ms())
        self._dispatcher.start(session, slot, frame, waited_ns)


class LoginFastPath:
    """The fast path of a listener that requires a login.

    It declines a Produce that the guard or the handler would refuse, so that it is refused on the
    normal path.
    """

    def __init__(self, fast_path: FastPath, clock: Clock) -> None:
        self._fast_path = fast_path
        self._clock = clock

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, template: Any
    ) -> bool:
        """Serve the Produce as `reception.FastPath` does. Return False if it must take the normal
        path."""
        login = session.login
        if login is None or not login.allows_all(self._clock.monotonic_ms()):
            return False
        if not session.rights.allows(AclOperation.WRITE, AclResource.TOPIC, template.topic):
            return False
        return self._fast_path.start(session, slot, frame, template)
