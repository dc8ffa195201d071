"""The rule by which a peer counts as dead, for the controller's brokers and for a voter's leader.

This module is pure. An ended link proves nothing, so it starts a probe of the peer's address. If
the address refuses the connection, the process is gone and the peer is dead at once. Otherwise the
peer is dead if it has not come back within `RECONNECT_MS`. There are two exceptions: the address
accepts the connection, or the probe could not be made. In these cases only the timeouts of the
caller decide. All times are lived milliseconds (`cluster/lived`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

RECONNECT_MS = 500
"""The time in milliseconds in which a peer must reconnect after its connection ended for an unknown
reason."""


class ProbeVerdict(Enum):
    """The result of a connection attempt to the address of a broker's BROKER listener."""

    REFUSED = "refused"
    ACCEPTED = "accepted"
    SILENT = "silent"
    UNREACHABLE = "unreachable"
    UNRESOLVED = "unresolved"


@dataclass(slots=True)
class Suspicion:
    """The doubt whether one peer is alive, from the end of its link until it comes back."""

    deadline_ms: int | None = None
    """The time at which the peer counts as dead unless it has come back; None while it is not
    suspected."""
    probe: int | None = None
    """The number of the probe in progress; None without a probe."""

    def begin(self, now_ms: int) -> None:
        """Record that a link to the peer ended. A second ended link does not extend the
        deadline."""
        if self.deadline_ms is None:
            self.deadline_ms = now_ms + RECONNECT_MS

    def end(self) -> None:
        """Record that the peer is alive. The verdict of a probe in progress is ignored."""
        self.deadline_ms = self.probe = None

    def probed(self, probe: int, verdict: ProbeVerdict, now_ms: int) -> bool:
        """Record the verdict of the probe. Return True if it proves that the peer is dead."""
        assert probe == self.probe, "the verdict of an earlier probe"
        self.probe = None
        if verdict in (ProbeVerdict.ACCEPTED, ProbeVerdict.UNRESOLVED):
            self.deadline_ms = None
        elif verdict is not ProbeVerdict.REFUSED:
            # Start a deadline here too. After a takeover no link has ended, because the peer
            # possibly does not know this node yet.
            self.begin(now_ms)
        return verdict is ProbeVerdict.REFUSED

    def is_over(self, now_ms: int) -> bool:
        """Return True if the peer has not come back in time, so it is dead."""
        return self.deadline_ms is not None and now_ms >= self.deadline_ms
