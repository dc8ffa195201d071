"""What all sessions of one listener share: whom they ask, and what they work by.

Floor: sessions. Pure. What a session asks of higher rooms are the protocols here; `node/broker`
fills them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from broker.budget import Budget
from broker.config import InForce
from broker.metrics.warnings import Warnings
from broker.sessions.call import Asking
from broker.sessions.pipeline import Slot
from broker.world import Clock, Soon


class Lane(Protocol):
    """What stays the same from one Produce of a session to the next."""

    def fits(self, frame: memoryview) -> bool:
        """Whether a frame begins as the one before it."""


class ShortWay(Protocol):
    """Serves a Produce that is like the one before it, without decoding it field by field."""

    def start(self, session: Asking, slot: Slot, frame: memoryview, lane: Any) -> bool:
        """Serve it; False: nothing has happened, and it must go the long way."""


class NoShortWay:
    """Where nothing is produced."""

    def start(self, session: Asking, slot: Slot, frame: memoryview, lane: Any) -> bool:
        return False


class Starts(Protocol):
    """Serves whole requests."""

    def start(self, session: Asking, slot: Slot, frame: memoryview, waited_ns: int = 0) -> None:
        """Serve one request. Raises WireError when the connection must be closed for it."""


class Counted(Protocol):
    """A session as the limits see it."""

    @property
    def listener_name(self) -> str:
        """The listener it came in on."""

    @property
    def peer_host(self) -> str:
        """Where it comes from."""

    @property
    def has_spoken(self) -> bool:
        """Whether it has sent anything."""


class Limits(Protocol):
    """The limits on sessions, and who is counted in them (`sessions`)."""

    def admit(self, session: Any, now_ms: int) -> str:
        """Take a session in; else the limit that it breaks."""

    def spoke(self, session: Counted) -> None:
        """It has sent its first byte."""

    def account(self, session: Counted, added_bytes: int) -> str:
        """Note a change in what it holds; the limit if that is too much for all."""

    def release(self, session: Any) -> None:
        """Count it out."""


@dataclass(frozen=True, slots=True)
class Reception:
    """One listener's side of its sessions."""

    name: str
    settings: InForce
    clock: Clock
    turn_ns: Callable[[], int]
    soon: Soon
    budget: Budget
    """What its sessions may have of one turn of the loop."""
    sessions: Limits
    dispatcher: Starts
    short: ShortWay
    settle: Callable[[], None]
    """Writes what the requests of a read have staged."""
    noted: Callable[[str], None]
    """Counts a new session; the text is why it is refused, or empty."""
    warnings: Warnings

    def admit(self, session: Any) -> str:
        """Take a new session in; else the reason why not."""
        refusal = self.sessions.admit(session, self.clock.monotonic_ms())
        self.noted(refusal)
        return refusal
