"""What the supervisor knows about one part.

Pure data.
"""

from dataclasses import dataclass

from appliance.mill.parts import Part
from appliance.supervisor.effects import State


@dataclass(slots=True)
class PartState:
    """What the supervisor knows about one part."""

    part: Part
    state: State = State.WAITING
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
    """When to start again (BACKING_OFF), to give up a start (STARTING), or to kill (STOPPING)."""
    starts_again: bool = False
    """A stop that a restart asked for: start at once when the process is gone."""
    successor: Part | None = None
    """What the part becomes when its process is gone; None while nobody asked for a change."""
    is_leaving: bool = False
    """Nobody asks for the part any more: it is forgotten when its process is gone."""

    @property
    def is_changing(self) -> bool:
        """Whether its process must end for another one, or for none."""
        return self.is_leaving or self.successor is not None

    @property
    def awaits_its_turn(self) -> bool:
        """Whether it starts anew where it listens, while others of its kind do its work."""
        return self.part.takes_turns and self.successor == self.part
