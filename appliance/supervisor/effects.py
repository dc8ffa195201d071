"""The inputs and effects of the supervisor's core: states of parts, results of probes, and commands
for the driver.

This module has only data classes.
"""

from dataclasses import dataclass
from enum import StrEnum


class PartPhase(StrEnum):
    """The state of a part."""

    WAITING = "waiting"
    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    BACKING_OFF = "backing off"
    FAILED = "failed"
    STOPPING = "stopping"
    STOPPED = "stopped"


LIVE = frozenset({PartPhase.STARTING, PartPhase.HEALTHY, PartPhase.UNHEALTHY, PartPhase.STOPPING})
"""The states in which the part has a process."""


class ProbeResult(StrEnum):
    """The result of a probe."""

    OK = "ok"
    NOT_READY = "not ready"
    SILENT = "no answer"


@dataclass(frozen=True, slots=True)
class Readiness:
    """The answer to the question whether the next broker of a rolling restart can stop."""

    not_in_sync: int | None
    """The number of partitions of which not all replicas are in sync; None if it is unknown."""
    why: str = ""
    """The brokers that did not answer, as text, if the number is unknown."""
    controller: str | None = None
    """The part that is the active controller; None if it is unknown."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start this part's process. The driver reports the result with `on_started` or `on_exit`."""

    part: str


@dataclass(frozen=True, slots=True)
class ProbePart:
    """Probe this part. The driver reports the result with `on_probe`."""

    part: str


@dataclass(frozen=True, slots=True)
class AskReplicas:
    """Ask these parts how many partitions are out of sync, and which part is the active controller.

    The driver reports the answer with `on_copies` and this `number`.
    """

    parts: tuple[str, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask this part's process to stop. With `force`, kill its whole process group at once."""

    part: str
    force: bool


@dataclass(frozen=True, slots=True)
class Note:
    """Write a line about a part to the supervisor's log."""

    part: str
    text: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class AllStopped:
    """No part runs, and no part will be started, so the supervisor can end."""


Effect = Start | ProbePart | AskReplicas | Terminate | Note | AllStopped
