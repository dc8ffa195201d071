"""One line of the bench: the measured case, its runs, its peer, and the machine.

This module is pure. The line's schema is `bench/1`:

    {"schema": "bench/1", "part": "broker", "case": "produce 1 KiB, acks=all",
     "figures": {"records_per_s": {"min": …, "median": …, "max": …, "runs": 3}, …},
     "values": {"gap_s": […], …},                   # single events, where a case has few of them
     "peer": null or {"name": …, "figures": {…}, "values": {…}},   # in turn with ours, run by run
     "ratio": {"records_per_s": {…}, …},            # ours / peer, pair by pair
     "goals": [{"figure": …, "of": "figures" or "ratio", "at_most" or "at_least": …, "met": …}],
     "machine": {"cores": 2, "python": "3.11.2", "other_load": {…}},   # other load in cores
     "noisy": 0,                                    # runs with more other load than 0.3 cores
     "discarded": 0,                                # rounds measured again because of that
     "at": "2026-11-21T04:00:00Z"}
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.figures import Spread, rounded, spread

SCHEMA = "bench/1"
NOISY_CORES = 0.3

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run, and how many cores other processes used during it."""

    figures: Figures
    other_load: float


@dataclass(frozen=True, slots=True)
class Goal:
    """The limit that a figure's median must meet. With `of="ratio"` the limit is for our ratio to
    the peer."""

    figure: str
    at_most: float | None = None
    at_least: float | None = None
    of: Literal["figures", "ratio"] = "figures"

    def is_met(self, value: float) -> bool:
        """Return whether a median meets the goal."""
        return (self.at_most is None or value <= self.at_most) and (
            self.at_least is None or value >= self.at_least
        )

    @property
    def text(self) -> str:
        """Return the limit as text."""
        return f"≤ {self.at_most:.3g}" if self.at_most is not None else f"≥ {self.at_least:.3g}"


def ratio(figure: str, *, at_most: float | None = None, at_least: float | None = None) -> Goal:
    """Return a goal for our ratio to the peer."""
    return Goal(figure, at_most=at_most, at_least=at_least, of="ratio")


Values = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Peer:
    """Another program, measured alternately with ours."""

    name: str
    runs: Sequence[Run]
    values: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measurement:
    """One case of one part."""

    part: str
    case: str
    runs: Sequence[Run]
    peer: Peer | None = None
    goals: Sequence[Goal] = field(default=())
    discarded: int = 0
    """The number of disturbed rounds that were discarded. No figure includes them."""

    values: Values = field(default_factory=dict)
    """Single events behind the figures, for cases with too few events for percentiles alone."""

    @property
    def figures(self) -> dict[str, Spread]:
        """Return the spread of every figure over all runs."""
        return _spreads([run.figures for run in self.runs])

    @property
    def peer_figures(self) -> dict[str, Spread]:
        """Return the spread of every figure of the peer; empty without a peer."""
        return _spreads([run.figures for run in self.peer.runs]) if self.peer else {}

    @property
    def ratios(self) -> dict[str, Spread]:
        """Return the spread of our ratios to the peer, each for one pair of runs; empty without a
        peer."""
        if self.peer is None:
            return {}
        pairs = zip(self.runs, self.peer.runs, strict=True)
        return _spreads(
            [
                {
                    name: run.figures[name] / other.figures[name]
                    for name in run.figures
                    if other.figures.get(name)
                }
                for run, other in pairs
            ]
        )

    @property
    def all_runs(self) -> list[Run]:
        """Return our runs and then the peer's."""
        return [*self.runs, *(self.peer.runs if self.peer else ())]

    @property
    def noisy_runs(self) -> int:
        """Return how many runs had too much other load."""
        return sum(run.other_load > NOISY_CORES for run in self.all_runs)

    def judged(self) -> list[tuple[Goal, float, bool]]:
        """Return the goals that could be compared, each with the median and whether it is met."""
        found = []
        for goal in self.goals:
            values = self.figures if goal.of == "figures" else self.ratios
            if goal.figure in values:
                median = values[goal.figure].median
                found.append((goal, median, goal.is_met(median)))
        return found

    def to_json(self, machine: Mapping[str, Any], at: str) -> dict[str, Any]:
        """Return the JSON line."""
        peer = None
        if self.peer is not None:
            peer = {
                "name": self.peer.name,
                "figures": _json(self.peer_figures),
                "values": _values_json(self.peer.values),
            }
        return {
            "schema": SCHEMA,
            "part": self.part,
            "case": self.case,
            "figures": _json(self.figures),
            "values": _values_json(self.values),
            "peer": peer,
            "ratio": _json(self.ratios) if self.peer else None,
            "goals": [_goal_json(goal, is_met) for goal, _, is_met in self.judged()],
            "machine": {
                **machine,
                "other_load": spread([run.other_load for run in self.all_runs]).to_json(),
            },
            "noisy": self.noisy_runs,
            "discarded": self.discarded,
            "at": at,
        }


def _spreads(runs: Sequence[Figures]) -> dict[str, Spread]:
    names = dict.fromkeys(name for figures in runs for name in figures)
    return {name: spread([figures[name] for figures in runs if name in figures]) for name in names}


def _json(spreads: Mapping[str, Spread]) -> dict[str, dict[str, float]]:
    return {name: one.to_json() for name, one in spreads.items()}


def _values_json(values: Values) -> dict[str, list[float]]:
    return {name: [rounded(one) for one in found] for name, found in values.items()}


def _goal_json(goal: Goal, is_met: bool) -> dict[str, Any]:
    bound = {"at_most": goal.at_most} if goal.at_most is not None else {"at_least": goal.at_least}
    return {"figure": goal.figure, "of": goal.of, **bound, "met": is_met}
