"""The changes of the state of a single part: it was started, found healthy or not, has ended, was
stopped.

This module is pure. Each function changes the state of the part and returns the effects that the
driver must perform. `core` decides when to call them, and how parts depend on each other.
"""

import random

from appliance.supervisor.effects import Effect, Note, PartPhase, ProbeResult, Start, Terminate
from appliance.supervisor.part_state import PartEntry

PROBE_STARTING_MS = 250
FAILURES_TO_UNHEALTHY = 3
HANG_MS = 60_000
BACK_OFF_MS_MIN = 250
BACK_OFF_MS_MAX = 30_000
BACK_OFF_JITTER = 0.2
ATTEMPTS_MAX = 16
"""The number of attempts from which the delay before a restart does not grow any more. It reaches
its maximum long before."""

STEADY_MS = 30_000
"""The time in milliseconds after which a healthy part has recovered, so that its next restart has
the shortest delay again."""


def start(entry: PartEntry, now_ms: int) -> list[Effect]:
    """Start the part."""
    entry.state, entry.reason = PartPhase.STARTING, "starting"
    entry.started_at_ms = now_ms
    entry.failures = 0
    entry.is_asked = False
    entry.probe_at_ms = now_ms + PROBE_STARTING_MS
    entry.act_at_ms = now_ms + entry.part.start_timeout_ms
    return [Start(entry.part.name)]


def found_healthy(entry: PartEntry, now_ms: int) -> list[Effect]:
    """Handle a probe that has found the part healthy."""
    effects: list[Effect] = []
    if entry.state is not PartPhase.HEALTHY:
        effects.append(Note(entry.part.name, "healthy"))
        entry.healthy_since_ms = now_ms
        entry.act_at_ms = None
    elif now_ms - entry.healthy_since_ms >= STEADY_MS:
        entry.attempts = 0
    entry.state, entry.reason = PartPhase.HEALTHY, ""
    entry.was_healthy = True
    entry.failures = 0
    return effects


def found_unwell(entry: PartEntry, answer: ProbeResult, reason: str, now_ms: int) -> list[Effect]:
    """Handle a probe that found the part not ready, or got no answer.

    A single such probe changes nothing.
    """
    entry.failures += 1
    if entry.state is PartPhase.STARTING:
        entry.reason = reason
        if answer is ProbeResult.NOT_READY:
            # The part has answered, with the reason for which it waits. So its time limit for the
            # start begins again.
            entry.act_at_ms = now_ms + entry.part.start_timeout_ms
        return []
    effects: list[Effect] = []
    if entry.failures >= FAILURES_TO_UNHEALTHY or entry.state is PartPhase.UNHEALTHY:
        if entry.state is PartPhase.HEALTHY:
            effects.append(Note(entry.part.name, f"unhealthy: {reason}", True))
        entry.state, entry.reason = PartPhase.UNHEALTHY, reason
    if answer is not ProbeResult.SILENT:
        return effects
    if entry.silent_since_ms is None:
        entry.silent_since_ms = now_ms
    elif now_ms - entry.silent_since_ms >= HANG_MS:
        effects.append(
            Note(entry.part.name, "does not answer, so it is killed and started again", True)
        )
        entry.silent_since_ms = now_ms
        effects += kill(entry)
    return effects


def back_off(
    entry: PartEntry, ended: str, was: PartPhase, chance: random.Random, now_ms: int
) -> list[Effect]:
    """Handle the end of a part that was not asked to stop.

    The part is started again after a delay, which grows with each attempt.
    """
    if was is PartPhase.HEALTHY and now_ms - entry.healthy_since_ms >= STEADY_MS:
        entry.attempts = 0
    delay_ms = min(BACK_OFF_MS_MIN * 2**entry.attempts, BACK_OFF_MS_MAX)
    delay_ms = round(delay_ms * chance.uniform(1 - BACK_OFF_JITTER, 1 + BACK_OFF_JITTER))
    entry.attempts = min(entry.attempts + 1, ATTEMPTS_MAX)
    entry.restarts += 1
    entry.state = PartPhase.BACKING_OFF
    entry.reason = ended
    entry.act_at_ms = now_ms + delay_ms
    text = f"ended although it was not stopped ({ended}); starts again in {delay_ms} ms"
    return [Note(entry.part.name, text, True)]


def begin_stop(entry: PartEntry, now_ms: int) -> list[Effect]:
    """Ask the part's process to stop. It is killed after `stop_timeout_ms`."""
    entry.state, entry.reason = PartPhase.STOPPING, "stopping"
    entry.probe_at_ms = None
    entry.act_at_ms = now_ms + entry.part.stop_timeout_ms
    return [Terminate(entry.part.name, force=False)]


def kill(entry: PartEntry) -> list[Effect]:
    """Kill the process group of the part at once. Its exit is reported as usual."""
    return [Terminate(entry.part.name, force=True)]
