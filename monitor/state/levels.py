"""The data of the history: buckets of three widths, and events."""

from dataclasses import dataclass

DAY_MS = 86_400_000

Point = tuple[int, float, float, float]
"""A bucket: its start in Unix milliseconds, its mean, minimum and maximum."""


@dataclass(frozen=True, slots=True)
class Level:
    """One resolution of the history: its table, the duration of a bucket, and how long buckets are
    kept.
    """

    table: str
    step_ms: int
    keep_ms: int | None


LEVELS = (
    Level("points_5s", 5_000, DAY_MS // 4),
    Level("points_1m", 60_000, 7 * DAY_MS),
    Level("points_10m", 600_000, None),
)


@dataclass(frozen=True, slots=True)
class Event:
    """An event as one sentence. `mark` says whether charts show it."""

    at_ms: int
    kind: str
    text: str
    mark: bool = False
