"""What all sessions of one listener share: settings, limits and the objects they call.

Room: sessions. Pure. The protocols here describe what a session needs from higher rooms;
`node/broker` supplies them.
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
from broker.world import Clock, Soon


class RequestTemplate(Protocol):
    """The bytes that stay the same from one Produce of a session to the next."""

    def fits(self, frame: memoryview) -> bool:
        """Return True if a frame begins like the one before it."""


class FastPath(Protocol):
    """Serves a Produce that resembles the previous one, without decoding it field by field."""

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, template: Any
    ) -> bool:
        """Serve it. False: nothing has changed, and it must take the normal path."""


class NoFastPath:
    """For listeners without Produce."""

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, template: Any
    ) -> bool:
        return False


class Starts(Protocol):
    """Serves whole requests."""

    def start(
        self, session: RequestingSession, slot: Slot, frame: memoryview, waited_ns: int = 0
    ) -> None:
        """Serve one request. Raises WireError if the connection must be closed."""


class CountedSession(Protocol):
    """A session, as seen by the limits."""

    @property
    def listener_name(self) -> str:
        """The listener that it connected to."""

    @property
    def peer_host(self) -> str:
        """The address that it comes from."""

    @property
    def has_spoken(self) -> bool:
        """True if it has sent anything."""


class SessionLimits(Protocol):
    """The limits on sessions, and the sessions counted in them (`sessions`)."""

    def admit(self, session: Any, now_ms: int) -> str:
        """Admit a session and return an empty string, or return the limit that it exceeds."""

    def spoke(self, session: CountedSession) -> None:
        """Record that a session has sent its first byte."""

    def account(self, session: CountedSession, added_bytes: int) -> str:
        """Record a change of the session's memory; return the limit if the total exceeds it."""

    def release(self, session: Any) -> None:
        """Remove a session from the counts."""


@dataclass(frozen=True, slots=True)
class Reception:
    """What the sessions of one listener share."""

    name: str
    settings: InForce
    clock: Clock
    turn_ns: Callable[[], int]
    soon: Soon
    budget: WorkBudget
    """The time that its sessions may use in one turn of the loop."""
    sessions: SessionLimits
    dispatcher: Starts
    fast_path: FastPath
    settle: Callable[[], None]
    """Writes what the requests of a read have staged."""
    noted: Callable[[str], None]
    """Counts a new session. The text says why it is refused, or is empty."""
    warnings: Warnings

    def admit(self, session: Any) -> str:
        """Admit a new session and return an empty string, or return the reason for refusing it."""
        refusal = self.sessions.admit(session, self.clock.monotonic_ms())
        self.noted(refusal)
        return refusal
