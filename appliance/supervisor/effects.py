"""The words of the supervisor's judgement: where a part is, what a probe found, what is to be done.

Pure data.
"""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Where a part is."""

    WAITING = "waiting"
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    BACKING_OFF = "backing off"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


LIVE = frozenset({State.STARTING, State.HEALTHY, State.UNHEALTHY, State.STOPPING})
"""The states in which there is a process."""


class Answer(StrEnum):
    """What a probe found."""

    OK = "ok"
    NOT_READY = "not ready"
    SILENT = "no answer"


@dataclass(frozen=True, slots=True)
class Start:
    """Start this part's process; the driver answers with `on_started` or `on_exit`."""

    part: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Probe this part; the driver answers with `on_probe`."""

    part: str


@dataclass(frozen=True, slots=True)
class Look:
    """Ask these parts how many partitions are out of sync; the driver answers with `on_copies`, and
    this number."""

    parts: tuple[str, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask this part's process to stop; `force` ends its whole process group at once."""

    part: str
    force: bool


@dataclass(frozen=True, slots=True)
class Note:
    """Something worth a line in the supervisor's log."""

    part: str
    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class AllStopped:
    """Nothing runs any more and nothing will: the supervisor may end."""


Effect = Start | Ask | Look | Terminate | Note | AllStopped
