"""What the scrub of the live view looks at next, and what of a window is not as it must be. Pure.

The live view is checked against the truth in two ways. A look asks the server for sizes alone, so
that a key that vanished is noticed within seconds; a check compares a window field by field. Both
go through all shown windows in turn and keep their place by a window's start, so that merges and
purges in between move nothing.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sinks.cells.merge import WindowId, is_kept, keep_in_mysql_s, keep_in_redis_s, key_limit
from sinks.redis.view import Write, oldest_kept_s
from sinks.rows import MetricDefinition
from sinks.values import RANKS, Measure

# How the server says that a key never expires.
NEVER = -1
# A window that looks odd and is right (cells without a value) is remembered up to this number.
SETTLED_MAX = 10_000


class Seen(NamedTuple):
    """What the server says of a hash and of its ranking; expiries are epoch seconds.

    `fields` and `ranked` are -1 where the key is of another type than ours. `is_start_right` is 1
    if `@start` is the start that was asked for.
    """

    fields: int
    expire_at_s: int
    ranked: int
    ranking_expire_at_s: int
    is_start_right: int


@dataclass(slots=True)
class Check:
    """A window that is being compared with the truth, page by page.

    `after` is the identity that was read last. With more fields than the truth has (`fields` so
    far), the window is read once more: first the names that the server has go to `unseen` (`cursor`
    is its place there), then those that the truth has are struck out. What was in the server before
    the truth was read, and is not in the truth, is nobody's: merges in between cannot make it so,
    for they write the truth first.
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
        """Begin with the names that the server has."""
        self.after, self.fields, self.unseen, self.cursor = b"", 0, set(), 0


class Round:
    """Goes round the windows of all metrics and sizes, each size's newest window first."""

    def __init__(self, definitions: Iterable[MetricDefinition]) -> None:
        self._sizes = [(each.name, size_s) for each in definitions for size_s in each.windows_s]
        # Totals first, then the finest windows, which are the ones that people watch.
        self._sizes.sort(key=lambda one: one[1])
        self._at = 0
        self._before_s: int | None = None
        self.rounds_total = 0

    def __len__(self) -> int:
        """How many pairs of metric and size there are."""
        return len(self._sizes)

    @property
    def place(self) -> tuple[str, int, int | None]:
        """Metric, size, and the start below which the next windows lie (None: the newest)."""
        return *self._sizes[self._at], self._before_s

    def passed(self, starts_s: Sequence[int], asked: int) -> None:
        """Go on behind these windows; fewer than were asked for are the last of their size."""
        if len(starts_s) >= asked:
            self._before_s = starts_s[-1]
        else:
            self.next_size()

    def next_size(self) -> None:
        """Go on with the next metric or size."""
        self._before_s = None
        self._at = (self._at + 1) % len(self._sizes)
        self.rounds_total += self._at == 0


def oldest_scrubbed_s(definition: MetricDefinition, size_s: int, now_s: int) -> int:
    """Start of the oldest window that both the live view and the truth keep.

    A window that the truth purges earlier than the view is left to its expiry.
    """
    shown_s = oldest_kept_s(definition, size_s, now_s)
    keep_s = keep_in_mysql_s(definition, size_s)
    if keep_s is None:
        return shown_s
    return max(shown_s, now_s - keep_s - size_s + 1)


def is_scrubbed(window: WindowId, definition: MetricDefinition, now_s: int) -> bool:
    """Whether a window is still kept on both sides."""
    return all(
        is_kept(window.start_s, window.size_s, keep_s, now_s)
        for keep_s in (
            keep_in_redis_s(definition, window.size_s),
            keep_in_mysql_s(definition, window.size_s),
        )
    )


def looks_whole(
    definition: MetricDefinition, size_s: int, n_keys: int, write: Write, seen: Seen
) -> bool:
    """Whether a window's keys have the size and the expiry that its number of keys lets expect.

    False is a reason to check the window, no proof: a cell may be without a value.
    """
    each = len(RANKS) + 1 if definition.measure == Measure.PERCENTILE else 1
    # The overflow key is not in the number.
    is_full = bool(definition.key_columns) and n_keys >= key_limit(definition, size_s)
    return (
        n_keys * each <= seen.fields <= (n_keys + is_full) * each
        and seen.ranked == min(definition.top or 0, n_keys)
        and expires_rightly(write, seen)
    )


def expires_rightly(write: Write, seen: Seen) -> bool:
    """Whether hash and ranking go when the window's `keep` ends."""
    right = write.expire_at_s or NEVER
    return (seen.fields == 0 or seen.expire_at_s == right) and (
        seen.ranked == 0 or seen.ranking_expire_at_s == right
    )


def shows_latest(window: Seen, latest: Seen) -> bool:
    """Whether the key of the latest window has the size of the window's own, and never expires."""
    return (
        latest.is_start_right == 1
        and latest.fields == window.fields + 1
        and latest.expire_at_s == NEVER
        and latest.ranked == window.ranked
        and (latest.ranked == 0 or latest.ranking_expire_at_s == NEVER)
    )


def ranking_suffix(definition: MetricDefinition) -> str:
    """What stands behind a ranked key's name in the field that holds its number."""
    return ".p50" if definition.measure == Measure.PERCENTILE else ""
