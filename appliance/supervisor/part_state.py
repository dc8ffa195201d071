"""The state of one part.

This module has only data classes.
"""

from dataclasses import dataclass

from appliance.mill.parts import Part
from appliance.supervisor.effects import PartPhase


@dataclass(slots=True)
class PartEntry:
    """The state of one part, as the supervisor knows it."""

    part: Part
    state: PartPhase = PartPhase.WAITING
    pid: int | None = None
    reason: str = ""
    restarts: int = 0
    was_healthy: bool = False
    started_at_ms: int = 0
    healthy_since_ms: int = 0
    last_exit_code: int | None = None
    failures: int = 0
    attempts: int = 0
    probe_at_ms: int | None = None
    is_asked: bool = False
    silent_since_ms: int | None = None
    act_at_ms: int | None = None
    """The time at which to start the part again (BACKING_OFF), to give up its start (STARTING), or
    to kill it (STOPPING)."""
    starts_again: bool = False
    """True if the part is stopped for a restart, so that it starts again when its process has
    ended."""
    successor: Part | None = None
    """The part that replaces this one when its process has ended; None if no change was
    requested."""
    is_leaving: bool = False
    """True if the part is not in the configuration any more, so that it is removed when its process
    has ended."""

    @property
    def is_changing(self) -> bool:
        """True if the part is replaced or removed as soon as its process has ended."""
        return self.is_leaving or self.successor is not None

    @property
    def awaits_its_turn(self) -> bool:
        """True if the part will restart at the same addresses, while other parts of its kind do
        its work."""
        return (
            self.part.takes_turns
            and self.successor is not None
            and self.successor.keeps_addresses_of(self.part)
        )
