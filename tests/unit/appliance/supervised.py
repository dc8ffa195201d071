"""Parts for tests of the supervisor's core, and helpers that read its state."""

import random

from appliance.mill.parts import Part, ProbeKind
from appliance.supervisor.core import Supervisor
from appliance.supervisor.effects import Effect, Note, PartPhase, ProbeResult


def part(name: str, start_rank: int = 0, stop_rank: int = 0, *, takes_turns: bool = False) -> Part:
    return Part(
        name=name,
        probe=ProbeKind.HTTP,
        host="127.0.0.1",
        port=1,
        ports=(),
        start_rank=start_rank,
        stop_rank=stop_rank,
        start_timeout_ms=60_000,
        stop_timeout_ms=10_000,
        takes_turns=takes_turns,
    )


def supervisor(*parts: Part, seed: int = 1) -> Supervisor:
    return Supervisor(parts or (part("a"),), random.Random(seed))


def deeds(effects: list[Effect]) -> list[Effect]:
    """Return the effects without the notes, which are only messages for the log."""
    return [effect for effect in effects if not isinstance(effect, Note)]


def state_of(mill: Supervisor, name: str = "a") -> PartPhase:
    return mill.parts[name].state


def bring_up(mill: Supervisor, name: str = "a", now_ms: int = 0) -> None:
    mill.tick(now_ms)
    mill.on_started(name, 100, now_ms)
    mill.on_probe(name, ProbeResult.OK, "", now_ms)
    assert state_of(mill, name) is PartPhase.HEALTHY
