"""Decides what the scrub checks next, and which parts of a window are wrong.

This module is pure. The scrub compares the live view (Redis) with the truth (MySQL) in two ways. A
*look* asks Redis only for sizes, so a missing key is found within seconds. A *check* compares a
window field by field. Each of them goes through all windows in the view again and again. It
remembers the start of the next window, so merges and purges in between do not disturb it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sinks.cells.merge import WindowId, is_kept, keep_in_mysql_s, keep_in_redis_s, key_limit
from sinks.redis.view import Write, oldest_kept_s
from sinks.rows import MetricDefinition
from sinks.values import RANKS, Measure

# The expiry that Redis reports for a key that never expires.
NEVER = -1
# The most remembered windows whose sizes look wrong although a check has found them right, because
# they have cells without a value.
SETTLED_MAX = 10_000


class HashFacts(NamedTuple):
    """The facts that Redis reports of a hash and its ranking; expiries are epoch seconds.

    `fields` and `ranked` are -1 if the key has another type than expected. `is_start_right` is 1 if
    `@start` is the requested start.
    """

    fields: int
    expire_at_s: int
    ranked: int
    ranking_expire_at_s: int
    is_start_right: int


@dataclass(slots=True)
class WindowCheck:
    """The comparison of one window with the truth, page by page.

    `after` is the last identity that was read. If Redis has more fields than the truth (`fields`),
    the window is compared once more. First all field names in Redis are collected in `unseen`;
    `cursor` is Redis's cursor for this. Then the names in the truth are removed. The remaining
    names do not belong to the window. They cannot come from a merge in between, because a merge
    writes the truth first.
    """

    window: WindowId
    is_newest: bool = False
    is_suspected: bool = False
    after: bytes = b""
    fields: int = 0
    unseen: set[bytes] | None = None
    cursor: int | None = None
    latest_differs: bool = False
    mended: list[str] = field(default_factory=list)

    def read_again(self) -> None:
        """Compare the window again, and start by collecting the field names in Redis."""
        self.after, self.fields, self.unseen, self.cursor = b"", 0, set(), 0


class WindowCycle:
    """Goes through the windows of all metrics and sizes, the newest window of a size first."""

    def __init__(self, definitions: Iterable[MetricDefinition]) -> None:
        self._sizes = [(each.name, size_s) for each in definitions for size_s in each.windows_s]
        # Check totals first, then the smallest windows, which are the most watched ones.
        self._sizes.sort(key=lambda one: one[1])
        self._at = 0
        self._before_s: int | None = None
        self.rounds_total = 0

    def __len__(self) -> int:
        """Return the number of pairs of metric and size."""
        return len(self._sizes)

    @property
    def place(self) -> tuple[str, int, int | None]:
        """The metric, the size, and the start before which the next windows are.

        The start is None for the newest window.
        """
        return *self._sizes[self._at], self._before_s

    def passed(self, starts_s: Sequence[int], asked: int) -> None:
        """Record that the windows with these starts were compared.

        The scrub continues after them, or with the next size if they are fewer than the `asked`
        ones.
        """
        if len(starts_s) >= asked:
            self._before_s = starts_s[-1]
        else:
            self.next_size()

    def next_size(self) -> None:
        """Continue the scrub with the next metric or window size."""
        self._before_s = None
        self._at = (self._at + 1) % len(self._sizes)
        self.rounds_total += self._at == 0


def oldest_scrubbed_s(definition: MetricDefinition, size_s: int, now_s: int) -> int:
    """Return the start of the oldest window that both the live view and the truth keep.

    If the truth purges a window earlier, it is not compared, and expires in Redis.
    """
    shown_s = oldest_kept_s(definition, size_s, now_s)
    keep_s = keep_in_mysql_s(definition, size_s)
    if keep_s is None:
        return shown_s
    return max(shown_s, now_s - keep_s - size_s + 1)


def is_scrubbed(window: WindowId, definition: MetricDefinition, now_s: int) -> bool:
    """Tell whether both sides still keep a window."""
    return all(
        is_kept(window.start_s, window.size_s, keep_s, now_s)
        for keep_s in (
            keep_in_redis_s(definition, window.size_s),
            keep_in_mysql_s(definition, window.size_s),
        )
    )


def looks_whole(
    definition: MetricDefinition, size_s: int, n_keys: int, write: Write, seen: HashFacts
) -> bool:
    """Tell whether a window's keys have the size and expiry expected from its key count.

    False only suggests a check and proves nothing, because cells can lack a value.
    """
    each = len(RANKS) + 1 if definition.measure == Measure.PERCENTILE else 1
    # The key count does not include the overflow key.
    is_full = bool(definition.key_columns) and n_keys >= key_limit(definition, size_s)
    return (
        n_keys * each <= seen.fields <= (n_keys + is_full) * each
        and seen.ranked == min(definition.top or 0, n_keys)
        and expires_rightly(write, seen)
    )


def expires_rightly(write: Write, seen: HashFacts) -> bool:
    """Tell whether hash and ranking expire when the window's `keep` ends."""
    right = write.expire_at_s or NEVER
    return (seen.fields == 0 or seen.expire_at_s == right) and (
        seen.ranked == 0 or seen.ranking_expire_at_s == right
    )


def shows_latest(window: HashFacts, latest: HashFacts) -> bool:
    """Tell whether the latest key has the size of the window's own key, and never expires."""
    return (
        latest.is_start_right == 1
        and latest.fields == window.fields + 1
        and latest.expire_at_s == NEVER
        and latest.ranked == window.ranked
        and (latest.ranked == 0 or latest.ranking_expire_at_s == NEVER)
    )


def ranking_suffix(definition: MetricDefinition) -> str:
    """Return the suffix of the field with the value of a ranked key."""
    return ".p50" if definition.measure == Measure.PERCENTILE else ""
