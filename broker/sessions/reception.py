"""The settings, limits and objects that all sessions of one listener share.

This module is pure. Its protocols describe the objects of other packages that a session uses.
`node/listeners` supplies these objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from broker.budget import WorkBudget
from broker.config import InForce
from broker.metrics.warnings import Warnings
from broker.sessions.call import RequestingSession
from broker.sessions.pipeline import Slot
from broker.world import Clock, Later, Soon


class RequestTemplate(Protocol):
    """The bytes that are the same in all small Produce requests of a session."""

    def fits(self, frame: memoryview) -> bool:
        """Return True if the frame has the same bytes before its batch as the template."""


class FastPath(Protocol):
    """Serves a Produce that resembles the previous one, without decoding it field by field."""

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, template: Any
    ) -> bool:
        """Serve the Produce in a frame that fits the template.

        Return False if it must take the normal path. Nothing has changed in this case.
        """


class NoFastPath:
    """The fast path of a listener that does not serve Produce. It declines every request."""

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, template: Any
    ) -> bool:
        return False


class Starts(Protocol):
    """Serves requests on the normal path. `dispatch` implements this."""

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, waited_ns: int = 0
    ) -> None:
        """Serve one request. Raises WireError if the connection must be closed."""


class CountedSession(Protocol):
    """A session. The limits use these members."""

    @property
    def listener_name(self) -> str:
        """The name of the listener to which the client is connected."""

    @property
    def peer_host(self) -> str:
        """The client's address, without its port."""

    @property
    def has_spoken(self) -> bool:
        """True if the client has sent at least one byte, or has logged in where a login is
        required."""


class SessionLimits(Protocol):
    """The limits on sessions, and the counts of sessions (`sessions`)."""

    def admit(self, session: Any, now_ms: int) -> str:
        """Admit a session and return an empty string, or return the limit that it exceeds."""

    def spoke(self, session: CountedSession) -> None:
        """Record that `has_spoken` of a session has become true."""

    def account(self, session: CountedSession, added_bytes: int) -> str:
        """Add a change of the session's memory in bytes. Return the limit that the total exceeds,
        or an empty string."""

    def release(self, session: Any) -> None:
        """Remove a session from the counts."""


@dataclass(slots=True)
class Reception:
    """The settings, limits and objects that the sessions of one listener share.

    `dispatcher` and `fast_path` change when the first quota is set and the last one is removed.
    """

    name: str
    settings: InForce
    clock: Clock
    turn_ns: Callable[[], int]
    soon: Soon
    later: Later
    budget: WorkBudget
    """The time that its sessions may use in one iteration of the event loop."""
    sessions: SessionLimits
    dispatcher: Starts
    fast_path: FastPath
    settle: Callable[[], None]
    """Writes the batches that the requests of a read have staged."""
    noted: Callable[[str], None]
    """Counts a new session. The text is the reason of its refusal, or empty."""
    warnings: Warnings

    def admit(self, session: Any) -> str:
        """Admit a new session and return an empty string, or return the reason for refusing it."""
        refusal = self.sessions.admit(session, self.clock.monotonic_ms())
        self.noted(refusal)
        return refusal
